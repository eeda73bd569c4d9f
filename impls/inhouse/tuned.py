"""The launches of a tuned file, for `norm_backward`: NORMBWD_LAUNCHES names one that `normbwd tune` wrote.

Importable without torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.cases.tuned import TunedCase, TunedFile, read_tuned

from .launch import Launch
from .problem import LAUNCHES, GpuLimits, Problem, problem_of
from .regimes.choice import REGIMES

IMPLEMENTATION = "triton-inhouse"  # whose cases of the file are launches
NEAR = 2  # times as many or as few rows, up to which the launch of another case serves


def from_fields(given: Mapping[str, Any]) -> Launch:
    """The launch of `Launch.as_fields`; raises ValueError, in one line, where the fields are of none."""
    values = dict(given)
    name = values.pop("regime", None)
    regime = next((regime for regime in REGIMES if regime.regime == name), None)
    if regime is None:
        raise ValueError(f"its regime is none of {', '.join(regime.regime for regime in REGIMES)}")
    known = {field.name for field in fields(regime)}
    if unknown := values.keys() - known:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    try:
        return TypeAdapter(regime).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


@dataclass(frozen=True)
class TunedLaunch:
    """A launch for a problem, and the name of its file; `tuned_for` is the number of rows that it was measured at."""

    launch: Launch
    file: str
    tuned_for: int


def read_for(path: str, device: str, multiprocessors: int | None) -> TunedFile:
    """Read the file of this device; raises ValueError, in one line, for one that is unreadable or another device's."""
    try:
        file = read_tuned(path)
    except ValueError as error:
        raise ValueError(f"{error}, or unset {LAUNCHES}") from error
    if other := file.other_device(device, multiprocessors):
        raise ValueError(f"{path} {other}, or unset {LAUNCHES}")
    return file


@lru_cache(maxsize=4096)
def find(path: str, device: str, problem: Problem, gpu: GpuLimits) -> TunedLaunch | None:
    """The launch of the nearest case, resized where its rows differ; None where the default stays.

    Raises ValueError as `read_for` does, and for a launch that must not run here.
    """
    case = _nearest(read_for(path, device, gpu.multiprocessors), problem)
    if case is None or case.config_name is None:
        return None
    key, rows = f"{problem.norm} {problem.rows} x {problem.cols}", case.case.rows
    try:
        if not isinstance(case.config, dict):
            raise ValueError("a launch has fields")
        launch = from_fields(case.config)
    except ValueError as error:
        raise ValueError(f"{path} has no launch for {key}: {error}; run `normbwd tune` again") from error
    launch = launch if rows == problem.rows else launch.resized_for(problem, gpu)
    if violation := launch.violation(problem, gpu):
        raise ValueError(f"{path} has a launch for {key} that must not run: {violation}; run `normbwd tune` again")
    return TunedLaunch(launch, Path(path).name, rows)


def _nearest(file: TunedFile, problem: Problem) -> TunedCase | None:
    """The case of this problem, or else of the nearest number of rows, the smaller of two; None if none is near."""
    alike = [
        case for case in file.measured(IMPLEMENTATION) if replace(problem_of(case.case), rows=problem.rows) == problem
    ]
    return min(
        (case for case in alike if _times(case.case.rows, problem.rows) <= NEAR),
        key=lambda case: (_times(case.case.rows, problem.rows), case.case.rows),
        default=None,
    )


def _times(one: int, other: int) -> float:
    if not one or not other:
        return 1.0 if one == other else math.inf
    return max(one, other) / min(one, other)
