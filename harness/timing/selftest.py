"""The engine tested on known work. The result is a list of checks and an error budget.

Each check has a limit fixed in advance. docs/method.md says what each is for, and what the budget is made of. A device
and its work are arguments, so that tests hand in a machine that lies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from harness.analysis import evidence
from harness.analysis.evidence import EVENTS_AGAINST_PROFILER, EVENTS_SHARE
from harness.analysis.statistics import Ratio, spans_agree, speedup
from harness.records.reasons import ALL_VOID, Reason
from harness.records.schema import Budget, Check, Flush, Unit
from harness.timing.breakdown import CLOCK_SLACK_US
from harness.timing.engine import Candidate, Device, Measurement, measure
from harness.timing.stopping import StoppingRule

if TYPE_CHECKING:  # torch is slow to import
    from harness.timing.work import TensorWork

T0_LIMIT_US = 10.0  # beyond, nothing below 100 us could be ranked
COLD_LIMIT = 0.02
LINEAR_LIMIT = 0.02
LINE_LIMIT = 0.02
AA_LIMIT = 0.005
EVENT_SLACK_US = 0.5  # CUDA's documentation: the time between two events has a resolution of around 0.5 us
# The events' own share is a time by events minus one by the profiler; below this the two cannot resolve it.
SHARE_AT_LEAST_US = -(EVENT_SLACK_US + CLOCK_SLACK_US)
CALLS = (1, 2, 4)


@dataclass(frozen=True)
class Effort:
    """How many blocks each check takes, and how many caches the largest copy may be."""

    blocks: int = 20
    multiples: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class CheckList:
    """The checks of a self-test as they are made, each with its value, its limit and how it was measured."""

    checks: list[Check] = field(default_factory=list[Check])

    def add(
        self,
        name: str,
        value: float,
        limit: float,
        unit: Unit,
        detail: Reason,
        passed: bool | None = None,
        reading: float | None = None,
    ) -> None:
        """Add a check, which passes where the value is within the limit, or as `passed` says.

        One without a finite value had no samples, and fails. Shares become percent.
        """
        finite, scale = math.isfinite(value), 100 if unit == "%" else 1
        self.checks.append(
            Check(
                name=name,
                passed=finite and bool(value <= limit if passed is None else passed),
                value=rounded(scale * value) if finite else None,
                limit=rounded(scale * limit),
                reading=None if reading is None else rounded(reading, 5),
                unit=unit,
                detail=detail if finite else Reason(ALL_VOID),
            )
        )

    def add_without_value(self, name: str, why: Reason, passed: bool | None = None) -> None:
        """Add a check that cannot be made on this device, or that failed before it had a value."""
        self.checks.append(Check(name=name, passed=passed, detail=why))


class SelfTest(CheckList):
    """One self-test: `run` makes the checks and stores them in `checks`."""

    def __init__(self, device: Device, work: TensorWork, effort: Effort, rng: random.Random) -> None:
        super().__init__()
        self._device = device
        self._work = work
        self._effort = effort
        self._rng = rng
        self._relative: list[float] = []

    def run(self, whole: bool = True) -> Budget:
        """Make all checks, or unless `whole` only those of what may drift, without the profiler; returns the budget."""
        t0_us, null_us = self._empty_and_null()
        gbps, at_zero_us = self._copy_line()
        self._coldness()
        self._linearity()
        ratio = self._planted()
        offset_us = self._spans() if whole else None
        if not math.isfinite(t0_us):
            t0_us = math.inf  # every block was void: nothing may be ranked by an engine that could not be tested
        return Budget(
            t0_us=rounded(t0_us),
            null_us=rounded(null_us) if null_us is not None and math.isfinite(null_us) else None,
            fixed_us=rounded(max(t0_us, abs(at_zero_us))),
            relative=rounded(max((off for off in self._relative if math.isfinite(off)), default=math.inf), 5),
            ratio=rounded(ratio, 5),
            copy_gbps=rounded(gbps, 1) if gbps is not None else None,
            event_offset_us=None if offset_us is None else rounded(offset_us),
        )

    def _empty_and_null(self) -> tuple[float, float | None]:
        """Time nothing, then a kernel that does nothing; return t0 and the kernel's time in us."""
        null = self._work.null_kernel()
        t0_us, *null_us = self._medians([self._work.nothing(), *([null] if null else [])])
        self.add("empty region (t0)", t0_us, T0_LIMIT_US, "us", Reason("check_empty"))
        if not null_us:
            self.add_without_value("null kernel", Reason("no_kernels"))
            return t0_us, None
        limit_us = t0_us + T0_LIMIT_US
        passed = t0_us < null_us[0] <= limit_us
        self.add("null kernel", null_us[0], limit_us, "us", Reason("check_null_kernel"), passed)
        return t0_us, null_us[0]

    def _copy_line(self) -> tuple[float | None, float]:
        """Fit t = a + b x bytes, by relative residuals; return 1 / b in GB/s, and a in us."""
        work = self._work
        multiples = [m for m in self._effort.multiples if m * work.cache_bytes <= work.largest]
        if len(multiples) < 3:
            self.add_without_value("copy line", Reason("little_memory"))
            return None, 0.0
        sizes = [multiple * work.cache_bytes for multiple in multiples]
        times_us = np.array(self._medians([work.copies(size) for size in sizes]))
        if not np.isfinite(times_us).all():
            self.add_without_value("copy line", Reason(ALL_VOID), passed=False)
            return None, 0.0
        moved = 2.0 * np.array(sizes)
        weights = 1 / times_us
        columns = np.stack([np.ones_like(moved), moved], axis=1) * weights[:, None]
        (at_zero_us, us_per_byte), *_ = np.linalg.lstsq(columns, times_us * weights, rcond=None)
        residual = float(np.abs((at_zero_us + us_per_byte * moved) / times_us - 1).max())
        if us_per_byte <= 0:
            self.add_without_value("copy line", Reason("larger_copies_no_longer"), passed=False)
            return None, 0.0
        gbps = 1e-3 / float(us_per_byte)
        self._relative.append(residual)
        detail = Reason("check_copy_line", {"caches": [multiples[0], multiples[-1]]})
        self.add("copy line", residual, LINE_LIMIT, "%", detail)
        self.add("copy of nothing", abs(at_zero_us), T0_LIMIT_US, "us", Reason("check_copy_of_nothing"))
        if work.datasheet_gbps:
            self.add("copy bandwidth", gbps, work.datasheet_gbps, "GB/s", Reason("check_copy_bandwidth"))
        return gbps, float(at_zero_us)

    def _coldness(self) -> None:
        """Half a cache after a flush must take as long as one long evicted, and less time without the flush."""
        probe, fresh = self._work.probe(), self._work.fresh_probe()
        again_us, fresh_us = self._medians([probe, fresh])
        difference = abs(again_us / fresh_us - 1)
        self._relative.append(difference)
        self.add("coldness", difference, COLD_LIMIT, "%", Reason("check_coldness"))
        warm = self._measure([probe], self._effort.blocks, "none")
        gain = 1 - _median(warm.samples_us[probe.name]) / fresh_us
        self.add("control: warm buffer", gain, COLD_LIMIT, "%", Reason("check_warm_buffer"), gain > COLD_LIMIT)

    def _linearity(self) -> None:
        """Time one, two and four copies: the times must be in proportion."""
        size = min(8 * self._work.cache_bytes, self._work.largest // CALLS[-1])
        times_us = self._medians([self._work.copies(size, count) for count in CALLS])
        off = max(abs(us / (count * times_us[0]) - 1) for us, count in zip(times_us, CALLS, strict=True))
        self._relative.append(off)
        self.add("linearity", off, LINEAR_LIMIT, "%", Reason("check_linearity"))

    def _planted(self) -> float:
        """Planted effects must be read at their size, an A/A pair as no effect; return the worst error of a ratio."""
        shares = list(evidence.PLANTED.values())
        size = min(8 * self._work.cache_bytes, int(self._work.largest / (1 + shares[-1])))
        work = [self._work.elementwise(size), self._work.elementwise(size, " (again)")]
        work += [self._work.elementwise(int(size * (1 + more))) for more in shares]
        measured = self._measure(work, 2 * self._effort.blocks)
        first_us, again_us, *longer_us = (measured.samples_us[candidate.name] for candidate in work)
        if not first_us:
            self.add_without_value(evidence.AA_PAIR, Reason(ALL_VOID), passed=False)
            return math.inf
        again = speedup(first_us, again_us)
        reading = math.log(again.value)
        errors = [abs(reading)]
        detail = Reason("check_aa", _interval(again))
        self.add(evidence.AA_PAIR, errors[0], AA_LIMIT, "%", detail, reading=reading)
        for (name, more), samples_us in zip(evidence.PLANTED.items(), longer_us, strict=True):
            ratio = speedup(samples_us, first_us)  # how much longer: samples over the plain one's
            reading = math.log(ratio.value)
            errors.append(abs(reading - math.log1p(more)))
            is_detected = evidence.detected([ratio], [again])
            code = "check_planted" if is_detected else "check_planted_undetected"
            detail = Reason(code, {"more": 100 * more, **_interval(ratio)})
            limit = evidence.PLANTED_LIMIT
            self.add(name, errors[-1], limit, "%", detail, is_detected and errors[-1] <= limit, reading)
        return max(errors)

    def _spans(self) -> float | None:
        """Compare events with the profiler; return how much longer events read around one kernel, in us."""
        size = min(8 * self._work.cache_bytes, self._work.largest // 2)
        one = self._work.elementwise(min(self._work.cache_bytes, self._work.largest))
        others = [self._work.elementwise(size), self._work.copies(size // 2, 2)]
        spans = self._work.spans_us([one, *others])
        if spans is None:
            self.add_without_value(EVENTS_AGAINST_PROFILER, Reason("no_profiler"))
            return None
        offset_us = spans[0][0] - spans[0][1]
        passed = SHARE_AT_LEAST_US <= offset_us <= T0_LIMIT_US
        limit_us = SHARE_AT_LEAST_US if offset_us < 0 else T0_LIMIT_US
        self.add(EVENTS_SHARE, offset_us, limit_us, "us", Reason("check_events_share"), passed)
        off_us = max(abs(event_us - offset_us - span_us) for event_us, span_us in spans)
        agree = all(spans_agree(event_us, span_us, offset_us) for event_us, span_us in spans)
        self.add(EVENTS_AGAINST_PROFILER, off_us, 1.0, "us", Reason("check_events"), agree)
        return offset_us

    def _medians(self, candidates: Sequence[Candidate]) -> list[float]:
        measured = self._measure(candidates, self._effort.blocks)
        return [_median(measured.samples_us[candidate.name]) for candidate in candidates]

    def _measure(self, candidates: Sequence[Candidate], blocks: int, flush: Flush = "clean") -> Measurement:
        rule = StoppingRule(min_blocks=blocks, max_blocks=blocks, half_width=0.0, budget_s=math.inf)
        measured = measure(self._device, candidates, rule, flush, self._rng)
        if unproven := [candidate.name for candidate in candidates if not candidate.proven]:
            self.add_without_value("queue proof", Reason("host_late", {"candidates": unproven}), passed=False)
        return measured


def _median(samples_us: Sequence[float]) -> float:
    return median(samples_us) if samples_us else math.nan


def _interval(ratio: Ratio) -> dict[str, float]:
    """A ratio and its interval as changes in percent."""
    return {name: 100 * (getattr(ratio, name) - 1) for name in ("value", "low", "high")}


def rounded(value: float, digits: int = 3) -> float:
    """The value as it is stored."""
    return round(float(value), digits)
