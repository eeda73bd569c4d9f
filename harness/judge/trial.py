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
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.cases import NormCase
from harness.errors import UnavailableError
from harness.judge import memory
from harness.judge.children import Child, JudgedError, Nursery, last_line, printable
from harness.judge.messages import (
    ALMOST,
    LATE,
    NOTHING,
    STRETCH_LIMIT_S,
    Answered,
    Attach,
    Calm,
    Commit,
    Compare,
    Compared,
    Draw,
    Entered,
    Go,
    JudgeMessage,
    Open,
    Prepare,
    Ready,
    Reveal,
    RunnerReady,
    StartRunner,
)
from harness.judge.verdict import Answers, CaseVerdict, speed_of
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason

JUDGED = 0  # the judged runner, as the reference knows it; then the peers
BLOCK_BYTES = {"cpu": 1 << 27, "cuda": 6 << 30}  # of the inputs and answers of a stretch together
FEWEST_CALLS = 3
MOST_CALLS = {"cpu": 7, "cuda": 23}
START_LIMIT_S = 180.0
LEAST_OVERHEADS = 1.5
VERIFIED = 0.5  # of the timed answers
REPEATED = 0.7  # of the draws where that is allowed; the others are so but for a row
UNQUEUED_STRETCHES, QUIET_STRETCHES, SLOWED = 2, 2, 1.25
QUEUE_LIMIT_S = 5.0  # for launching a stretch
SUSPECT = ""  # no implementation is called so
CALM_FACTOR, CALM_TRIES = 1.5, 20


@dataclass(frozen=True)
class JudgeSettings:
    """How much is done: processes of the judged file in turn, and stretches of each."""

    sittings: int = 2
    least_turns: int = 6
    most_turns: int = 20
    timing_s: float = 3.0
    time_limit_s: float = 300.0
    without: tuple[str, ...] = ()  # layers that are left out, for tests of the others


@dataclass
class _Findings:
    """What is known of the judged file so far."""

    layers: dict[str, bool] = field(default_factory=dict[str, bool])
    name: str = ""
    version: int = 0
    in_place: bool = False
    saves: str = ""
    rho: dict[str, float] = field(default_factory=dict[str, float])
    stretches_us: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    hashes: dict[tuple[int, int], tuple[int, dict[str, str]]] = field(default_factory=dict)
    differing_in: set[str] = field(default_factory=set[str])
    counts: Counter[str] = field(default_factory=Counter[str])  # of answers, by the fields of `Answers`
    verify_s: float = 0.0

    def meet(self, seat: _Seat) -> None:
        """Note what the runner of the judged file says of itself, and what it said before it loaded that."""
        self.name, saves = (printable(Reason(each)).code for each in (seat.hello.name, seat.hello.saves))
        self.saves = self.saves or saves  # what one process says holds for the times of all
        self.version, self.in_place = seat.hello.version, seat.hello.in_place
        self.layers = {**seat.layers, "stopped_while_others_run": True, "fresh_inputs": True, "own_clock": True}
        self.layers["fresh_x"] = not self.saves

    def deterministic(self) -> Any:
        """What the answers to equal draws say."""
        said = {"differing": "no", "differing_in_new_process": "within a process", "repeated": "yes"}
        return next((answer for count, answer in said.items() if self.counts[count]), None)


@dataclass(frozen=True)
class _Seat:
    """A runner and the implementation that it runs; `number` is how the reference knows it."""

    child: Child
    number: int
    impl: str
    layers: dict[str, bool]
    hello: RunnerReady


class Courtroom:
    """The trusted processes of one case, in which one file after the other can be judged; a context manager.

    Each peer has a process of its own, by the same program and in the same sandbox as the judged file.
    """

    def __init__(self, nursery: Nursery, case: NormCase, peers: Sequence[str], settings: JudgeSettings) -> None:
        self._nursery = nursery
        self.case = case
        self.settings = settings
        self._baseline = peers[0]
        self._names = [NOTHING, *peers]
        self._rng = random.Random(secrets.randbits(128))
        self._on_gpu = case.device != "cpu"
        one = memory.layout(case, 1, "input", "statistic")[1] + memory.layout(case, 1, "gradient")[1]
        most = max(FEWEST_CALLS, min(MOST_CALLS[case.device], BLOCK_BYTES[case.device] // one))
        self.calls = (most - 1) | 1  # odd, so that bits that follow from the parity of a call are seen to differ
        self._answer_spans, self._answers_size = memory.layout(case, self.calls, "gradient")
        self._inputs_size = memory.layout(case, self.calls, "input", "statistic")[1]
        self._memories: list[int] = []  # of the answers, and of the newest runner
        self._children: list[Child] = []
        self._peers: list[_Seat] = []
        self._quiet_us: dict[str, float] = {}  # a peer's stretch, before there is a judged process
        self._queueing = set[int]()  # the runners whose calls wait on the GPU for dy, by number
        self._judging = False  # whether the judged file's process is there
        self._prepared: list[int] = []  # the seeds of the peers' inputs

    def __enter__(self) -> Courtroom:
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

    def _open(self) -> None:
        self._reference = self._fork("reference", self._answers_size)
        self._children.append(self._reference)
        ready = self._ask_reference(Open(case=self.case, calls=self.calls))
        self._facts, self.device = ready.figures, ready.title
        if self._on_gpu:
            self._calm_us = min(self._ask_reference(Calm()).figures["us"] for _ in range(5))
        for number, name in enumerate(self._names, JUDGED + 1):
            child = self._fork("runner", self._inputs_size)
            self._children.append(child)
            with self._trusted():
                self._peers.append(self._seated(child, number, name, None))

    def _fork(self, program: str, size: int) -> Child:
        """A process, on a CPU with new memory: none leaves a word there, or flags of a descriptor, to the next."""
        if not self._on_gpu:
            while len(self._memories) > 1:
                os.close(self._memories.pop())
            self._memories.append(os.memfd_create("normbwd-judge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
            os.ftruncate(self._memories[-1], size)
            fcntl(self._memories[-1], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)  # no page goes away
        return self._nursery.fork(program, self._memories[-1:])

    def _seated(self, child: Child, number: int, peer: str, file: Path | None) -> _Seat:
        """A runner that has loaded what it runs, and is stopped."""
        start = StartRunner(
            case=self.case,
            calls=self.calls,
            file=str(file.resolve()) if file else None,
            peer=peer,
            scratch=str(child.scratch),
            protected=[os.getpid(), *(each.pid for each in self._children)],
            without=list(self.settings.without),
        )
        entered = self._expect(child.ask(start, START_LIMIT_S, "start"), Entered, "start")
        hello = self._expect(child.answer(self.settings.time_limit_s, "start"), RunnerReady, "start")
        child.stop()
        child.settle()
        handle = hello.handle if self._on_gpu else f"/proc/{os.getpid()}/fd/{self._memories[-1]}"
        self._read_places(Attach(runner=number, handle=handle))
        return _Seat(child, number, hello.name, entered.layers, hello)

    def _prepare(self, seat: _Seat, seeds: list[int]) -> None:
        """Prepare what a stopped runner runs for inputs of these seeds; the next calls may compile."""
        self._queueing.discard(seat.number)
        self._ask_reference(Draw(runner=seat.number, seeds=seeds, fresh=False))
        seat.child.go_on()
        self._expect(seat.child.ask(Prepare(), self.settings.time_limit_s, "prepare"), Ready, "prepare")
        seat.child.stop()
        seat.child.settle()

    @contextmanager
    def _trusted(self) -> Generator[None]:
        """What fails here is not the judged file's fault, but for memory that it took."""
        try:
            yield
        except JudgedError as error:
            if error.status == "oom" and self._judging:
                raise
            words = "; ".join(last_line(child.scratch / "log") for child in self._children)
            raise UnavailableError(f"the judge's own process failed ({error.reason.fields}): {words}") from error

    def _ask_reference(self, request: JudgeMessage) -> Any:
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
        is_timed = status in ("right", "nondeterministic", "impossible", "inconclusive")
        is_timed &= reason != Reason("short_stretch")  # it would be a ratio of nothing to nothing
        is_timed &= status != "right" or reason is None
        speed = self._speed(found) if is_timed else None
        return CaseVerdict(
            case=self.case,
            key=self.case.key,
            status=status,  # pyright: ignore[reportArgumentType]
            reason=reason,
            deterministic=found.deterministic(),
            rho=found.rho,
            answers=Answers(**found.counts),
            speed=speed,
            layers=found.layers,
            seconds=round(time.monotonic() - begun_s, 2),
        )

    def _hear(self, file: Path, found: _Findings) -> None:
        """Let the file answer in one process after the other; the second gets some inputs of the first again."""
        seeds = self._seeds()
        for sitting in range(self.settings.sittings):
            if sitting:
                kept = self._rng.sample(range(self.calls), self.calls // 2)
                seeds = [seeds[call] if call in kept else fresh for call, fresh in enumerate(self._seeds())]
            self._prepare_peers(seeds)
            child = self._fork("runner", self._inputs_size)
            self._judging = True
            try:
                seat = self._seated(child, JUDGED, "", file)
                found.meet(seat)
                self._prepare(seat, seeds)
                found.verify_s = 0.0
                for _ in range(UNQUEUED_STRETCHES):  # the first compiles, and both are compared
                    self._stretch(seat, seeds, sitting, found)
                self._may_queue(seat)
                self._take_turns(seat, seeds, sitting, found)
                if self._on_gpu:
                    found.layers["queued"] = JUDGED in self._queueing
            finally:
                self._judging = False
                child.end()

    def _prepare_peers(self, seeds: list[int]) -> None:
        """Prepare the peers for the same inputs, in memory of their own; those that cannot are left out."""
        if self._prepared == seeds:
            return
        for seat in list(self._peers):
            try:
                self._prepare(seat, seeds)
            except JudgedError as error:
                if seat.impl == self._baseline or error.status not in ("unsupported", "missing"):
                    raise UnavailableError(f"{seat.impl} cannot be timed here: {sentence(error.reason)}") from error
                self._peers.remove(seat)
                continue
            with self._trusted():
                for _ in range(UNQUEUED_STRETCHES):
                    self._time_peer(seat)
                self._may_queue(seat)
                times_us = [self._time_peer(seat) for _ in range(QUIET_STRETCHES)]
            self._quiet_us.setdefault(seat.impl, min(times_us))
        self._prepared = list(seeds)

    def _may_queue(self, seat: _Seat) -> None:
        if seat.hello.queues:
            self._queueing.add(seat.number)

    def _take_turns(self, judged: _Seat, seeds: list[int], sitting: int, found: _Findings) -> None:
        """Time the judged file and its peers, a stretch each in random order, until there are enough turns."""
        settings, began_s = self.settings, time.monotonic()
        for turn in range(settings.most_turns):
            spent_s = time.monotonic() - began_s - found.verify_s
            if turn >= settings.least_turns and spent_s > settings.timing_s:
                break
            order = [judged, *self._peers, None]
            self._rng.shuffle(order)
            for seat in order:
                if seat is None:
                    self._stretch(judged, seeds, sitting, found, again=True)
                    continue
                us = self._stretch(judged, seeds, sitting, found) if seat is judged else self._time_peer(seat)
                found.stretches_us.setdefault(SUSPECT if seat is judged else seat.impl, []).append(us)

    def _time_peer(self, seat: _Seat) -> float:
        """One stretch of a trusted implementation, in microseconds; nothing else is at work."""
        self._draw(seat, self._seeds())
        with self._trusted():
            us, done = self._clocked(seat)
            if not self._on_gpu:
                self._read_answers(seat.child, done)  # where that is not allowed, it is nobody's fault
        return us

    def _stretch(self, judged: _Seat, seeds: list[int], sitting: int, found: _Findings, again: bool = False) -> float:
        """One stretch of the judged file, in microseconds; its answers are committed, and some of them compared.

        With `again` some calls get a draw for the second time, and the time does not count: it could be remembered.
        """
        drawn = self._seeds()
        if again:
            drawn = [
                self._rng.choice(earlier) | (ALMOST if self._rng.random() > REPEATED else 0) if earlier else fresh
                for earlier, fresh in zip([_earlier(found, seed, sitting) for seed in seeds], drawn, strict=True)
            ]
        self._draw(judged, drawn)
        us, done = self._clocked(judged)
        if not judged.child.channel.is_silent():
            raise JudgedError("tampered", Reason("bad_message", {"stage": "time"}))
        if not self._on_gpu:
            self._read_answers(judged.child, done)
        found.counts["given"] += self.calls
        compared = [call for call, seed in enumerate(drawn) if not again or seed >= ALMOST]
        which = [call for call in compared if self._rng.random() < VERIFIED]
        self._compare(which, done, list(zip(seeds, drawn, strict=True)), sitting, found)
        return us

    def _draw(self, seat: _Seat, seeds: list[int]) -> None:
        """Draw another dy and x for each call; on a GPU revealed when the clock runs, as no signal stops its queues."""
        if self._on_gpu:
            self._wait_for_calm()
        self._ask_reference(Draw(runner=seat.number, seeds=seeds, fresh=True, swaps=not seat.hello.saves))

    def _clocked(self, seat: _Seat) -> tuple[float, Answered]:
        """From the moment when a stopped process goes on until it says that it is done and is stopped again."""
        child = seat.child
        child.check_stood_still()
        go = Go(number=secrets.randbits(60), queued=seat.number in self._queueing)
        if go.queued and (timed := self._queued(seat, go)):
            return timed
        began = time.perf_counter_ns()
        if self._on_gpu:
            self._ask_reference(Reveal(runner=seat.number, word=go.word if go.queued else 0))
        if not go.queued:
            child.tell(go, "time")
            child.go_on()
        done = self._checked(child.answer(self.settings.time_limit_s, "time", stop=True), go)
        if self._on_gpu:  # what is still computed is awaited, or read too early
            self._read_places(Commit(runner=seat.number, answers=done.answers))
        ended = time.perf_counter_ns()
        child.settle()
        ended = ended if self._on_gpu else child.stopped_ns
        return (ended - began) / 1e3, done

    def _queued(self, seat: _Seat, go: Go) -> tuple[float, Answered] | None:
        """A stretch whose calls wait on the GPU, with their process stopped, until the reference reveals dy.

        By the reference's events: no time of the host is in it. None where a call waits for the GPU itself.
        """
        child = seat.child
        child.tell(go, "time")
        child.go_on()
        try:
            done = self._checked(child.answer(QUEUE_LIMIT_S, "time"), go)
        except JudgedError as error:
            if error.reason.code != "no_answer":
                raise
            self._queueing.remove(seat.number)
            return None
        child.stop()
        child.settle()
        timed = self._read_places(Reveal(runner=seat.number, word=go.word, answers=done.answers))
        self._read_places(Commit(runner=seat.number, answers=done.answers))
        return timed.figures["us"], done

    def _read_places(self, request: JudgeMessage) -> Ready:
        """Let the reference read memory that a runner named; if that ends the reference, it is the runner's fault."""
        try:
            ready: Ready = self._reference.ask(request, START_LIMIT_S, "reference")
        except JudgedError as error:
            if error.status == "oom":
                raise
            ready = Ready(title="died")
        if ready.title == LATE:
            raise JudgedError("timeout", Reason("no_answer", {"stage": "time", "seconds": STRETCH_LIMIT_S}))
        if ready.title:
            raise JudgedError("tampered", Reason("unreadable_answer"))
        return ready

    def _checked(self, done: Any, go: Go) -> Answered:
        """The answer to this request, and to no earlier one: for each call its gradients, each in memory of its own."""
        spans: list[tuple[str, int, int]] = []
        names = [[span.name for span in spans] for spans in self._answer_spans]
        self._expect(done, Answered, "time")
        if done.number != go.number or [[place.name for place in places] for places in done.answers] != names:
            raise JudgedError("tampered", Reason("bad_message", {"stage": "time"}))
        for call, places in enumerate(done.answers):
            for span, place in zip(self._answer_spans[call], places, strict=True):
                spans.append((place.handle, place.address, place.address + span.bytes_in(wide=place.wide)))
        spans.sort()
        for (handle, _, end), (other, begin, _) in pairwise(spans):
            if handle == other and begin < end:
                raise JudgedError("wrong", Reason("shared_answers"))
        return done

    def _read_answers(self, judged: Child, done: Answered) -> None:
        """Copy the answers out of the stopped process's memory."""
        with suppress(OSError, OverflowError), open(f"/proc/{judged.pid}/mem", "rb", buffering=0) as opened:
            for spans, places in zip(self._answer_spans, done.answers, strict=True):
                for span, place in zip(spans, places, strict=True):
                    size = span.bytes_in(wide=place.wide)
                    content = os.pread(opened.fileno(), size, place.address)
                    if len(content) != size:
                        raise OSError
                    os.pwrite(self._memories[0], content, span.offset)
            return
        raise JudgedError("tampered", Reason("unreadable_answer"))

    def _compare(
        self, which: list[int], done: Answered, draws: list[tuple[int, int]], sitting: int, found: _Findings
    ) -> None:
        """Compare these answers, or one at random, with float64, and all with earlier bits."""
        which = which or [self._rng.randrange(self.calls)]
        wide = [[place.name for place in places if place.wide] for places in done.answers]
        began_s = time.monotonic()
        checked: Compared = self._ask_reference(Compare(which=which, wide=wide, in_place=found.in_place))
        found.verify_s += time.monotonic() - began_s
        found.counts["verified"] += len(which)
        found.rho = {name: max(rho, found.rho.get(name, 0.0)) for name, rho in checked.rho.items()} or found.rho
        if checked.fault is not None:
            raise JudgedError("wrong", checked.fault)
        for draw, hashes in zip(draws, checked.hashes, strict=True):
            first_in, first = found.hashes.setdefault(draw, (sitting, hashes))
            if first is hashes:
                continue
            found.counts["repeated"] += 1
            if differing := {name for name in hashes if hashes[name] != first.get(name)}:
                found.counts["differing" if first_in == sitting else "differing_in_new_process"] += 1
                found.differing_in |= differing

    def _decide(self, found: _Findings) -> tuple[str, Reason | None]:
        speed = self._speed(found)
        is_short = speed.stretch_us < LEAST_OVERHEADS * speed.overhead_us
        us = speed.stretch_us / speed.calls if is_short else speed.us.high
        if us < speed.floor_us:
            fields = {"us": us, "least_us": speed.floor_us, "gbps": self._facts["gbps"]}
            return "impossible", Reason("impossible", fields)
        if found.counts["differing"]:
            of_all = found.counts["differing"] + found.counts["differing_in_new_process"]
            fields = {"differing": of_all, "repeats": found.counts["repeated"], "tensors": sorted(found.differing_in)}
            return "nondeterministic", Reason("runs_differ", fields)
        if found.saves:
            return "inconclusive", Reason("saves_of_x", {"what": found.saves})
        times = min(found.stretches_us[self._baseline]) / self._quiet_us[self._baseline]
        slower = Reason("peers_slower", {"times": times}) if times > SLOWED else None
        over = speed.speedups[self._baseline]
        wide = None if speed.is_conclusive else Reason("wide_interval", {"low": over.low, "high": over.high})
        why_not = slower or (Reason("short_stretch") if is_short else wide)
        # On a CPU nothing is ranked: a time that scatters takes nothing from what is right.
        return ("inconclusive" if why_not and self._on_gpu else "right"), why_not

    def _speed(self, found: _Findings) -> Any:
        figures = {name: self._facts[name] for name in ("floor_us", "traffic_us")}
        return speed_of(found.stretches_us, SUSPECT, NOTHING, calls=self.calls, baseline=self._baseline, **figures)

    def _wait_for_calm(self) -> None:
        """Wait until a known kernel takes as long as before the judged process was there."""
        for _ in range(CALM_TRIES):
            if self._ask_reference(Calm()).figures["us"] < CALM_FACTOR * self._calm_us:
                return
            time.sleep(0.05)
        raise JudgedError("tampered", Reason("left_device_busy"))

    def _expect(self, message: Any, kind: type[Any], stage: str) -> Any:
        if not isinstance(message, kind):
            raise JudgedError("tampered", Reason("bad_message", {"stage": stage}))
        return message

    def _seeds(self) -> list[int]:
        return [secrets.randbits(60) for _ in range(self.calls)]


def _earlier(found: _Findings, seed: int, sitting: int) -> list[int]:
    """The draws of dy that these inputs had before, those of another process if there are any."""
    first_in = {dy: first for (x, dy), (first, _) in found.hashes.items() if x == seed}
    return [dy for dy, first in first_in.items() if first != sitting] or list(first_in)
