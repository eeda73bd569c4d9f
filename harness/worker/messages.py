"""The messages between the parent and its worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict

from harness.cases import NormCase
from harness.cases.adapter import Config
from harness.devices.facts import DeviceFacts
from harness.devices.profiles import DeviceProfile
from harness.records.run_records import ImplRecord
from harness.records.schema import ConditionsRecord, RowRecord, SelfTestRecord
from harness.records.settings import Settings
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


class Message:
    """The base of what is sent as JSON, in which numbers that are not finite are texts, as in a results file."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")


@dataclass(frozen=True)
class Start:
    """To the worker at its start: the kind of device to serve, and what to load besides the adapters that it finds.

    `impl_files` are adapters from --impl, `sides` the revisions of one adapter in the order of loading. The worker also
    loads the configurations of `tuned_files`, and so many configurations of each implementation in `offered`. Unless
    `asked`, its Hello is empty: asking every library takes seconds. One that does not `measure` answers no request, and
    imports torch only where an adapter or a GPU's facts need it; its Hello lacks what torch brings.
    """

    device: Literal["auto", "gpu", "cpu"] = "auto"
    impl_files: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()
    tuned_files: tuple[str, ...] = ()
    offered: Mapping[str, int] = field(default_factory=dict)
    asked: bool = True
    measures: bool = True


@dataclass(frozen=True)
class Try(Message):
    """To the worker: try this case on these implementations; `group` marks rows that were interleaved.

    A `studied` case is verified more closely: docs/verification.md.
    """

    case: NormCase
    impls: tuple[str, ...]
    group: str
    settings: Settings
    process: int = 0
    studied: bool = False


@dataclass(frozen=True)
class SelfTest(Message):
    """To the worker: test the engine on known work, sized for the device of this profile.

    Unless `whole`, only the checks of what may drift are made: times and ratios, not the profiler and the controls.
    """

    when: When
    settings: Settings
    profile: DeviceProfile
    process: int = 0
    whole: bool = True


@dataclass(frozen=True)
class Warm(Message):
    """To a worker that compiles ahead: prepare and call once, which leaves what was compiled on disk."""

    case: NormCase
    impl: str
    seed: int


@dataclass(frozen=True)
class Load(Message):
    """To the worker: import what it takes to try this case, while others compile for it."""

    case: NormCase
    impls: tuple[str, ...]


@dataclass(frozen=True)
class ListConfigs(Message):
    """To the worker: list the configurations that an implementation offers for these cases."""

    impl: str
    cases: tuple[NormCase, ...]


@dataclass(frozen=True)
class Hello(Message):
    """From the worker, first: the devices, implementations and libraries that are here.

    `misconfigured` has, by implementation, what is wrong with a setting that it reads from the environment.
    """

    available: list[DeviceFacts]
    implementations: list[ImplRecord]
    libraries: dict[str, str]
    misconfigured: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused(Message):
    """From the worker, first: it cannot serve, because of the user's input; `exit_code` as in errors.py."""

    message: str
    exit_code: int


@dataclass(frozen=True)
class Began(Message):
    """From the worker: a stage of an implementation (None: of the case) begins; in stage `start` it is a file."""

    impl: str | None
    stage: Stage


@dataclass(frozen=True)
class Row(Message):
    """From the worker: the final row of one implementation."""

    row: RowRecord


@dataclass(frozen=True)
class Aside(Message):
    """From the worker: a record for the results file that is not a row."""

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
class Offered(Message):
    """From the worker: the offer for each case of a ListConfigs."""

    offers: list[Offer]


@dataclass(frozen=True)
class Done(Message):
    """From the worker: the request is finished."""


Request = Try | Load | Warm | SelfTest | ListConfigs
Event = Hello | Refused | Began | Row | Aside | Offered | Done
