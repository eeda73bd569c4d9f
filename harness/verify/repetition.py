"""A backward run repeatedly, plainly and under conditions that must not change its bits."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from harness.cases import Grads, Inputs
from harness.cases.guards import each_place_once
from harness.devices.capture import CaptureError, capture
from harness.devices.holder import Holder
from harness.errors import UnavailableError
from harness.records.contexts import HOLDER, parse_holder
from harness.records.reasons import REMEMBERS, Reason
from harness.records.schema import Condition, ConditionCheck
from harness.verify import precision
from harness.verify.determinism import cloned, differing, fingerprint
from harness.verify.robustness import Pristine, harm, make_ready

HOLD_CYCLES = 1_000_000  # half a millisecond: time for work that does not wait its turn to go wrong
NEW_DY = -0.5  # times the old dy: a power of two, which rounds nothing, so that gradients are multiples as well
REMEMBERED = 0.01  # relative rms: an answer to the old dy is off by 3, and by 0.03 where one row in 8192 is
HOLDER_PROGRAMS = (8, 32)  # multiprocessors, in turn, as an all-reduce takes them
HOLDER_US = 100_000.0  # longer than any backward takes on what is left
BUSY_SIZE = 4096  # rows and columns of the product that keeps the multiprocessors busy: 0.2 ms of all of them


@dataclass
class Repetition:
    """The repeats of one backward on one set of inputs, each compared with `first` bit by bit.

    `prepare` makes the backward once more, on the stream that is current: it has to be that of a capture, because
    autograd runs a backward on the stream of its forward.
    `fault` is what a later call returned that is no gradient, or changed that is not its own; `stale` names gradients
    that did not follow new contents of dy; `waits` is set where the backward did not end while a competing kernel ran.
    """

    inputs: Inputs
    pristine: Pristine
    backward: Callable[[], Grads]
    first: Grads
    prepare: Callable[[], Callable[[], Grads]] | None = None
    in_place: bool = False
    repeats: int = 1
    differences: list[list[str]] = field(default_factory=list[list[str]])
    conditions: list[ConditionCheck] = field(default_factory=list[ConditionCheck])
    fault: Reason | None = None
    stale: Reason | None = None
    waits: Reason | None = None

    def make_ready(self) -> None:
        """Restore the inputs and poison the memory that outputs will get."""
        make_ready(self.inputs, self.pristine)

    def plain(self, runs: int) -> None:
        """Run again with nothing changed."""
        for _ in range(runs):
            self.make_ready()
            self._compare(self.backward())

    def under_conditions(self, repeats: int) -> None:
        """Spend a share of `repeats` on each condition that this device offers, and what they leave on plain runs."""
        shares: dict[Condition, tuple[float, Callable[[int], None]]] = {
            "busy device": (1 / 2, self._busy),
            "shuffled allocator": (1 / 6, self._shuffled),
            "side stream": (1 / 12, self._on_side_stream),
            "graph replay": (1 / 12, self._replayed),
            "held multiprocessors": (1 / 12, self._with_competing_kernel),
        }
        for condition, (share, run_under) in shares.items():
            if self.inputs.case.device != "cpu" or condition == "shuffled allocator":
                self._try(condition, run_under, max(1, round(share * repeats)))
        self.plain(max(1, repeats - self.repeats))

    @property
    def differing_in(self) -> list[str]:
        """The gradients that ever differed."""
        return sorted({name for names in self.differences for name in names})

    def _compare(self, grads: Grads) -> None:
        self.repeats += 1
        fault = precision.malformed(self.inputs, grads) or harm(self.pristine, self.inputs, grads, self.in_place)
        if fault:
            self.fault = self.fault or fault
        elif names := differing(self.first, grads):
            self.differences.append(names)

    def _try(self, condition: Condition, run_under: Callable[[int], None], runs: int) -> None:
        before, already = self.repeats, len(self.differences)
        skipped = None
        try:
            run_under(runs)
        except (CaptureError, UnavailableError) as refusal:
            skipped = Reason("refused", {"text": str(refusal)})
        new = self.differences[already:]
        names = sorted({name for names in new for name in names})
        self.conditions.append(
            ConditionCheck(
                condition=condition, runs=self.repeats - before, differing=len(new), differing_in=names, skipped=skipped
            )
        )

    def _busy(self, runs: int) -> None:
        """Beside a kernel on another stream that takes multiprocessors away, in no fixed order."""
        stream = torch.cuda.Stream()
        factor = torch.ones(BUSY_SIZE, BUSY_SIZE, dtype=torch.bfloat16, device="cuda")
        product = torch.empty_like(factor)
        torch.cuda.synchronize()
        for _ in range(runs):
            self.make_ready()
            with torch.cuda.stream(stream):
                torch.mm(factor, factor, out=product)
            self._compare(self.backward())
        torch.cuda.synchronize()

    def _shuffled(self, runs: int) -> None:
        """With blocks of many sizes taken and given back at random, so that addresses differ, and all of them NaN."""
        rng = random.Random(0)
        largest = max(self.inputs.x.numel() * self.inputs.x.element_size(), 4096)
        for run in range(runs):
            self.pristine.restore(self.inputs)
            sizes = [rng.randrange(16, largest) for _ in range(8)]
            blocks = [torch.full((size,), 0xFF, dtype=torch.uint8, device=self.inputs.x.device) for size in sizes]
            rng.shuffle(blocks)
            del blocks[: rng.randrange(1, 8)]
            self._compare(self.backward())
            if run % 8 == 7 and self.inputs.x.is_cuda:
                torch.cuda.empty_cache()  # so that blocks are split anew

    def _on_side_stream(self, runs: int) -> None:
        """On a stream of its own, where dy arrives late: work that does not wait for its stream meets NaN."""
        stream = torch.cuda.Stream()
        dy = self.inputs.dy
        for _ in range(runs):
            self.make_ready()
            each_place_once(dy.data).fill_(torch.nan)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(HOLD_CYCLES)  # pyright: ignore[reportPrivateUsage]
                self.pristine.restore(self.inputs)
                at_once = cloned(self.backward())  # queued behind it: what is written later is not seen
            torch.cuda.synchronize()
            self._compare(at_once)

    def _with_competing_kernel(self, runs: int) -> None:
        """While another kernel holds multiprocessors: what starts only when all are free does not end in time."""
        holder = Holder(*parse_holder(HOLDER))
        most = holder.multiprocessors - 1
        for run in range(runs):
            programs = min(HOLDER_PROGRAMS[run % len(HOLDER_PROGRAMS)], most)
            self.make_ready()
            holder.occupy(programs, HOLDER_US)
            if not holder.started():
                raise UnavailableError("the kernel that holds multiprocessors did not start")
            grads, ended = self.backward(), torch.cuda.Event()
            ended.record()
            ended.synchronize()  # the holder ends by itself, and then whatever waits for it
            state = holder.state()
            holder.release()
            if state != "running":
                fields = {"seconds": HOLDER_US / 1e6, "programs": programs, "of": holder.multiprocessors}
                self.waits = Reason("waits_for_held", fields)
                return
            self._compare(grads)

    def _replayed(self, runs: int) -> None:
        """Captured in a CUDA graph: what the graph does not hold does not happen again."""
        self.make_ready()
        captured = capture(self.prepare or (lambda: self.backward))
        outputs = captured.answer
        for _ in range(runs):
            self.make_ready()
            spoil(self.inputs, outputs)
            captured.replay()
            self._compare(outputs)
        renewed = _with_new_dy(self.inputs, self.pristine)
        spoil(self.inputs, outputs)
        captured.replay()
        self.stale = stale(renewed, outputs, in_replay=True)
        self.pristine.restore(self.inputs)
        del outputs, captured
        gc.collect()


def stale(inputs: Inputs, grads: Grads, in_replay: bool = False) -> Reason | None:
    """Say which gradients do not follow the dy that is in `inputs` now: they were remembered."""
    checks = precision.check(inputs, grads)
    names = [
        name
        for name, check in checks.items()
        if check.error_class == "wrong" and check.relative_rms > REMEMBERED  # what is a little off is judged elsewhere
    ]
    if not names:
        return None
    return Reason("remembered_in_replay" if in_replay else REMEMBERS, {"tensors": names})


def with_new_dy(
    inputs: Inputs, pristine: Pristine, backward: Callable[[], Grads], verified: str | None = None
) -> Reason | None:
    """Rewrite dy at its address, run, put it back, and say what did not follow.

    What still gives the bits whose fingerprint was `verified`, and for the new dy their multiple, needs no reference.
    """
    pristine.restore(inputs)
    before = backward() if verified else None
    is_verified = before is not None and fingerprint(before) == verified
    renewed = _with_new_dy(inputs, pristine)
    answer = backward()
    follows = is_verified and before is not None and _is_multiple(answer, before)
    not_followed = None if follows else stale(renewed, answer)
    pristine.restore(inputs)
    return not_followed


def _is_multiple(answer: Grads, before: Grads) -> bool:
    """Whether every gradient is what dy was multiplied by times what it was; NaN is no multiple of itself."""
    now = answer.tensors()
    return all(name in now and torch.equal(now[name], was * NEW_DY) for name, was in before.tensors().items())


def _with_new_dy(inputs: Inputs, pristine: Pristine) -> Inputs:
    """Restore the inputs and rewrite the gradients of outputs where they lie; the inputs with these in other memory."""
    pristine.restore(inputs)
    new = {name: gradient * NEW_DY for name, gradient in pristine.output_gradients(inputs).items()}
    for name, gradient in new.items():
        target = each_place_once(inputs.tensors()[name].data)  # unseen by autograd
        target.copy_(gradient[tuple(slice(size) for size in target.shape)])
    return inputs.with_tensors(new)


def spoil(inputs: Inputs, outputs: Grads) -> None:
    """Fill the outputs with NaN, but not one that lies in dy, where that is declared."""
    for tensor in outputs.tensors().values():
        if tensor.data_ptr() != inputs.dy.data_ptr():
            tensor.fill_(torch.nan)
