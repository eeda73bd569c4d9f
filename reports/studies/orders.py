"""Orders: pairs of implementations of which one is clearly faster in a run, by its blocks and its A/A band."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

from harness.analysis.joining import JoinedCase, band, by_case, ratio
from harness.analysis.statistics import IncomparableError, Ratio, SpeedVerdict, verdict
from harness.cases import NormCase
from harness.records.file import Results


@dataclass(frozen=True)
class Order:
    """A pair of implementations in one case, of which `first` is clearly faster in one run."""

    case: NormCase
    first: str
    second: str
    speedup: Ratio


@dataclass(frozen=True)
class CaseInRun:
    """One case in one run, with its A/A band, for verdicts."""

    case: NormCase
    rows: JoinedCase
    band: float | None

    @classmethod
    def all_of(cls, run: Results) -> dict[NormCase, CaseInRun]:
        """The cases of a run."""
        return {case: cls(case, rows, band(rows, run.run.settings.baseline)) for case, rows in by_case(run).items()}

    @property
    def impls(self) -> list[str]:
        """The implementations that have a row, in the order of the file."""
        return [impl for impl, role in self.rows if role == "impl"]

    def speedup(self, first: str, second: str) -> tuple[Ratio, SpeedVerdict] | None:
        """The speedup of first over second with its verdict; None without a ratio or without an A/A pair."""
        if self.band is None:
            return None
        with suppress(IncomparableError):
            speedup = ratio(self.rows.get((second, "impl")), self.rows.get((first, "impl")))
            return speedup, verdict(speedup, self.band)
        return None

    def order(self, first: str, second: str) -> Order | None:
        """The order of two implementations; None where neither is clearly faster."""
        medians_us = [self.rows[impl, "impl"].median_us or 0.0 for impl in (first, second)]
        if medians_us[0] > medians_us[1]:  # so that usually only one speedup is computed
            first, second = second, first
        judged = self.speedup(first, second)
        if judged is not None and judged[1] == "slower":
            first, second = second, first
            judged = self.speedup(first, second)
        return Order(self.case, first, second, judged[0]) if judged is not None and judged[1] == "faster" else None


def clear_orders(run: Results) -> list[Order]:
    """The pairs of implementations of which a run finds one clearly faster, case by case."""
    orders = (case.order(*pair) for case in CaseInRun.all_of(run).values() for pair in combinations(case.impls, 2))
    return [order for order in orders if order is not None]
