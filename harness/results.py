"""The results file: one JSON object a line, the run first, then a row for each (case, implementation).

This is the only form in which measurements leave the measuring half of the project.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_serializer, model_validator

from harness.cases import NormCase
from harness.errors import UsageError

SCHEMA_VERSION = 1

Status = Literal["ok", "wrong", "nondeterministic", "unsupported", "missing", "crashed", "timeout", "oom"]
RANKED: tuple[Status, ...] = ("ok", "nondeterministic")
Role = Literal["impl", "floor", "again"]  # an implementation; the same-traffic add; the baseline's second appearance
Flush = Literal["clean", "dirty", "none"]
ErrorClass = Literal["exact", "one extra rounding", "two", "three", "wrong"]


class Record(BaseModel):
    """Common settings of all that is written to a results file: nothing unknown, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class DeviceRecord(Record):
    """The device that measured: what it calls itself, and the profile whose datasheet figures apply."""

    profile: str
    name: str
    architecture: str
    datasheet_gbps: float | None = None
    l2_bytes: int
    last_level_bytes: int
    sm_count: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_w: float | None = None


class ImplRecord(Record):
    """An implementation as the run knew it: its family (its file), and why it is missing, if it is."""

    name: str
    family: str
    source: str
    via: Literal["kernel", "autograd"] = "kernel"
    in_place: bool = False
    missing: str | None = None
    summary: str = ""
    compiles_ahead: bool = False
    on_request: bool = Field(default=False, description="not run unless it is named: slow to prepare")


class SettingsRecord(Record):
    """What was asked of the run; a resumed run must ask the same."""

    seed: int
    flush: Flush
    baseline: str
    quick: bool
    timed: bool = True
    suite: str | None = None


class RunRecord(Record):
    """The first line of a results file."""

    record: Literal["run"] = "run"
    schema_version: Literal[1] = SCHEMA_VERSION
    started_at: str
    command: str
    device: DeviceRecord
    settings: SettingsRecord
    libraries: dict[str, str]
    revision: str | None = None
    implementations: list[ImplRecord]
    jobs: int = Field(description="cases planned, so that a reader can tell a finished run from a cut one")


class TensorCheck(Record):
    """How far one gradient is from fp64: rho in units of the unavoidable rounding, and the plain relative rms."""

    rho: float
    relative_rms: float
    error_class: ErrorClass


class Verification(Record):
    """What was checked of one implementation on one case; `differing` of `repeats` runs were not bitwise the first."""

    tensors: dict[Literal["dx", "dweight", "dbias"], TensorCheck]
    repeats: int
    differing: int
    differing_in: list[str] = []


class Timing(Record):
    """Raw samples of one implementation on one case, in microseconds.

    `blocks[i]` is the block that `samples_us[i]` belongs to, left out of the file where they are 0, 1, 2, ...; rows of
    one `group` were interleaved in the same blocks, so only among them may a ratio be formed. `voided` counts blocks
    left out, by cause. `proven` is False where the device began before the host had queued everything, so that host
    time may be inside.
    """

    group: str
    flush: Flush
    samples_us: list[float]
    blocks: list[int]
    voided: dict[str, int] = {}
    proven: bool = True

    @model_validator(mode="before")
    @classmethod
    def _number_blocks(cls, fields: Any) -> Any:
        match fields:
            case {"samples_us": [*samples], **rest} if not rest.get("blocks"):
                return {**fields, "blocks": list(range(len(samples)))}
            case _:
                return fields  # whatever is wrong with it is the schema's to say

    @field_serializer("blocks")
    def _only_gaps(self, blocks: list[int]) -> list[int] | None:
        return None if blocks == list(range(len(blocks))) else blocks


class Kernel(Record):
    """One kernel (or memset, or copy) that a backward launches, in launch order, with its median device time."""

    name: str
    median_us: float


class RowRecord(Record):
    """What became of one implementation on one case."""

    record: Literal["row"] = "row"
    case: NormCase
    impl: str
    role: Role = "impl"
    status: Status
    reason: str | None = None
    notes: list[str] = []
    timing: Timing | None = None
    untimed: str | None = Field(default=None, description="why a row that passed has no timing")
    verification: Verification | None = None
    kernels: list[Kernel] | None = None
    kernels_note: str | None = Field(default=None, description="why the kernels are unknown or in doubt")
    peak_extra_bytes: int | None = Field(default=None, description="device memory beyond inputs and gradients")
    prepare_s: float | None = Field(default=None, description="forward and compilation, before anything is timed")


class EndRecord(Record):
    """The last line of a run that was not cut short; a resumed run adds another."""

    record: Literal["end"] = "end"
    ended_at: str
    wall_s: float
    interrupted: bool = False


Line = Annotated[RunRecord | RowRecord | EndRecord, Field(discriminator="record")]
_LINE: TypeAdapter[RunRecord | RowRecord | EndRecord] = TypeAdapter(Line)


@dataclass(frozen=True)
class Results:
    """A results file in memory."""

    run: RunRecord
    rows: list[RowRecord]
    end: EndRecord | None


class ResultsFile:
    """A results file being written: every record is on disk before `append` returns.

    Raises UsageError where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._stream = path.open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}; give a writable folder with --out") from error

    def append(self, record: RunRecord | RowRecord | EndRecord) -> None:
        """Add one line and flush it."""
        self._stream.write(record.model_dump_json(exclude_none=True) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file; further appends are errors."""
        self._stream.close()


def load(path: Path) -> Results:
    """Read a results file, packed by gzip if its name ends in .gz.

    Raises UsageError with the line at fault and how to mend it.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
            text = stream.read()
        lines = [line for line in re.split(r"(?<=\n)", text) if line]  # JSON leaves U+2028 and the like as they are
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or (
            "not whole gzip, pack it again" if path.suffix == ".gz" else "not UTF-8 text"
        )
        raise UsageError(f"cannot read {path}: {why}") from error
    run: RunRecord | None = None
    end: EndRecord | None = None
    rows: list[RowRecord] = []
    for number, line in enumerate(lines, start=1):
        match _parse(path, number, line):
            case RunRecord() as record if number == 1:
                run = record
            case RunRecord():
                raise UsageError(f"{path} line {number} starts a second run; give one run's file at a time")
            case RowRecord() as record:
                rows.append(record)
            case EndRecord() as record:
                end = record
    if run is None:
        raise UsageError(f"{path} does not begin with a run record; is it a results.jsonl of `normbwd bench`?")
    return Results(run, rows, end)


def drop_torn_line(path: Path) -> None:
    """Cut off a last line that a crash left half-written; whole lines stay as they are."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as stream:
            stream.truncate(whole)


def _parse(path: Path, number: int, line: str) -> RunRecord | RowRecord | EndRecord:
    if not line.endswith("\n"):
        raise UsageError(
            f"{path} line {number} is cut off; "
            f"`normbwd bench --resume --out {path.parent}` goes on from the line before"
        )
    try:
        return _LINE.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise UsageError(
            f"{path} line {number} is not a results record ({where}: {first['msg']}); "
            "delete the line, or read the file with the version that wrote it"
        ) from error
