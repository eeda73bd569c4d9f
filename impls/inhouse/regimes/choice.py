"""Which regime and launch a norm backward runs.

The choice depends on the shape, the dtypes and what the device has, never on its name, and nothing is measured: the
same case on the same device always runs the same programs, which is what makes the gradients reproducible.
"""

from __future__ import annotations

from ..launch import Launch
from ..problem import GpuLimits, Problem
from .few_rows import FewRows
from .one_pass import OnePass
from .shared import Shared
from .two_pass import TwoPass

REGIMES: tuple[type[Launch], ...] = (FewRows, OnePass, Shared, TwoPass)  # the first that serves a problem is chosen


def choose(problem: Problem, gpu: GpuLimits) -> Launch:
    """Choose the launch for a problem on such a device."""
    return _first(REGIMES, problem, gpu)


def neighbours(problem: Problem, gpu: GpuLimits, current: Launch) -> tuple[Launch, ...]:
    """The launches to measure, `current` first, each once; all others keep to the limits of kernels and device."""
    tried: list[Launch] = [*current.neighbours(problem, gpu)]
    if isinstance(current, FewRows):
        tried.insert(0, _first(REGIMES[1:], problem, gpu))  # as if rows were not few
    elif FewRows.may_pay(problem, gpu):
        tried.append(FewRows.choose(problem, gpu))
    return tuple(dict.fromkeys([current, *(launch for launch in tried if launch.violation(problem, gpu) is None)]))


def _first(regimes: tuple[type[Launch], ...], problem: Problem, gpu: GpuLimits) -> Launch:
    return next(regime.choose(problem, gpu) for regime in regimes if regime.serves(problem, gpu))
