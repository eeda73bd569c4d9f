"""The judgement of a file on one case: the parent draws seeds, holds the clock, and imports no implementation.

A stretch is a few calls, each on inputs of its own: the judged process is stopped; the reference draws another dy for
each call and empties the caches; the clock starts and the process goes on; it says that it is done, is stopped, and the
clock stops. What lies in its memory then are its answers. Only after that is it decided which are compared with
float64. Stretches of the judged file, of its peers and of doing nothing take turns; one process is at work at a time.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.cases import NormCase
from harness.errors import UnavailableError
from harness.judge import memory
from harness.judge.children import Child, JudgedError, Nursery, adopting_orphans, printable, start
from harness.judge.messages import (
    Answered,
    AnswerPlace,
    Attach,
    Calm,
    Commit,
    Compare,
    Compared,
    Draw,
    Go,
    Message,
    Open,
    Prepare,
    Ready,
    RunnerReady,
    StartRunner,
)
from harness.judge.runner import NOTHING
from harness.judge.verdict import Answers, CaseVerdict, gravest, speed_of
from harness.records.reasons import Reason

JUDGED, PEERS = 0, 1  # the runners, as the reference knows them
BLOCK_BYTES = {"cpu": 1 << 27, "cuda": 1 << 31}  # of the inputs and answers of a stretch together
FEWEST_CALLS = 3
MOST_CALLS = {"cpu": 6, "cuda": 16}
START_LIMIT_S, STRETCH_LIMIT_S = 180.0, 60.0
LEAST_OVERHEADS = 1.5
SAME = "same dy"
CALM_FACTOR, CALM_TRIES = 1.5, 20


@dataclass(frozen=True)
class JudgeSettings:
    """How much is done: processes of the judged file in turn, stretches of each, seconds for comparing in each."""

    sittings: int = 2
    least_turns: int = 6
    most_turns: int = 20
    timing_s: float = 3.0
    verify_s: float = 3.0
    time_limit_s: float = 300.0
    without: tuple[str, ...] = ()  # layers that are left out, for tests of the others


@dataclass
class _Findings:
    """What is known of the judged file so far."""

    layers: dict[str, bool] = field(default_factory=dict[str, bool])
    name: str = ""
    version: int = 0
    in_place: bool = False
    rho: dict[str, float] = field(default_factory=dict[str, float])
    stretches_us: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    hashes: dict[tuple[int, int], tuple[int, dict[str, str]]] = field(default_factory=dict)
    differing_in: set[str] = field(default_factory=set[str])
    given: int = 0
    verified: int = 0
    repeated: int = 0
    differing: int = 0
    differing_in_new_process: int = 0
    verify_s: float = 0.0

    def answers(self) -> Answers:
        """How many answers there were."""
        return Answers(**{name: getattr(self, name) for name in Answers.model_fields})

    def deterministic(self) -> Any:
        """What the answers to equal draws say."""
        if self.differing:
            return "no"
        return "within a process" if self.differing_in_new_process else "yes" if self.repeated else None


class Courtroom:
    """The trusted processes of one case, in which one file after the other can be judged; a context manager."""

    def __init__(self, case: NormCase, peers: Sequence[str], effort: JudgeSettings) -> None:
        self.case = case
        self.effort = effort
        self._peers = list(peers)
        self._rng = random.Random(secrets.randbits(128))
        self._on_gpu = case.device != "cpu"
        one = sum(memory.layout(case, 1, *kinds)[1] for kinds in (("input", "statistic"), ("gradient",)))
        self.calls = max(FEWEST_CALLS, min(MOST_CALLS[case.device], BLOCK_BYTES[case.device] // one))
        self._answer_spans, self._answers_size = memory.layout(case, self.calls, "gradient")
        self._inputs_size = memory.layout(case, self.calls, "input", "statistic")[1]
        self.device = ""

    def __enter__(self) -> Courtroom:
        self._adopting = adopting_orphans()
        self._adopting.__enter__()
        self._children: list[Child | Nursery] = []
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()
        for descriptor in self._memories:
            os.close(descriptor)
        self._adopting.__exit__(None, None, None)

    def _open(self) -> None:
        sizes = () if self._on_gpu else (self._inputs_size, self._inputs_size, self._answers_size)
        self._memories = [os.memfd_create("normbwd-judge", os.MFD_CLOEXEC) for _ in sizes]
        for descriptor, size in zip(self._memories, sizes, strict=True):
            os.ftruncate(descriptor, size)
        self._nursery = Nursery(self._memories[:1])
        self._children = [self._nursery]
        self._reference = start("reference", self._memories)
        theirs = self._memories[1:2]
        self._peers_runner = start("runner", theirs)
        self._children += [self._peers_runner, self._reference]
        opening = Open(case=self.case, calls=self.calls, memories=self._memories)
        peers = StartRunner(
            case=self.case, calls=self.calls, memory_fd=theirs[0] if theirs else None, peers=self._peers
        )
        with self._trusted():
            self._reference.channel.send(opening)
            hello = self._peers_runner.ask(peers, START_LIMIT_S, "start")
            ready = self._reference.answer(START_LIMIT_S, "start")
        self._facts, self.device = ready.figures, ready.title
        if self._on_gpu:
            self._ask_reference(Attach(runner=PEERS, handle=hello.handle))
            self._calm_us = min(self._ask_reference(Calm()).figures["us"] for _ in range(5))
        self._prepared: list[int] = []  # the seeds of the peers' inputs
        self.peers = list(self._peers)

    @contextmanager
    def _trusted(self) -> Generator[None]:
        """What fails here is not the judged file's fault."""
        try:
            yield
        except JudgedError as error:
            words = "; ".join(child.last_words() for child in (self._reference, self._peers_runner))
            raise UnavailableError(f"the judge's own process failed ({error.reason.fields}): {words}") from error

    def _ask_reference(self, request: Message) -> Any:
        with self._trusted():
            return self._reference.ask(request, START_LIMIT_S, "reference")

    def judge(self, file: Path) -> CaseVerdict:
        """The verdict on a file."""
        begun_s, found = time.monotonic(), _Findings()
        try:
            self._hear(file, found)
            status, reason = self._decide(found)
        except JudgedError as error:
            status, reason = error.status, error.reason
        self.heard = found
        speed = self._speed(found) if status in ("right", "nondeterministic", "impossible", "inconclusive") else None
        return CaseVerdict(
            case=self.case,
            key=self.case.key,
            status=status,  # pyright: ignore[reportArgumentType]
            reason=reason,
            deterministic=found.deterministic(),
            rho=found.rho,
            answers=found.answers(),
            speed=speed,
            layers=found.layers,
            seconds=round(time.monotonic() - begun_s, 2),
        )

    def _hear(self, file: Path, found: _Findings) -> None:
        """Let the file answer in one process after the other; the second gets some inputs of the first again."""
        seeds = [self._seed() for _ in range(self.calls)]
        for sitting in range(self.effort.sittings):
            if sitting:
                seeds = [seed if self._rng.random() < 0.5 else self._seed() for seed in seeds]
            judged = self._nursery.fork()
            try:
                self._sit(judged, file, seeds, sitting, found)
            finally:
                judged.end()

    def _sit(self, judged: Child, file: Path, seeds: list[int], sitting: int, found: _Findings) -> None:
        """One process of the judged file: prepare, answer, then take turns with the peers."""
        trusted = [os.getpid(), self._reference.pid, self._peers_runner.pid]
        hello = judged.ask(
            StartRunner(
                case=self.case,
                calls=self.calls,
                memory_fd=self._memories[0] if self._memories else None,
                file=str(file.resolve()),
                scratch=str(judged.scratch),
                protected=trusted,
                without=list(self.effort.without),
            ),
            self.effort.time_limit_s,
            "start",
        )
        if not isinstance(hello, RunnerReady) or not hello.names:
            raise JudgedError("tampered", Reason("bad_message", {"stage": "start"}))
        found.layers = {**hello.layers, "stopped_while_others_run": True, "fresh_inputs": True, "own_clock": True}
        name = found.name = printable(Reason("name", {"name": hello.names[0]})).fields["name"]  # pyright: ignore
        found.version, found.in_place = hello.version, hello.in_place
        self._stop(judged)
        if self._on_gpu:
            self._attach(hello.handle)
        self._ask_reference(Draw(runner=JUDGED, seeds=seeds, fresh=False))
        judged.go_on()
        self._expect(judged.ask(Prepare(impl=str(name)), self.effort.time_limit_s, "prepare"), Ready)
        self._stop(judged)
        self._prepare_peers(seeds)
        found.verify_s = 0.0
        for _ in range(2):  # the first compiles, and both are compared
            self._stretch(judged, str(name), seeds, sitting, found)
        self._take_turns(judged, str(name), seeds, sitting, found)

    def _attach(self, handle: str) -> None:
        if self._ask_reference(Attach(runner=JUDGED, handle=handle)).title:
            raise JudgedError("tampered", Reason("unreadable_answer"))

    def _prepare_peers(self, seeds: list[int]) -> None:
        """Prepare the peers for the same inputs, in memory of their own."""
        if self._prepared == seeds:
            return
        self._ask_reference(Draw(runner=PEERS, seeds=seeds, fresh=False))
        self._peers_runner.go_on()
        able: list[str] = []
        for name in [NOTHING, *self._peers]:
            try:
                self._peers_runner.ask(Prepare(impl=name), self.effort.time_limit_s, "prepare")
                able.append(name)
            except JudgedError as error:
                if name == self._peers[0] or error.status not in ("unsupported", "missing"):
                    raise UnavailableError(f"{name} cannot be timed here: {error.reason.fields}") from error
        self.peers = able
        self._prepared = list(seeds)
        for name in able:
            self._time_peer(name)

    def _take_turns(self, judged: Child, name: str, seeds: list[int], sitting: int, found: _Findings) -> None:
        """Time the judged file and its peers, a stretch each in random order, until there are enough turns."""
        effort, began_s = self.effort, time.monotonic()
        for turn in range(effort.most_turns):
            spent_s = time.monotonic() - began_s - found.verify_s
            if turn >= effort.least_turns and spent_s > effort.timing_s:
                break
            order = [name, SAME, *self.peers]
            self._rng.shuffle(order)
            times_us: dict[str, float] = {}
            for each in order:
                if each == SAME:
                    self._stretch(judged, name, seeds, sitting, found, again=True)
                elif each == name:
                    times_us[""] = self._stretch(judged, name, seeds, sitting, found)
                else:
                    times_us[each] = self._time_peer(each)
            for each, us in times_us.items():
                found.stretches_us.setdefault(each, []).append(us)

    def _time_peer(self, name: str) -> float:
        """One stretch of a trusted implementation, in microseconds; nothing else is at work."""
        self._peers_runner.stop()
        with self._trusted():
            self._peers_runner.settle()
        self._ask_reference(Draw(runner=PEERS, seeds=self._seeds(), fresh=True))
        if self._on_gpu:
            self._wait_for_calm()
        with self._trusted():
            us, _ = self._clocked(self._peers_runner, name)
            self._peers_runner.go_on()
        return us

    def _stretch(
        self, judged: Child, name: str, seeds: list[int], sitting: int, found: _Findings, again: bool = False
    ) -> float:
        """One stretch of the judged file, in microseconds; its answers are committed, and some of them compared.

        With `again` some calls get a draw for the second time, and the time does not count: it could be remembered.
        """
        drawn = self._seeds()
        if again:
            known = [[dy for x, dy in found.hashes if x == seed] for seed in seeds]
            drawn = [
                self._rng.choice(earlier) if earlier and self._rng.random() < 0.6 else fresh
                for earlier, fresh in zip(known, drawn, strict=True)
            ]
        self._ask_reference(Draw(runner=JUDGED, seeds=drawn, fresh=True))
        us, done = self._clocked(judged, name)
        self._stop(judged)
        if not judged.channel.is_silent():
            raise JudgedError("tampered", Reason("bad_message", {"stage": "time"}))
        if not self._on_gpu:
            self._read_answers(judged, done)
        found.given += self.calls
        self._compare(done, list(zip(seeds, drawn, strict=True)), sitting, found)
        return us

    def _clocked(self, child: Child, name: str) -> tuple[float, Answered]:
        """From the moment when a stopped process goes on until it says that it is done and is stopped again."""
        child.channel.send(Go(impl=name))
        began = time.perf_counter_ns()
        child.go_on()
        done = child.answer(self.effort.time_limit_s if name else STRETCH_LIMIT_S, "time")
        child.stop()
        if self._on_gpu and isinstance(done, Answered):  # what is still computed is awaited, or read too early
            fault = self._ask_reference(Commit(answers=done.answers)).title
            if fault:
                raise JudgedError("tampered", Reason("unreadable_answer"))
        us = (time.perf_counter_ns() - began) / 1e3
        self._expect(done, Answered)
        self._check_places(done)
        return us, done

    def _check_places(self, done: Answered) -> None:
        """Each call must have its gradients, and memory of its own for each."""
        spans: list[tuple[str, int, int]] = []
        names = [span.name for span in self._answer_spans[0]]
        if len(done.answers) != self.calls or any([p.name for p in places] != names for places in done.answers):
            raise JudgedError("tampered", Reason("bad_message", {"stage": "time"}))
        for call, places in enumerate(done.answers):
            for span, place in zip(self._answer_spans[call], places, strict=True):
                spans.append((place.handle, place.address, place.address + _size(span, place)))
        spans.sort()
        for (handle, _, end), (other, begin, _) in pairwise(spans):
            if handle == other and begin < end:
                raise JudgedError("wrong", Reason("shared_answers"))

    def _read_answers(self, judged: Child, done: Answered) -> None:
        """Copy the answers out of the stopped process's memory."""
        with suppress(OSError, OverflowError):
            opened = os.open(f"/proc/{judged.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                for spans, places in zip(self._answer_spans, done.answers, strict=True):
                    for span, place in zip(spans, places, strict=True):
                        content = os.pread(opened, _size(span, place), place.address)
                        if len(content) != _size(span, place):
                            raise OSError
                        os.pwrite(self._memories[-1], content, span.offset)
                return
            finally:
                os.close(opened)
        raise JudgedError("tampered", Reason("unreadable_answer"))

    def _compare(self, done: Answered, draws: list[tuple[int, int]], sitting: int, found: _Findings) -> None:
        """Compare a random half of the answers with float64, fewer where time is short, and all with earlier bits."""
        share = 0.5 if found.verify_s < self.effort.verify_s else 0.1
        which = [call for call in range(self.calls) if self._rng.random() < share]
        if not found.verified:
            which = which or [self._rng.randrange(self.calls)]
        wide = [[place.name for place in places if place.wide] for places in done.answers]
        began_s = time.monotonic()
        checked: Compared = self._ask_reference(Compare(which=which, wide=wide, in_place=found.in_place))
        found.verify_s += time.monotonic() - began_s
        found.verified += len(which)
        found.rho = {name: max(rho, found.rho.get(name, 0.0)) for name, rho in checked.rho.items()} or found.rho
        if checked.fault is not None:
            raise JudgedError("wrong", checked.fault)
        for draw, hashes in zip(draws, checked.hashes, strict=True):
            first_in, first = found.hashes.setdefault(draw, (sitting, hashes))
            if first is hashes:
                continue
            found.repeated += 1
            if differing := {name for name in hashes if hashes[name] != first.get(name)}:
                found.differing += first_in == sitting
                found.differing_in_new_process += first_in != sitting
                found.differing_in |= differing

    def _decide(self, found: _Findings) -> tuple[str, Reason | None]:
        speed = self._speed(found)
        if speed.stretch_us / speed.calls < speed.floor_us:
            us = speed.stretch_us / speed.calls
            fields = {"us": us, "least_us": speed.floor_us, "gbps": self._facts["gbps"]}
            return "impossible", Reason("impossible", fields)
        if found.differing:
            fields = {"differing": found.differing, "repeats": found.repeated, "tensors": sorted(found.differing_in)}
            return "nondeterministic", Reason("runs_differ", fields)
        if speed.stretch_us < LEAST_OVERHEADS * speed.overhead_us:
            return "inconclusive", Reason("short_stretch")
        return ("right", None) if speed.is_conclusive else ("inconclusive", Reason("wide_interval"))

    def _speed(self, found: _Findings) -> Any:
        figures = {name: self._facts[name] for name in ("floor_us", "traffic_us")}
        return speed_of(found.stretches_us, "", NOTHING, calls=self.calls, baseline=self._peers[0], **figures)

    def _wait_for_calm(self) -> None:
        """Wait until a known kernel takes as long as before the judged process was there."""
        for _ in range(CALM_TRIES):
            if self._ask_reference(Calm()).figures["us"] < CALM_FACTOR * self._calm_us:
                return
            time.sleep(0.05)
        raise JudgedError("tampered", Reason("left_device_busy"))

    def _stop(self, judged: Child) -> None:
        judged.stop()
        judged.settle()

    def _expect(self, message: Message, kind: type[Message]) -> None:
        if not isinstance(message, kind):
            raise JudgedError("tampered", Reason("bad_message", {"stage": "time"}))

    def _seeds(self) -> list[int]:
        return [self._seed() for _ in range(self.calls)]

    def _seed(self) -> int:
        return secrets.randbits(60)


def _size(span: memory.Span, place: AnswerPlace) -> int:
    return memory.ITEM_BYTES["fp32"] * (span.size // memory.ITEM_BYTES[span.dtype]) if place.wide else span.size


__all__ = ["Courtroom", "JudgeSettings", "gravest"]
