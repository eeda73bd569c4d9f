"""The state of the device (clocks, power, heat) during the measurement, and the blocks that are void because of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from harness.cases import NormCase
from harness.devices.nvml import SensorReading
from harness.records.reasons import Reason
from harness.records.schema import ConditionsRecord

# A power cap is a property of the card: on one that is always capped, voiding for it would leave nothing. It slows all
# implementations of a block alike, is recorded, and the report warns of it.
STEADY = frozenset({"power cap"})

Number = TypeVar("Number", int, float)


def void_cause(before: SensorReading, after: SensorReading) -> Reason | None:
    """Why the block between two readings is void: the device throttled at one of them; None where it did not."""
    reasons = [reason for reason in (*before.throttled, *after.throttled) if reason not in STEADY]
    return Reason("throttled", {"by": reasons[0]}) if reasons else None


def record(case: NormCase, group: str, process: int, readings: Sequence[SensorReading]) -> ConditionsRecord:
    """The readings of a case, one column for each quantity; a quantity with a missing reading is left out."""
    throttled: dict[str, list[int]] = {}
    for block, reading in enumerate(readings):
        for reason in reading.throttled:
            throttled.setdefault(reason, []).append(block)
    return ConditionsRecord(
        case=case,
        group=group,
        process=process,
        sm_clock_mhz=_column([reading.sm_clock_mhz for reading in readings]),
        memory_clock_mhz=_column([reading.memory_clock_mhz for reading in readings]),
        power_w=_column([reading.power_w for reading in readings]),
        temperature_c=_column([reading.temperature_c for reading in readings]),
        host_load=_column([reading.host_load for reading in readings]),
        throttled=throttled,
        # Minus this process. PIDs are not compared: in a container this process is listed under another one.
        other_processes=max((max(0, reading.processes - 1) for reading in readings), default=0),
    )


def _column(values: Sequence[Number | None]) -> list[Number]:
    numbers = [value for value in values if value is not None]
    return numbers if len(numbers) == len(values) else []
