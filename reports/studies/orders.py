"""What studies share: pairs of implementations with a clear order, and what another engine or flush makes of them."""

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


def clear_orders(run: Results) -> list[Order]:
    """The pairs of implementations of which a run calls one clearly faster, case by case."""
    orders: list[Order] = []
    for case, rows in by_case(run).items():
        aa = band(rows, run.run.settings.baseline)
        medians_us = {impl: joined.median_us or 0.0 for (impl, role), joined in rows.items() if role == "impl"}
        for pair in combinations(medians_us, 2):
            first, second = sorted(pair, key=medians_us.__getitem__)
            judged = judge(rows, aa, first, second)
            if judged is not None and judged[1] == "slower":  # the medians say otherwise than the blocks
                first, second = second, first
                judged = judge(rows, aa, first, second)
            if judged is not None and judged[1] == "faster":
                orders.append(Order(case, first, second, judged[0]))
    return orders


def judge(rows: JoinedCase, aa: float | None, first: str, second: str) -> tuple[Ratio, SpeedVerdict] | None:
    """The speedup of first over second with its verdict; None without a ratio or without an A/A band."""
    if aa is None:
        return None
    with suppress(IncomparableError):
        speedup = ratio(rows.get((second, "impl")), rows.get((first, "impl")))
        return speedup, verdict(speedup, aa)
    return None
