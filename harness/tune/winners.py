"""Which configuration is best for each case of a sweep: a pure function of its results.

A configuration replaces the default only where it is right, gives the same bits each time, and is faster beyond the A/A
band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.analysis.joining import Joined, JoinedCase, band, by_case, comparable, ratio
from harness.analysis.statistics import IncomparableError, Ratio, verdict
from harness.cases import NormCase
from harness.cases.adapter import Config
from harness.cases.tuned import TunedCase, TunedSpeedup
from harness.records.file import Results
from harness.worker.configured import is_candidate


@dataclass(frozen=True)
class Best:
    """The best candidate of a case, an implementation of the sweep; without one the default stays, `why` may say why.

    `default_us` is None where the default itself could not be measured, so that nothing is known.
    """

    case: NormCase
    default_us: float | None
    candidate: str | None = None
    best_us: float | None = None
    speedup: Ratio | None = None
    why: str = ""


def best_candidates(results: Results) -> list[Best]:
    """The best candidate of each case, in the order of the file; the default is the run's baseline."""
    default = results.run.settings.baseline
    return [_best(case, rows, default) for case, rows in by_case(results).items()]


def confirmed(best: list[Best], again: Results) -> list[Best]:
    """The same after the winners were measured once more: a case whose winner does not win again keeps its default.

    The fastest of many is also the luckiest of many, so that its figures are taken from the second run alone.
    """
    cases, default = by_case(again), again.run.settings.baseline
    nothing = JoinedCase({})
    return [_confirmed(item, cases.get(item.case, nothing), default) if item.candidate else item for item in best]


def record(best: Best, impl: str, configs: Mapping[str, Config], name: str | None) -> TunedCase:
    """What the tuned file holds of a case; `name` is that of the best candidate's configuration."""
    speedup = best.speedup
    return TunedCase(
        impl=impl,
        case=best.case,
        tried=len(configs) - 1,
        default_us=_rounded(best.default_us),
        best_us=_rounded(best.best_us),
        speedup=speedup
        and TunedSpeedup(
            value=round(speedup.value, 4),
            low=round(speedup.low, 4),
            high=round(speedup.high, 4),
            processes=speedup.processes,
        ),
        config_name=name,
        config=None if name is None else configs[name],
        why=best.why,
    )


def _best(case: NormCase, rows: JoinedCase, default_name: str) -> Best:
    try:
        default = comparable(rows.get((default_name, "impl")))
    except IncomparableError as error:
        return Best(case, None, why=f"not measured: {error}")
    stays = Best(case, default.median_us)
    if (aa := band(rows, default_name)) is None:
        return replace(stays, why="no A/A band was measured")
    speedups = {
        name: speedup
        for (name, role), joined in rows.items()
        if role == "impl" and is_candidate(name, default_name) and (speedup := _speedup(default, joined, aa))
    }
    if not speedups:
        return stays
    name, speedup = max(speedups.items(), key=lambda item: item[1].value)
    return replace(stays, candidate=name, best_us=rows[name, "impl"].median_us, speedup=speedup)


def _confirmed(best: Best, rows: JoinedCase, default_name: str) -> Best:
    default, joined = (rows.get((name, "impl")) for name in (default_name, best.candidate or ""))
    aa = band(rows, default_name)
    if default is None or joined is None or aa is None or not (speedup := _speedup(default, joined, aa)):
        why = f"{best.candidate} was faster in the sweep, and not when measured again"
        return Best(best.case, best.default_us, why=why)
    return replace(best, default_us=default.median_us, best_us=joined.median_us, speedup=speedup)


def _speedup(default: Joined, joined: Joined, aa: float) -> Ratio | None:
    """The speedup of a candidate that may replace the default; None where it may not."""
    if joined.status != "ok":
        return None
    try:
        speedup = ratio(default, joined)
    except IncomparableError:
        return None
    return speedup if verdict(speedup, aa) == "faster" else None


def _rounded(us: float | None) -> float | None:
    return None if us is None else round(us, 3)
