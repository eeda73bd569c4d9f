"""Launches of the in-house kernel beside the one it chooses, each an implementation: what `normbwd tune` measures.

An adapter like any other, but given to a run by its path: nobody else wants it in a comparison. `launch-07` is the
seventh neighbour of a case's own choice; a case with fewer does without. The row's notes hold the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.cases import Grads, Inputs, NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.errors import UnsupportedError
from impls import triton_inhouse

if TYPE_CHECKING:
    from impls.inhouse.launch import Launch

MOST = 48  # neighbours that a case has
NOTE = "launch: "  # what a note begins with that holds one

name = "triton-inhouse-launches"
requires = triton_inhouse.requires
compiles_ahead = True
variants = {f"launch-{number:02d}": number for number in range(1, MOST + 1)}


def unsupported(case: NormCase, number: int) -> str | None:
    """Say why this case cannot run, or that it has no such neighbour; None."""
    if reason := triton_inhouse.unsupported(case):
        return reason
    if INPUT_KINDS[case.inputs].layout != "contiguous":
        return "launches are tuned for contiguous rows"
    return None if case.rows and number < len(_launches(case)) else "no such neighbour"


def untimed(case: NormCase, _: int) -> str | None:
    """Say why this case must not be timed, or None."""
    return triton_inhouse.untimed(case)


def notes(case: NormCase, number: int) -> list[str]:
    """The launch."""
    from impls.inhouse.tuned import as_text

    return [NOTE + as_text(_launches(case)[number])]


def prepare(inputs: Inputs, number: int) -> Callable[[], Grads]:
    """Run once, to see what it spills: no launch that spills more than the current choice is one, whatever its time."""
    if reason := unsupported(inputs.case, number):  # of a case that a check derives from the one asked for
        raise UnsupportedError(reason)
    launches = _launches(inputs.case)
    backward = triton_inhouse.launching(inputs, launches[number])
    if spilled := _spilled(backward):
        own = _spilled(triton_inhouse.launching(inputs, launches[0]))
        if spilled > own:
            raise UnsupportedError(f"spills {spilled} registers" + (f", the current choice {own}" if own else ""))
    return backward


def _spilled(backward: Callable[..., Grads]) -> int:
    """Registers a thread that the kernels of a launch keep in memory; what Triton interprets has none."""
    kernels: list[Any] = []
    backward(kernels)
    return max((kernel.n_spills for kernel in kernels if kernel is not None), default=0)


@lru_cache
def _launches(case: NormCase) -> tuple[Launch, ...]:
    """The launch chosen for a case, and its neighbours on the device here."""
    from impls.inhouse.device import gpu_of
    from impls.inhouse.regimes.choice import choose, neighbours

    problem, gpu = triton_inhouse.problem_of(case), gpu_of(triton_inhouse.torch_device(case))
    return neighbours(problem, gpu, choose(problem, gpu))
