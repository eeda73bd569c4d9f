"""What the parent and its worker say to each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from harness.cases import NormCase
from harness.devices import DeviceFacts
from harness.results.schema import ConditionsRecord, Flush, ImplRecord, RowRecord, SelfTestRecord
from harness.worker.aa_twin import copies
from harness.worker.revisions import Side

Stage = Literal["start", "self-test", "inputs", "prepare", "verify", "time", "break down", "cross-check"]

When = Literal["before", "after", "alone"]  # of a self-test: before or after the cases, or without any


@dataclass(frozen=True)
class Asked:
    """How every case of a run is to be tried; sent once, when a worker starts.

    `flush_bytes`, `cache_bytes` (of the last level) and `datasheet_gbps` are the device profile's. `sides` are
    revisions of an adapter to compare, and `twin` is what a second copy of the baseline is called, which is its A/A
    pair's other half; without, the baseline itself stands in the blocks twice. `repeats` is for bitwise comparisons,
    `seeds` how many inputs are drawn to verify a case, `cells` how many gradients the run judges in all; `min_blocks`,
    `max_blocks`, `half_width`, `budget_s` are the stopping rule's. `memory_bytes` is what a worker on a CPU may take.
    With `twice` every implementation stands in the blocks twice, with `broken_down` its kernels are profiled, with
    `cross_check` other engines time it too.
    """

    device: Literal["auto", "gpu", "cpu"] = "auto"
    impl_files: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()
    twin: str | None = None
    seed: int = 0
    flush: Flush = "clean"
    flush_bytes: int = 0
    cache_bytes: int = 0
    datasheet_gbps: float | None = None
    baseline: str = "torch-eager"
    timed: bool = True
    repeats: int = 2
    seeds: int = 1
    cells: int = 1
    memory_bytes: int | None = None
    min_blocks: int = 10
    max_blocks: int = 20
    half_width: float = 0.005
    budget_s: float = 10.0
    twice: bool = False
    broken_down: bool = True
    cross_check: bool = False

    def in_process(self, process: int) -> Asked:
        """What a worker that measures in this process of the run is asked as it starts: what to load, and in turn."""
        return replace(self, sides=copies(self.sides, self.seed, process))

    def once_more(self) -> Asked:
        """What a later process of the same run is asked: the times again, and no more of the rest than it takes."""
        return replace(self, repeats=min(2, self.repeats), seeds=1, broken_down=False, cross_check=False)


@dataclass(frozen=True)
class Try:
    """To the worker: try this case on these implementations; `group` marks rows that were interleaved.

    A case that is `studied` is looked at more closely than the others.
    """

    case: NormCase
    impls: tuple[str, ...]
    group: str
    asked: Asked
    process: int = 0
    studied: bool = False


@dataclass(frozen=True)
class SelfTest:
    """To the worker: test the engine on known work."""

    when: When
    asked: Asked
    process: int = 0


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
class Aside:
    """From the worker: what belongs in the results beside the rows."""

    record: ConditionsRecord | SelfTestRecord


@dataclass(frozen=True)
class Done:
    """From the worker: the request is finished."""


Request = Try | Warm | SelfTest
Event = Hello | Refused | Began | Row | Aside | Done
