"""One implementation on one case, as a reader sees it: what may be said of a row, and what may not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.cases import NormCase
from harness.results import RANKED, ErrorClass, Flush, ImplRecord, RowRecord, Status, Timing, Verification
from harness.stats import IncomparableError, Ratio, Verdict, median_and_spread, timing_speedup, verdict

# ranked: passed, timed, comparable; unranked: passed and timed, but its time cannot be set beside the others';
# verified: passed, not timed; failed: ran and did not pass; absent: never ran here (missing, unsupported).
Standing = Literal["ranked", "unranked", "verified", "failed", "absent"]

UNPROVEN = "unproven: the device may have waited for the host, so host time may be inside"
IN_PLACE = "overwrites dy, which is restored, untimed, before every call"
AUTOGRAD = "reached through autograd, not by a direct call"


@dataclass(frozen=True)
class TensorError:
    """How far one gradient is from fp64, in units of the unavoidable rounding (rho) and relative (rms)."""

    rho: float
    relative_rms: float
    error_class: ErrorClass


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a backward, in launch order, with its median device time."""

    name: str
    median_us: float


@dataclass(frozen=True)
class Entry:
    """One implementation on one case.

    `median_us` and `spread` (relative) exist for ranked and unranked entries; speedup, verdict and bandwidth for ranked
    ones only, and speedup and verdict not for the baseline itself. `kernels` is None where they are unknown.
    """

    impl: str
    standing: Standing
    status: Status
    reason: str | None
    median_us: float | None
    spread: float | None
    blocks: int
    speedup: Ratio | None
    verdict: Verdict | None
    bandwidth_gbps: float | None
    percent_of_add: float | None
    percent_of_datasheet: float | None
    errors: dict[str, TensorError]
    determinism: str
    repeats: int
    differing: int
    differing_in: tuple[str, ...]
    peak_extra_bytes: int | None
    kernels: tuple[KernelTime, ...] | None
    notes: tuple[str, ...]
    prepare_s: float | None
    via: Literal["kernel", "autograd"]
    in_place: bool
    proven: bool

    @property
    def label(self) -> str:
        """The name, with the mark that it must not be shown without."""
        if self.status == "nondeterministic":
            return f"{self.impl} (nondeterministic)"
        return self.impl if self.proven else f"{self.impl} (unproven)"


@dataclass(frozen=True)
class Yardsticks:
    """What the rows of one case are measured against; each is None where the case has none to offer."""

    group: tuple[str, Flush] | None
    baseline: RowRecord | None
    add: Timing | None
    band: float | None
    datasheet_gbps: float | None


def make_entry(row: RowRecord, impl: ImplRecord | None, against: Yardsticks) -> Entry:
    """Say of a row what its status and timing allow."""
    standing, why = _standing(row, against.group)
    median = spread = None
    if row.timing is not None and standing in ("ranked", "unranked"):
        median, spread = median_and_spread(row.timing.samples_us)
    ranked_us = median if standing == "ranked" else None
    speedup = _speedup(row, against) if standing == "ranked" else None
    bandwidth = bandwidth_gbps(row.case, ranked_us)
    checked = row.verification
    return Entry(
        impl=row.impl,
        standing=standing,
        status=row.status,
        reason=why,
        median_us=median,
        spread=spread,
        blocks=len(row.timing.samples_us) if row.timing is not None and median is not None else 0,
        speedup=speedup,
        verdict=verdict(speedup, against.band) if speedup is not None and against.band is not None else None,
        bandwidth_gbps=bandwidth,
        percent_of_add=percent_of_add(against.add, row.timing, ranked_us),
        percent_of_datasheet=100 * bandwidth / against.datasheet_gbps if bandwidth and against.datasheet_gbps else None,
        errors=_errors(checked),
        determinism=_determinism(checked),
        repeats=checked.repeats if checked else 0,
        differing=checked.differing if checked else 0,
        differing_in=tuple(checked.differing_in) if checked else (),
        peak_extra_bytes=row.peak_extra_bytes,
        kernels=None if row.kernels is None else tuple(KernelTime(k.name, k.median_us) for k in row.kernels),
        notes=_notes(row, impl),
        prepare_s=row.prepare_s,
        via=impl.via if impl else "kernel",
        in_place=impl.in_place if impl else False,
        proven=row.timing.proven if row.timing else True,
    )


def is_rankable(row: RowRecord) -> bool:
    """Whether a row's time may stand in a comparison at all: it passed, and its samples are times of the device."""
    return row.status in RANKED and usable_timing(row) is not None


def usable_timing(row: RowRecord | None) -> Timing | None:
    """The timing of a row that passed and whose every sample is proven and positive, or None."""
    if row is None or row.status not in RANKED or row.timing is None or not row.timing.proven:
        return None
    samples = row.timing.samples_us
    return row.timing if samples and all(math.isfinite(s) and s > 0 for s in samples) else None


def bandwidth_gbps(case: NormCase, us: float | None) -> float | None:
    """The bytes that the case must move over a time, in GB/s."""
    return case.moved_bytes / us / 1e3 if us else None


def percent_of_add(add: Timing | None, other: Timing | None, us: float | None) -> float | None:
    """The time of the same-traffic add over `us`, in percent, where both were interleaved under one flush."""
    if add is None or other is None or not us or (add.group, add.flush) != (other.group, other.flush):
        return None
    return 100 * median_and_spread(add.samples_us)[0] / us


def _standing(row: RowRecord, group: tuple[str, Flush] | None) -> tuple[Standing, str | None]:
    if row.status not in RANKED:
        return ("absent" if row.status in ("missing", "unsupported") else "failed"), row.reason
    if row.timing is None or not row.timing.samples_us:
        return "verified", row.untimed
    doubt = _doubt(row, row.timing, group)
    return ("unranked", doubt) if doubt else ("ranked", row.reason)


def _doubt(row: RowRecord, timing: Timing, group: tuple[str, Flush] | None) -> str | None:
    if not timing.proven:
        return UNPROVEN
    if not is_rankable(row):
        return "a sample is not a positive number of microseconds"
    if (timing.group, timing.flush) != group:
        return f"timed apart from the others (group {timing.group}, flush {timing.flush})"
    return None


def _speedup(row: RowRecord, against: Yardsticks) -> Ratio | None:
    base = usable_timing(against.baseline)
    if against.baseline is None or base is None or row.timing is None or row.impl == against.baseline.impl:
        return None
    try:
        return timing_speedup(base, row.timing)
    except IncomparableError:
        return None


def _errors(checked: Verification | None) -> dict[str, TensorError]:
    tensors = checked.tensors if checked else {}
    return {name: TensorError(t.rho, t.relative_rms, t.error_class) for name, t in tensors.items()}


def _determinism(checked: Verification | None) -> str:
    if checked is None or checked.repeats == 0:
        return "not checked"
    if checked.differing == 0:
        return f"bitwise n={checked.repeats}"
    where = f", in {', '.join(checked.differing_in)}" if checked.differing_in else ""
    return f"{checked.differing} of {checked.repeats} differ{where}"


def _notes(row: RowRecord, impl: ImplRecord | None) -> tuple[str, ...]:
    notes = list(row.notes)
    if impl is not None and impl.in_place:
        notes.append(IN_PLACE)
    if impl is not None and impl.via == "autograd":
        notes.append(AUTOGRAD)
    if row.kernels_note:
        notes.append(row.kernels_note)
    return tuple(dict.fromkeys(notes))
