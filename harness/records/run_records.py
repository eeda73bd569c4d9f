"""The records about a run in its results file: the first line, the GPUs of a fleet, and the last line."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from harness.cases import Norm, NormCase
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import needs
from harness.records.limits import Whole
from harness.records.reasons import OptionalReason
from harness.records.schema import NotNegative, Number, Record
from harness.records.settings import Settings

SCHEMA_VERSION = 1
STACK = ("torch", "triton", "libcudnn")  # the libraries that most times depend on
OUT_OPTION = re.compile(r" --out[= ](?:'([^']*)'|(\S+))")  # in the command of a run


class DeviceRecord(Record):
    """The device that measured: its own name, and the profile with its datasheet figures."""

    profile: str
    name: str
    architecture: str
    datasheet_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    l2_bytes: Whole
    last_level_bytes: Whole
    sm_count: Whole | None = None
    memory_bytes: Whole | None = None
    driver: str | None = None
    sm_clock_mhz: Whole | None = None
    memory_clock_mhz: Whole | None = None
    power_limit_w: float | None = None
    gpu: str | None = Field(default=None, description="a hash of its UUID: tells the GPUs of several files apart")


class ImplRecord(Record):
    """An implementation of the run: its family (its adapter), and why it is missing, if it is."""

    name: str
    family: str
    source: str
    via: Literal["kernel", "autograd"] = "kernel"
    in_place: bool = False
    missing: OptionalReason = None
    summary: str = ""
    compiles_ahead: bool = False
    handles: dict[Norm, list[str]] = Field(default={}, description="what a case may have beyond a plain one, by norm")
    on_request: bool = Field(default=False, description="not run unless it is named: slow to prepare")
    slow_to_compile: bool = Field(default=False, description="not run by default: compiles for minutes")
    for_speed: list[str] | None = Field(
        default=None, description="rows that its library offers to be faster; None in files of earlier versions"
    )
    outside: str = Field(default="", description="why this run is outside what it was made for")
    libraries: dict[str, str] = Field(default={}, description="versions of what it requires beyond what all do")
    version: Whole = Field(default=0, description="the adapter's own, raised where a figure of it may change")

    def lacks(self, case: NormCase) -> bool:
        """Whether a case has a variant that it does not handle for the case's norm."""
        return not needs(case) <= set(self.handles.get(case.norm, ()))

    def is_tried_on(self, case: NormCase) -> bool:
        """Whether it has a row for a case: `NAME + torch` has one only where NAME lacks a variant of the case."""
        return not self.name.endswith(WITH_TORCH) or self.lacks(case)


class SideRecord(Record):
    """A revision that `compare` measured, so that it can be checked out again.

    `file` is the adapter as `--impl` named it, None for an adapter of this project; its names end in `word`, base or
    head.
    """

    word: str
    commit: str
    file: str | None = None


def _short(revision: str | None) -> str | None:
    """A full commit hash cut to the 12 digits of `git describe`; anything else as it is."""
    return revision[:12] if revision and re.fullmatch(r"[0-9a-f]{40}", revision) else revision


class SameCodeRecord(Record):
    """The one line of a file, in place of a run, where head's code is base's: nothing was measured."""

    record: Literal["same_code"] = "same_code"
    schema_version: Literal[1] = SCHEMA_VERSION
    command: str
    impl: str
    sides: list[SideRecord] = Field(min_length=2, max_length=2)
    exit_code: Literal[0] = 0
    cases: list[str] = Field(default=[], max_length=0, description="as a report has them")
    verdicts: list[str] = Field(default=[], max_length=0, description="as a gate has them")


class DrawnRecord(Record):
    """The seed of drawn shapes, whether it was chosen, and the version of the kernel that they are held out from.

    `commit` is the last one that changed the kernel; `version` is None where the kernel was not measured.
    """

    seed: Whole
    chosen: bool
    impl: str
    version: Whole | None = None
    commit: Annotated[str | None, AfterValidator(_short)] = None
    committed_at: str | None = None


class RunRecord(Record):
    """The first line of a results file."""

    record: Literal["run"] = "run"
    schema_version: Literal[1] = SCHEMA_VERSION
    normbwd_version: str | None = Field(default=None, description="None in files of before 0.2.0")
    started_at: str
    command: str
    device: DeviceRecord
    settings: Settings
    libraries: dict[str, str]
    revision: Annotated[str | None, AfterValidator(_short)] = None
    engine_version: Whole = 0
    sources: dict[str, str] | None = Field(default=None, exclude=True, description="of early files, and not read")
    implementations: list[ImplRecord]
    left_out: list[str] = Field(default=[], description="installed implementations that a default run leaves out")
    sides: list[SideRecord] = Field(default=[], description="base and head, where two revisions were compared")
    drawn: DrawnRecord | None = None
    jobs: Whole = Field(description="cases planned, so that a reader can tell a finished run from a cut one")

    def resuming(self, folder: str) -> str:
        """The command that goes on with it, where its file lies in this folder unless it was begun with --out."""
        resume = "" if re.search(r" --resume\b", self.command) else " --resume"
        out = "" if OUT_OPTION.search(self.command) else f" --out {shlex.quote(folder)}"
        return f"{self.command}{resume}{out}"


class ResumedRecord(Record):
    """From here on the rows were measured at another revision of normbwd, of the same versions."""

    record: Literal["resumed"] = "resumed"
    at: str
    revision: Annotated[str | None, AfterValidator(_short)] = None
    sources: dict[str, str] | None = Field(default=None, exclude=True, description="of early files, and not read")


class GpuRecord(Record):
    """A GPU of a run on a fleet; rows and self-tests name it by its `number`.

    `visible` is its number on its host, for a GPU without a `uuid`.
    """

    record: Literal["gpu"] = "gpu"
    number: Number
    host: str
    visible: str = ""
    uuid: str | None = None
    gpu: str | None = None  # as of a DeviceRecord
    versions: dict[str, str] = Field(default={}, exclude=True)  # of older files, where versions could differ


class EndRecord(Record):
    """The last line of a run whose process was not killed; a resumed run adds another."""

    record: Literal["end"] = "end"
    ended_at: str
    wall_s: NotNegative
    interrupted: bool = False
    stages_s: dict[str, NotNegative] = Field(default={}, description="where its time went")
