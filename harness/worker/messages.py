"""What the parent and its worker say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.cases import NormCase
from harness.cases.adapter import Config
from harness.devices import DeviceFacts, DeviceProfile
from harness.results.run_records import ImplRecord
from harness.results.schema import ConditionsRecord, RowRecord, SelfTestRecord
from harness.results.settings import Settings
from harness.worker.revisions import Side

Stage = Literal[
    "start",
    "self-test",
    "asking",
    "inputs",
    "prepare",
    "first call",
    "verify",
    "time",
    "break down",
    "cross-check",
    "time in context",
]

When = Literal["before", "after", "alone"]  # of a self-test: before or after the cases, or without any


@dataclass(frozen=True)
class Start:
    """To the worker, as it starts: the kind of device that it serves, and what it loads besides what it finds.

    `impl_files` are adapters given with --impl, `sides` the revisions of one adapter, in the order of loading. Besides,
    it loads the configurations of `tuned_files`, and of each implementation in `offered` so many of those it offers.
    Where it is not `asked` what is here, it says nothing of that: to ask every library takes seconds.
    """

    device: Literal["auto", "gpu", "cpu"] = "auto"
    impl_files: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()
    tuned_files: tuple[str, ...] = ()
    offered: Mapping[str, int] = field(default_factory=dict)
    asked: bool = True


@dataclass(frozen=True)
class Try:
    """To the worker: try this case on these implementations; `group` marks rows that were interleaved.

    A case that is `studied` is looked at more closely than the others.
    """

    case: NormCase
    impls: tuple[str, ...]
    group: str
    settings: Settings
    process: int = 0
    studied: bool = False


@dataclass(frozen=True)
class SelfTest:
    """To the worker: test the engine on known work, sized for the device of this profile.

    Where it is not the `whole` self-test, it is what may drift: times and ratios, not the profiler and the controls.
    """

    when: When
    settings: Settings
    profile: DeviceProfile
    process: int = 0
    whole: bool = True


@dataclass(frozen=True)
class Warm:
    """To a worker that compiles ahead: prepare and call once, so that what is compiled lies in the caches on disk."""

    case: NormCase
    impl: str
    seed: int


@dataclass(frozen=True)
class ListConfigs:
    """To the worker: say which configurations an implementation offers of these cases."""

    impl: str
    cases: tuple[NormCase, ...]


@dataclass(frozen=True)
class Hello:
    """From the worker, first: what is here.

    `misconfigured` says, by implementation, what is wrong with a setting that it reads from the environment.
    """

    available: list[DeviceFacts]
    implementations: list[ImplRecord]
    libraries: dict[str, str]
    misconfigured: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """From the worker, first: it cannot serve, because of what the user gave; `exit_code` as in errors.py."""

    message: str
    exit_code: int


@dataclass(frozen=True)
class Began:
    """From the worker: it begins this stage of this implementation (None: of the case); `start` names a file."""

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
class Offer:
    """The configurations of one case by name, the default first.

    `refusal` says why the case cannot be run or timed here, `fault` why the configurations cannot be used.
    """

    configs: Mapping[str, Config] = field(default_factory=dict)
    refusal: str | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Offered:
    """From the worker: the offer of each case that was asked about."""

    offers: list[Offer]


@dataclass(frozen=True)
class Done:
    """From the worker: the request is finished."""


Request = Try | Warm | SelfTest | ListConfigs
Event = Hello | Refused | Began | Row | Aside | Offered | Done
