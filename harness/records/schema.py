"""The records of a results file about cases: rows, self-tests, the state of the device, findings of the sanitizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    field_serializer,
    model_validator,
)

from harness.cases import NormCase
from harness.cases.tensors import gradients_of
from harness.records.limits import CASES, PROCESSES, Whole
from harness.records.packed_samples import PackedSamples
from harness.records.reasons import OptionalReason, Reason
from harness.records.settings import Flush

Status = Literal["ok", "wrong", "impossible", "nondeterministic", "unsupported", "missing", "crashed", "timeout", "oom"]
RANKED: tuple[Status, ...] = ("ok", "nondeterministic")
FAILED: tuple[Status, ...] = ("wrong", "impossible", "crashed", "timeout", "oom")
NOT_RUN: tuple[Status, ...] = ("missing", "unsupported")
# An implementation; the same-traffic add; the A/A twin: the baseline's second appearance in the same blocks.
Role = Literal["impl", "floor", "again"]
SAME_TRAFFIC_ADD: Final = "floor"  # how the role is stored
# `flushes subnormals`: right except that subnormal numbers count as zero, as a GPU does when it is set so.
ErrorClass = Literal["exact", "one extra rounding", "two", "three", "flushes subnormals", "wrong"]
# The conditions under which a backward is run again, and must give the same bits.
Condition = Literal["side stream", "graph replay", "shuffled allocator", "busy device", "held multiprocessors"]
Unit = Literal["us", "%", "GB/s", ""]  # of a check of a self-test
Tool = Literal["memcheck", "initcheck", "racecheck", "synccheck"]  # of compute-sanitizer
TOOLS: tuple[Tool, ...] = get_args(Tool)
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Limit = Annotated[float, Field(ge=0)]  # infinite where every block of a self-test was void
Number = Annotated[int, Field(ge=0, lt=1_000_000)]  # of a GPU or a block
ProcessNumber = Annotated[int, Field(ge=0, lt=PROCESSES)]


BEYOND_PLAIN = ("features", "dropout_p", "heads", "projection")


def _without_empty(case: NormCase, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
    fields: dict[str, Any] = serialize(case)
    return {name: value for name, value in fields.items() if value or name not in BEYOND_PLAIN}


_CASES: dict[str, NormCase] = {}  # by what a file says of them: the rows of a case share it


def _shared(value: Any, validate: ValidatorFunctionWrapHandler) -> NormCase:
    if isinstance(value, NormCase):
        return value
    if (case := _CASES.get(key := str(value))) is None:
        if len(_CASES) >= CASES:
            _CASES.clear()
        case = _CASES[key] = validate(value)
    return case


# A plain case is written without the fields of features, which are empty or 0 in it.
StoredCase = Annotated[NormCase, WrapSerializer(_without_empty), WrapValidator(_shared)]


class Record(BaseModel):
    """The base of all records of a results file: unknown fields are refused, and a record is immutable."""

    # Validators are built at the first use: a command that refuses its options has none.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings", defer_build=True)


class TensorCheck(Record):
    """How far one gradient is from fp64: rho in units of the unavoidable rounding, and the plain relative rms.

    Both are over all seeds together. `worst_row` is the largest rho of a single row (of dx alone), `fp32_relative_rms`
    the error of the same implementation on the same values held in fp32.
    """

    rho: float
    relative_rms: float
    error_class: ErrorClass
    worst_row: float | None = None
    fp32_relative_rms: float | None = None


class ConditionCheck(Record):
    """Runs under one condition, compared bit by bit with a plain run; `skipped` says why there were none."""

    condition: Condition
    runs: Whole
    differing: Whole = 0
    differing_in: list[str] = []
    skipped: OptionalReason = None


class Verification(Record):
    """The checks of one implementation on one case; `differing` of `repeats` runs had other bits than the first.

    `seeds` inputs were drawn. The class of an error allows for chance over `cells` tensors of the run (Bonferroni).
    `conditions` are the repeats under a condition. `fingerprint` is a hash of the bits of all gradients for the first
    seed, to compare processes. `invariance` says whether bits changed with something that should not matter; that is
    reported and not judged.
    """

    tensors: dict[str, TensorCheck]
    repeats: Whole
    differing: Whole
    differing_in: list[str] = []
    seeds: Whole = 1
    cells: Whole = 1
    conditions: list[ConditionCheck] = []
    fingerprint: str | None = None
    invariance: dict[str, Reason] = {}


class VoidBlocks(Record):
    """How many blocks were left out for one cause."""

    cause: Reason
    blocks: Whole


class Timing(Record):
    """Raw samples of one implementation on one case, in microseconds; a published file holds them as `PackedSamples`.

    `blocks[i]` is the block that `samples_us[i]` belongs to, left out of the file where they are 0, 1, 2, ...; rows of
    one `group` were interleaved in the same blocks, so only among them may a ratio be formed. `voided` counts blocks
    left out, by cause. `proven` is False where the device began before the host had queued everything, so that host
    time may be inside. `waited` counts the samples that ended only after the kernel beside had ended.
    """

    group: str
    flush: Flush
    samples_us: list[NotNegative]
    blocks: list[Number]
    voided: list[VoidBlocks] = []
    proven: bool = True
    waited: Whole = 0

    @model_validator(mode="before")
    @classmethod
    def _read(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields  # the schema refuses it
        read: dict[str, Any] = {**fields}
        if isinstance(read.get("samples_us"), dict):
            read["samples_us"] = PackedSamples.model_validate(read["samples_us"]).in_us()
        if isinstance(read.get("samples_us"), list) and not read.get("blocks"):
            read["blocks"] = list(range(len(read["samples_us"])))
        if isinstance(voided := read.get("voided"), dict):  # of an older file
            read["voided"] = [{"cause": cause, "blocks": blocks} for cause, blocks in voided.items()]
        return read

    @model_validator(mode="after")
    def _in_blocks(self) -> Timing:
        if len(self.blocks) != len(self.samples_us) or len(set(self.blocks)) < len(self.blocks):
            raise ValueError("each sample must have a block of its own")
        return self

    @field_serializer("blocks")
    def _only_gaps(self, blocks: list[int]) -> list[int] | None:
        return None if blocks == list(range(len(blocks))) else blocks

    @property
    def void_share(self) -> float:
        """The share of the blocks that were left out."""
        void = sum(void.blocks for void in self.voided)
        return void / (void + len(self.samples_us)) if void else 0.0


class ContextRecord(Record):
    """The outcome of one implementation in one context besides `cold`, on one case.

    `untimed` says why there are no times although nothing failed, for example because every block was void.
    """

    status: Status
    reason: OptionalReason = None
    notes: list[Reason] = []
    timing: Timing | None = None
    untimed: OptionalReason = None


class Kernel(Record):
    """One kernel (or memset, or copy) that a backward launches, in launch order, by the profiler's clock.

    `start_us` is when it begins, after the first one's begin; `event_us` is its time between two events of its own,
    where its launches can be told apart: alone, while the profiler sees it overlap with its neighbours.
    """

    name: str
    median_us: float
    start_us: float | None = None
    event_us: float | None = None


class KernelTotals(Record):
    """The kernels of one backward together, in microseconds: medians over the profiled runs.

    `sum_us` adds all, `union_us` counts overlap once, `span_us` is from the first begin to the last end, `lead_us` from
    the end of what ran before to the first begin (0 where it was not read), and `event_us` is what events around the
    same runs read. Gaps are `span_us - union_us`.
    """

    sum_us: float
    union_us: float
    span_us: float
    event_us: float
    lead_us: float = 0.0


class RowRecord(Record):
    """The outcome of one implementation on one case."""

    record: Literal["row"] = "row"
    case: StoredCase
    impl: str
    role: Role = "impl"
    status: Status
    reason: OptionalReason = None
    notes: list[Reason] = []
    chosen: str | None = Field(default=None, description="what a dispatcher, or a search by timing, chose")
    timing: Timing | None = None
    untimed: OptionalReason = Field(default=None, description="why a row that passed has no timing")
    verification: Verification | None = None
    process: ProcessNumber = Field(default=0, description="which of the run's processes measured it")
    gpu: Number | None = Field(default=None, description="which of a fleet's GPUs it was measured on")
    kernels: list[Kernel] | None = None
    kernel_totals: KernelTotals | None = None
    kernels_note: OptionalReason = Field(default=None, description="why the kernels are unknown or in doubt")
    peak_extra_bytes: Whole | None = Field(
        default=None,
        description="beyond inputs and gradients, on the device: kept since before it was prepared, or taken by a call",
    )
    prepare_s: float | None = Field(default=None, description="forward and compilation, before anything is timed")
    other_engines_us: dict[str, float] = Field(default={}, description="what engines that are not ours read")
    contexts: dict[str, ContextRecord] | None = Field(default=None, description="besides cold, which `timing` is of")

    @property
    def is_verified(self) -> bool:
        """Whether its verification gives its status: all gradients compared, none off, bits of two runs or more."""
        checked = self.verification
        if checked is None or checked.repeats < 2 or (checked.differing and self.status == "ok"):
            return False
        right = {name for name, check in checked.tensors.items() if check.error_class != "wrong"}
        return {gradient.name for gradient in gradients_of(self.case)} <= right


class Check(Record):
    """One check of a self-test: the measured value, its limit, and how it was measured.

    `passed` is None where the check cannot be made on this device; `detail` then says why. Where `value` is how far a
    ratio is off, `reading` is the log of the ratio itself.
    """

    name: str
    passed: bool | None = None  # None is not written to the file
    value: float | None = None
    limit: float | None = None
    reading: float | None = None
    unit: Unit = ""
    detail: OptionalReason = None


class Budget(Record):
    """The engine's own error: a time is off by up to `fixed_us` and `relative` of itself, a ratio by `ratio` of itself.

    `t0_us` is what two events read with nothing between them, `null_us` with a kernel that does nothing, `copy_gbps`
    the slope of large copies, `event_offset_us` what events read beyond the profiler's lead and span of one kernel.
    """

    t0_us: Annotated[float, Field(gt=0)]  # infinite where every block of a self-test was void
    null_us: NotNegative | None = None
    fixed_us: Limit
    relative: Limit
    ratio: Limit
    copy_gbps: NotNegative | None = None
    event_offset_us: float | None = None


def worst(budgets: Sequence[Budget]) -> Budget:
    """The largest error of each kind, the slowest copy, and the offset that all of them have about them."""
    chosen: dict[str, Callable[[list[float]], float]] = {"copy_gbps": min, "event_offset_us": median}
    values = {
        name: [value for budget in budgets if (value := getattr(budget, name)) is not None]
        for name in Budget.model_fields
    }
    return Budget(**{name: chosen.get(name, max)(known) for name, known in values.items() if known})


class SelfTestRecord(Record):
    """The engine tested on known work, before or after the cases of a process."""

    record: Literal["selftest"] = "selftest"
    when: Literal["before", "after", "alone"]
    process: ProcessNumber = 0
    gpu: Number | None = None
    budget: Budget
    checks: list[Check]


class HolderRecord(Record):
    """The kernel that ran beside the backwards: its programs, and the threads and KiB of shared memory of each."""

    programs: Whole
    threads: Whole
    shared_kib: Whole


class ConditionsRecord(Record):
    """The readings of the device after each attempted block of a case; a list is empty where the device reports none.

    `host_load` is the share of this process's CPUs that others used during the block (0 to 1), where a CPU is timed.
    `throttled` lists, by reason, the blocks during which the device held its clocks back.
    """

    record: Literal["conditions"] = "conditions"
    case: StoredCase
    group: str
    process: ProcessNumber = 0
    context: str | None = None  # None is cold
    holder: HolderRecord | None = None
    gpu: Number | None = None
    sm_clock_mhz: list[Whole] = []
    memory_clock_mhz: list[Whole] = []
    power_w: list[float] = []
    temperature_c: list[Whole] = []
    host_load: list[float] = []
    throttled: dict[str, list[Whole]] = {}
    other_processes: Whole = Field(default=0, description="most that were seen on the device besides this one")


class SanitizerRecord(Record):
    """What one tool of compute-sanitizer found in one backward; `errors` is None where it could not run, `detail` why.

    Otherwise `detail` is the first error that it named.
    """

    record: Literal["sanitizer"] = "sanitizer"
    case: StoredCase
    impl: str
    tool: Tool
    errors: Whole | None = None
    detail: OptionalReason = None
