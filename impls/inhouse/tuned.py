"""The file of tuned launches: what it holds, and which of its launches serves a problem.

`normbwd tune` writes it, and the launch choice reads the one that NORMBWD_LAUNCHES names. Importable without torch.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, InstanceOf, PlainSerializer, TypeAdapter, ValidationError

from .launch import Launch
from .problem import LAUNCHES, Dtype, Gpu, Norm, Problem
from .regimes.choice import REGIMES

SCHEMA_VERSION = 1
NEAR = 2  # times as many or as few rows, up to which the launch of a neighbour serves


def from_fields(given: Any) -> Launch:
    """The launch of `Launch.as_fields`; raises ValueError where the fields are of none."""
    if isinstance(given, Launch):
        return given
    if not isinstance(given, dict):
        raise ValueError("a launch has fields")
    values: dict[str, Any] = {**given}
    name = values.pop("regime", None)
    regime = next((regime for regime in REGIMES if regime.regime == name), None)
    if regime is None:
        raise ValueError(f"its regime is none of {', '.join(regime.regime for regime in REGIMES)}")
    known = {field.name for field in fields(regime)}
    if unknown := values.keys() - known:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return TypeAdapter(regime).validate_python(values)


def as_text(launch: Launch) -> str:
    """A launch on one line, for `from_text`."""
    return json.dumps(launch.as_fields())


def from_text(text: str) -> Launch:
    """The launch of such a line; raises ValueError where it is none."""
    return from_fields(json.loads(text))


LaunchFields = Annotated[InstanceOf[Launch], BeforeValidator(from_fields), PlainSerializer(Launch.as_fields)]


class _Strict(BaseModel):
    """Nothing unknown, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Speedup(_Strict):
    """How many times faster than the default, with its 95 % interval and in how many processes that was measured."""

    value: float
    low: float
    high: float
    processes: int


class TunedCase(_Strict):
    """What was found for one problem; without a launch no other was faster, and the default stays."""

    norm: Norm
    rows: int
    cols: int
    dtype: Dtype
    weight_dtype: Dtype | None = None
    bias: bool = False
    by_words: bool
    default_us: float | None = None
    best_us: float | None = None
    speedup: Speedup | None = None
    launch: LaunchFields | None = None

    @property
    def problem(self) -> Problem:
        """What it was found for."""
        return Problem(self.norm, self.rows, self.cols, self.dtype, self.weight_dtype, self.bias, self.by_words)


class LaunchFile(_Strict):
    """A file of tuned launches: on which device and with which software they were found, and when."""

    schema_version: Literal[1] = SCHEMA_VERSION
    device: str
    multiprocessors: int
    torch: str
    triton: str
    date: str
    revision: str | None = None
    cases: list[TunedCase]

    def nearest(self, problem: Problem) -> TunedCase | None:
        """The case of this problem, or else of the nearest number of rows, the smaller of two; None if none is near."""
        alike = [case for case in self.cases if replace(case.problem, rows=problem.rows) == problem]
        return min(
            (case for case in alike if _times(case.rows, problem.rows) <= NEAR),
            key=lambda case: (_times(case.rows, problem.rows), case.rows),
            default=None,
        )


@dataclass(frozen=True)
class TunedLaunch:
    """A launch for a problem, and the name of its file; `tuned_for` is the number of rows that it was measured at."""

    launch: Launch
    file: str
    tuned_for: int


@lru_cache
def read(path: str) -> LaunchFile:
    """Read a file once; raises ValueError with one line that says what is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"cannot read {path}: {why}; {LAUNCHES} names a file of `normbwd tune`") from error
    try:
        return LaunchFile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("schema_version",):
            what = f"is of schema {first['input']}, and this version reads {SCHEMA_VERSION}"
        else:
            where = ".".join(map(str, first["loc"])) or "the file"
            what = f"is no file of launches ({where}: {first['msg'].removeprefix('Value error, ')})"
        raise ValueError(f"{path} {what}; run `normbwd tune` again, or unset {LAUNCHES}") from error


def read_for(path: str, device: str, multiprocessors: int | None) -> LaunchFile:
    """Read the file of this device; raises ValueError as `read` does, and where it is another's."""
    file = read(path)
    if (file.device, file.multiprocessors) != (device, multiprocessors or file.multiprocessors):
        theirs, ours = f"{file.device} ({file.multiprocessors} multiprocessors)", device
        ours += f" ({multiprocessors} multiprocessors)" if multiprocessors else ""
        raise ValueError(f"{path} is of {theirs}, and this is {ours}; run `normbwd tune` here, or unset {LAUNCHES}")
    return file


@lru_cache(maxsize=4096)
def find(path: str, device: str, problem: Problem, gpu: Gpu) -> TunedLaunch | None:
    """What the file has for this problem, its programs dealt out anew where the rows differ; None where nothing.

    Raises ValueError as `read_for` does, and for a launch that must not run here.
    """
    case = read_for(path, device, gpu.multiprocessors).nearest(problem)
    if case is None or case.launch is None:
        return None
    launch = case.launch if case.rows == problem.rows else case.launch.dealt(problem.rows, gpu)
    if why := launch.flaw(problem, gpu):
        key = f"{problem.norm} {problem.rows} x {problem.cols}"
        raise ValueError(f"{path} has a launch for {key} that must not run: {why}; run `normbwd tune` again")
    return TunedLaunch(launch, Path(path).name, case.rows)


def launch_for(path: str, device: str, problem: Problem, gpu: Gpu) -> Launch | None:
    """The tuned launch for this problem, or None; raises ValueError as `find` does."""
    tuned = find(path, device, problem, gpu)
    return tuned.launch if tuned else None


def _times(one: int, other: int) -> float:
    if not one or not other:
        return 1.0 if one == other else math.inf
    return max(one, other) / min(one, other)
