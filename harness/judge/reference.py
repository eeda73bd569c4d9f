"""The program that draws inputs and knows the right answers; no implementation is imported here.

It keeps its own copy of what it draws, and reads of a runner's memory only the answers, after they were committed.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.cases import Grads, Inputs, NormCase, make_inputs, torch_dtype
from harness.cases.tensors import OUTPUT_GRADIENTS, inputs_of
from harness.cases.traffic import moved_bytes, shortest_possible_us
from harness.devices.facts import read_facts
from harness.devices.profiles import detect
from harness.judge import memory
from harness.judge.messages import (
    ALMOST,
    LATE,
    STRETCH_LIMIT_S,
    Attach,
    Calm,
    Commit,
    Compare,
    Compared,
    Draw,
    Failed,
    JudgeMessage,
    Open,
    Ready,
    Reveal,
    serve,
)
from harness.records.reasons import Reason, raised
from harness.verify import precision
from harness.verify.determinism import fingerprint, same_bits
from harness.verify.reference import pieces
from harness.worker.channel import Channel

_CHANCE = secrets.SystemRandom()  # a fork of this process may know the state of any other
KINDS = "normal", "normal", "outliers"  # a third of the calls has numbers that are not usual
ENDLESS = 1e9  # rho of what is not finite
CELLS = 256  # answers that chance may not make wrong together
RATE_BYTES = 1 << 26
GENEROUS = 4.0  # a CPU's rate of reading may be so many times what one large read shows: part may lie in its cache
FLUSH_BYTES = 1 << 26  # on a CPU; on a GPU by the profile
HOLD_CYCLES = 6_000_000  # of a GPU's clock: until all that is timed is queued here
SWAPPED_BYTES = 32  # what a GPU reads at least: to see whether these have changed is to read them
SAMPLED_ROWS = 64  # of each answer, read before the clock stops
CALM_BYTES, CALM_FILLS = 1 << 29, 16  # some milliseconds, longer than a GPU gives one process at a time


class Reference:
    """One case: the inputs of each runner as they were drawn, and the answers of the last stretch."""

    def __init__(self, memories: Sequence[int]) -> None:
        self._memories = memories

    def open(self, request: Open) -> JudgeMessage:
        """Map the memory of the runners, and read how fast this device's memory is."""
        self.case: NormCase = request.case
        self._on_gpu = self.case.device != "cpu"
        self._spans, self._size = memory.layout(self.case, request.calls, "input", "statistic")
        self._answer_spans, answer_size = memory.layout(self.case, request.calls, "gradient")
        self._slots: dict[int, Any] = {}
        self._gates: dict[int, int] = {}
        self._samples: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        if self._on_gpu:
            self._answers = torch.empty(answer_size, dtype=torch.uint8, device="cuda")
            self._side = torch.cuda.Stream()
        else:
            self._answers = memory.host_block(self._memories[0], answer_size)
        self._drawn: dict[int, list[Inputs]] = {}
        self._swaps: dict[int, list[Swap]] = {}
        return self._read_device()

    def attach(self, request: Attach) -> JudgeMessage:
        """Open a runner's memory, on a CPU by its path."""
        if self._on_gpu:
            torch.cuda.synchronize()
            memory.forget(request.runner)
            block = memory.device_block(request.runner, request.handle, 0, self._size + memory.GATE_BYTES)
            self._gates[request.runner] = block.data_ptr() + self._size
        else:
            with open(request.handle, "r+b", buffering=0) as opened:
                block = memory.host_block(opened.fileno(), self._size)
        self._slots[request.runner] = [memory.views(block, spans) for spans in self._spans]
        return Ready()

    def draw(self, request: Draw) -> JudgeMessage:
        """Draw inputs, or of those only what is `fresh`, write them for a runner, and empty the caches."""
        kept = self._drawn.setdefault(request.runner, [])
        if not request.fresh:
            cases = [replace(self.case, inputs=kind) for kind in KINDS]
            kept[:] = [make_inputs(cases[call % len(cases)], seed) for call, seed in enumerate(request.seeds)]
            names = [span.name for span in self._spans[0]]
            self._swaps[request.runner] = [Swap() for _ in kept]
        else:
            names = [name for name in OUTPUT_GRADIENTS if name in kept[0].tensors()]
            for call, seed in enumerate(request.seeds):
                generator = torch.Generator(self.case.device).manual_seed(seed % ALMOST)
                noise = {name: self._noise(generator) for name in names}
                if seed >= ALMOST:  # what is remembered of it by a few numbers is wrong
                    noise["dy"][seed % self.case.rows].neg_()
                kept[call] = kept[call].with_tensors(noise)
                if request.swaps:
                    self._swaps[request.runner][call].draw(kept[call].x, generator)
        if self._on_gpu:
            self._answers.fill_(255)  # NaN, where no answer comes
        if not (request.fresh and self._on_gpu):
            self._hand_over(request.runner, names)
        self._empty_caches()
        return Ready()

    def reveal(self, request: Reveal) -> JudgeMessage:
        """Hand the last draw of dy to its runner and open its gate; time what is queued behind that."""
        sources = self._sources(request)
        at = {2: [_CHANCE.randrange(self.case.rows) for _ in range(SAMPLED_ROWS)], 1: list(range(self.case.cols))}
        rows = {dimensions: torch.tensor(each, device=self.case.device) for dimensions, each in at.items()}
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        gate = self._gates[request.runner]
        if sources:
            _CHANCE.shuffle(sources)
            self._empty_caches()
            torch.cuda._sleep(HOLD_CYCLES)  # pyright: ignore[reportPrivateUsage]
        begin.record()
        self._hand_over(request.runner, OUTPUT_GRADIENTS)
        if request.word:
            memory.write(gate, request.word)
        if sources:
            memory.wait_for(gate + memory.WORD_BYTES, request.word)
        self._samples = [
            (answer, rows[source.dim()], source.index_select(0, rows[source.dim()])) for answer, source in sources
        ]
        end.record()
        ends_s = time.monotonic() + STRETCH_LIMIT_S
        while not end.query():
            if time.monotonic() > ends_s:
                with torch.cuda.stream(self._side):
                    memory.write(gate + memory.WORD_BYTES, request.word)
                return Ready(title=LATE)
            time.sleep(0.0002)
        return Ready(figures={"us": begin.elapsed_time(end) * 1e3})

    def _hand_over(self, runner: int, names: Sequence[str]) -> None:
        """By kernels: beside a copy engine a runner's kernels could begin before the rest of dy is there."""
        of_runner = self._slots[runner], self._drawn[runner], self._swaps[runner]
        for slots, inputs, swap in zip(*of_runner, strict=True):
            for name in (name for name in names if name in slots):
                torch.bitwise_or(_as_integers(inputs.tensors()[name]), 0, out=_as_integers(slots[name]))
            swap.hand_over(slots["x"])

    def _sources(self, request: Reveal | Commit) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Where each answer is to be kept, and where it lies in its runner; raises for a place that is none."""
        found: list[tuple[torch.Tensor, torch.Tensor]] = []
        for call, places in enumerate(request.answers):
            by_name = {place.name: place for place in places}
            for span in self._answer_spans[call]:
                place = by_name[span.name]
                size = span.bytes_in(wide=place.wide)
                source = memory.device_block(request.runner, place.handle, place.address, size)
                answer = self._answer(span, wide=place.wide)
                if source.data_ptr() % answer.itemsize:  # a kernel that reads there would end this process's context
                    raise ValueError("not aligned")
                found.append((answer, source.view(answer.dtype).view(answer.shape)))
        return found

    def commit(self, request: Commit) -> JudgeMessage:
        """Copy the answers of a stretch on a GPU, and put in what was read before the clock stopped."""
        for answer, source in self._sources(request):
            answer.copy_(source)
        for answer, rows, early in self._samples:
            answer.index_copy_(0, rows, early)
        self._samples = []
        torch.cuda.synchronize()
        return Ready()

    def check(self, request: Compare) -> JudgeMessage:
        """Hash all answers, and compare those that are asked for with float64; the inputs must be as they were."""
        answers = [
            Grads.of({span.name: self._answer(span, wide=span.name in wide) for span in spans})
            for spans, wide in zip(self._answer_spans, map(set, request.wide), strict=False)
        ]
        hashes = [{name: _hash(tensor) for name, tensor in answer.tensors().items()} for answer in answers]
        rho: dict[str, float] = {}
        fault = self._changed_input(request.in_place)
        for call in request.which:
            if fault is not None:
                break
            checks = precision.check(self._drawn[0][call], answers[call], CELLS)
            if fault := precision.fault(checks):
                inputs, off = self._drawn[0][call], {str(part.fields["tensor"]) for part in fault.parts}
                before = replace(inputs, x=self._swaps[0][call].undone(inputs.x))
                of_before = precision.check(before, answers[call], CELLS)
                if precision.fault({name: check for name, check in of_before.items() if name in off}):
                    fault = Reason(fault.code, parts=[*fault.parts, *_worst(inputs, answers[call], fault)])
                else:
                    fault = Reason("of_x_before")
            for name, check in checks.items():
                rho[name] = max(rho.get(name, 0.0), min(check.rho, ENDLESS))
        return Compared(fault=fault, rho=rho, hashes=hashes)

    def calm(self, _request: Calm) -> JudgeMessage:
        """The microseconds that a known kernel takes on the GPU now."""
        if not hasattr(self, "_work"):
            self._work = torch.empty(CALM_BYTES, dtype=torch.uint8, device="cuda")
        return Ready(figures={"us": self._timed(lambda: [self._work.fill_(1) for _ in range(CALM_FILLS)], 0)})

    def _noise(self, generator: torch.Generator) -> torch.Tensor:
        shape, dtype = (self.case.rows, self.case.cols), torch_dtype(self.case.dtype)
        return torch.randn(shape, dtype=dtype, device=self.case.device, generator=generator)

    def _empty_caches(self) -> None:
        if not hasattr(self, "_flush"):
            self._flush = torch.ones(self._flush_bytes // 4, device=self.case.device)
        self._flush.fill_(1.0)
        self._flush.sum()
        if self._on_gpu:
            memory.reset_persisting_lines()
            torch.cuda.synchronize()

    def _changed_input(self, in_place: bool) -> Reason | None:
        written = [each.name for each in inputs_of(self.case) if not (in_place and each.name in OUTPUT_GRADIENTS)]
        for call, inputs in enumerate(self._drawn[0]):
            for name in written:
                if not same_bits(inputs.tensors()[name], self._slots[0][call][name]):
                    return Reason("changed_input", {"tensors": [name]})
        return None

    def _answer(self, span: memory.Span, *, wide: bool) -> torch.Tensor:
        dtype = torch.float32 if wide else torch_dtype(span.dtype)
        return self._answers[span.offset : span.offset + span.bytes_in(wide=wide)].view(dtype).view(span.shape)

    def _read_device(self) -> Ready:
        """The device's name, the time that no backward can beat, and the time that its traffic takes at that rate."""
        facts = read_facts("cuda" if self._on_gpu else "cpu")
        profile = detect(facts)
        self._flush_bytes = max(FLUSH_BYTES, 4 * profile.last_level_bytes) if self._on_gpu else FLUSH_BYTES
        gbps = profile.datasheet_gbps
        generous = 1.0
        if gbps is None:
            block = torch.ones(RATE_BYTES // 4, device=self.case.device)
            gbps = RATE_BYTES / self._timed(block.sum, 10) / 1e3 * len(os.sched_getaffinity(0))
            generous = GENEROUS
        floor_us = shortest_possible_us(self.case, gbps * generous)
        figures = {"gbps": gbps, "floor_us": floor_us, "traffic_us": moved_bytes(self.case) / gbps / 1e3}
        return Ready(figures=figures, title=facts.name[:200])

    def _timed(self, work: Callable[[], object], repeats: int) -> float:
        """The shortest time of several runs, in microseconds, by this process's own clock."""
        times_us: list[float] = []
        for _ in range(repeats + 1):
            begun = time.perf_counter_ns()
            work()
            if self._on_gpu:
                torch.cuda.synchronize()
            times_us.append((time.perf_counter_ns() - begun) / 1e3)
        return min(times_us)


def _worst(inputs: Inputs, answers: Grads, fault: Reason) -> Iterator[Reason]:
    """Of each gradient that is off, the element that is furthest from the reference."""
    exact = [piece.gradients for piece in pieces(inputs)]
    for name in (str(part.fields["tensor"]) for part in fault.parts):
        given, values = answers.tensors()[name].double(), [gradients[name].values for gradients in exact]
        right = torch.cat(values) if given.dim() == 2 else torch.stack(values).sum(0)
        at = tuple(map(int, torch.unravel_index((given - right).abs().nan_to_num(math.inf).argmax(), right.shape)))
        fields = {"tensor": name, "at": list(at), "given": float(given[at]), "right": float(right[at])}
        yield Reason("worst_element", fields)


class Swap:
    """Two short parts of each row of x that change places, so that mean and rstd stay and all else of x is new."""

    def __init__(self) -> None:
        self._places: list[torch.Tensor] = []
        self._written: tuple[torch.Tensor, torch.Tensor] | None = None

    def draw(self, x: torch.Tensor, generator: torch.Generator) -> None:
        """Undo the last swap of these rows, and swap others."""
        rows, (parts, count) = len(x), _in_parts(x)
        if count < 2:
            return
        first, other = (torch.randint(low, count, (rows,), device=x.device, generator=generator) for low in (0, 1))
        of_row = torch.arange(rows, device=x.device) * count
        places = torch.stack((of_row + first, of_row + (first + other) % count))
        for pair in (swaps := [*self._places[-1:], places]):
            parts[pair] = parts[pair.flip(0)]
        changed = torch.cat(swaps).flatten()
        self._places, self._written = swaps, (changed, parts[changed])

    def undone(self, x: torch.Tensor) -> torch.Tensor:
        """These rows before the last swap."""
        parts, _ = _in_parts(before := x.clone())
        for pair in self._places[-1:]:
            parts[pair] = parts[pair.flip(0)]
        return before

    def hand_over(self, x: torch.Tensor) -> None:
        """Write what the last draw changed, if there is any, into a runner's x."""
        if self._written is not None:
            _in_parts(x)[0].index_copy_(0, *self._written)


def _in_parts(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The parts of x, of SWAPPED_BYTES or else of an element, and how many of them a row has."""
    size = SWAPPED_BYTES // x.itemsize
    size = size if x.shape[1] % size == 0 and x.shape[1] > size else 1
    return x.view(-1, size), x.shape[1] // size


def _as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits, so that no NaN or -0.0 changes."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.itemsize])


def _hash(tensor: torch.Tensor) -> str:
    """A hash of all bits."""
    if tensor.is_cuda:
        return fingerprint(Grads.of({"dx": tensor}))
    return hashlib.blake2b(tensor.view(torch.uint8).numpy().data, digest_size=16).hexdigest()


def run(channel: Channel[Any], memories: Sequence[int]) -> None:
    """Serve the parent; on a CPU there is one memory, of the answers."""
    torch.set_num_threads(1)
    reference = Reference(memories)
    answers = {Open: reference.open, Attach: reference.attach, Draw: reference.draw, Reveal: reference.reveal}
    answers |= {Commit: reference.commit, Compare: reference.check, Calm: reference.calm}
    with torch.no_grad():
        serve(channel, {kind: _guarded(answer) for kind, answer in answers.items()})


def _guarded(answer: Callable[[Any], JudgeMessage]) -> Callable[[Any], JudgeMessage]:
    """Errors that a runner can cause, by what it leaves of the memory or says of its own, as answers."""

    def answered(request: Any) -> JudgeMessage:
        try:
            return answer(request)
        except torch.OutOfMemoryError as error:
            return Failed(status="oom", reason=raised(error))
        except (ValueError, RuntimeError, KeyError) as error:
            if not isinstance(request, Attach | Reveal | Commit):
                raise
            return Ready(title=str(error)[:200] or "unreadable")

    return answered
