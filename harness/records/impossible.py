"""Times that cannot be: below what the memory allows, or longer in all than the run took."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from harness.cases.traffic import shortest_possible_us
from harness.devices.profiles import PROFILES
from harness.records.reasons import Reason
from harness.records.run_records import DeviceRecord, EndRecord
from harness.records.schema import RANKED, RowRecord


def mark_impossible(row: RowRecord, datasheet_gbps: float | None) -> RowRecord:
    """The row, with the status `impossible` where its cold time is shorter than reading x and dy takes.

    The rate is the datasheet's. A device without a datasheet cannot be checked.
    """
    timing = row.timing
    if datasheet_gbps is None or row.status not in RANKED:
        return row
    if timing is None or timing.flush == "none" or not timing.samples_us:
        return row
    us, least_us = median(timing.samples_us), shortest_possible_us(row.case, datasheet_gbps)
    if us >= least_us:
        return row
    reason = Reason("impossible", {"us": us, "least_us": least_us, "gbps": datasheet_gbps})
    return row.model_copy(update={"status": "impossible", "reason": reason})


def datasheet_gbps(device: DeviceRecord) -> float | None:
    """The rate of a device's datasheet; where a file leaves it out, its profile's."""
    of_profile = (profile.datasheet_gbps for profile in PROFILES if profile.name == device.profile)
    return device.datasheet_gbps or next(of_profile, None)


def longer_than_run(rows: Iterable[RowRecord], end: EndRecord, gpus: int) -> Reason | None:
    """Why these rows cannot come from a run of that wall clock on so many GPUs; None where they can."""
    timed = (each.timing for row in rows for each in (row, *(row.contexts or {}).values()))
    sampled_s = sum(sum(timing.samples_us) for timing in timed if timing) / 1e6
    if sampled_s <= end.wall_s * max(1, gpus) + 1:  # it is rounded
        return None
    return Reason("longer_than_run", {"sampled_s": sampled_s, "wall_s": end.wall_s})
