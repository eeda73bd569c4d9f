"""What the parent and its worker say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.cases import NormCase
from harness.devices import DeviceFacts
from harness.results import Flush, ImplRecord, RowRecord
from harness.revisions import Side

Stage = Literal["start", "inputs", "prepare", "verify", "time", "break down"]


@dataclass(frozen=True)
class Asked:
    """How every case of a run is to be tried; sent once, when a worker starts.

    `sides` are revisions of an adapter to compare; `repeats` is for bitwise comparisons; `min_blocks`, `max_blocks`,
    `half_width`, `budget_s` are the stopping rule's.
    """

    device: Literal["auto", "gpu", "cpu"] = "auto"
    impl_files: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()
    seed: int = 0
    flush: Flush = "clean"
    flush_bytes: int = 0
    baseline: str = "torch-eager"
    timed: bool = True
    repeats: int = 2
    min_blocks: int = 10
    max_blocks: int = 20
    half_width: float = 0.005
    budget_s: float = 10.0


@dataclass(frozen=True)
class Try:
    """To the worker: try this case on these implementations; `group` marks rows that were interleaved."""

    case: NormCase
    impls: tuple[str, ...]
    group: str
    asked: Asked


@dataclass(frozen=True)
class Warm:
    """To a worker that compiles ahead: prepare and call once, so that what is compiled lies in the caches on disk."""

    case: NormCase
    impl: str
    asked: Asked


@dataclass(frozen=True)
class Hello:
    """From the worker, first: what is here."""

    available: list[DeviceFacts]
    implementations: list[ImplRecord]
    libraries: dict[str, str]


@dataclass(frozen=True)
class Refused:
    """From the worker, first: it cannot serve, because of what the user gave; `exit_code` as in errors.py."""

    message: str
    exit_code: int


@dataclass(frozen=True)
class Began:
    """From the worker: it begins this stage of this implementation (None: of the case)."""

    impl: str | None
    stage: Stage


@dataclass(frozen=True)
class Row:
    """From the worker: what became of one implementation."""

    row: RowRecord


@dataclass(frozen=True)
class Done:
    """From the worker: the request is finished."""


Event = Hello | Refused | Began | Row | Done
