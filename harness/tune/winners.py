"""Which launch is best for each case of a run of `normbwd tune`: a pure function of its results.

A launch replaces the default only where it is right, gives the same bits each time, and is faster beyond the A/A band.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from harness.cases import NormCase
from harness.results.file import Results
from harness.results.joining import Joined, JoinedCase, band, by_case, comparable, ratio
from harness.results.schema import Budget
from harness.results.statistics import IncomparableError, Ratio, verdict
from harness.tune.candidates import NOTE
from impls.inhouse.launch import Launch
from impls.inhouse.tuned import LaunchFile, Speedup, TunedCase, from_text
from impls.triton_inhouse import name as DEFAULT  # noqa: N812  what is compared with, a constant here
from impls.triton_inhouse import problem_of


@dataclass(frozen=True)
class Best:
    """The best launch for a case; without one the default stays, and `why` says what there was to say of that.

    `default_us` is None where the default itself could not be measured, and so nothing was found out.
    """

    case: NormCase
    default_us: float | None
    impl: str | None = None
    launch: Launch | None = None
    best_us: float | None = None
    speedup: Ratio | None = None
    why: str = ""


def best_launches(results: Results) -> list[Best]:
    """The best launch of each case, in the order of the file."""
    return [_best(case, found, results.budget) for case, found in by_case(results).items()]


def confirmed(best: list[Best], again: Results) -> list[Best]:
    """The same after the winners were measured once more: a case whose winner does not win again keeps its default.

    The fastest of many is also the luckiest of many, so that its figures are taken from the second run alone.
    """
    cases = by_case(again)
    return [_confirmed(each, cases.get(each.case, {}), again.budget) if each.impl else each for each in best]


def launch_file(results: Results, best: list[Best]) -> LaunchFile:
    """What the launch choice reads: every case that was measured, those where the default stays among them."""
    run = results.run
    return LaunchFile(
        device=run.device.name,
        multiprocessors=run.device.sm_count or 0,
        torch=run.libraries.get("torch", "unknown"),
        triton=run.libraries.get("triton", "unknown"),
        date=run.started_at,
        revision=run.revision,
        cases=[_tuned(each) for each in best if each.default_us is not None],
    )


def _best(case: NormCase, found: JoinedCase, budget: Budget | None) -> Best:
    default = found.get((DEFAULT, "impl"))
    try:
        comparable(default, budget)
    except IncomparableError as error:
        return Best(case, None, why=f"not measured: {error}")
    stays = Best(case, default.median_us if default else None)
    if (aa := band(found, DEFAULT)) is None:
        return replace(stays, why="no A/A band was measured")
    faster = {
        impl: (joined, speedup)
        for (impl, role), joined in found.items()
        if role == "impl" and impl != DEFAULT and (speedup := _speedup(default, joined, aa, budget))
    }
    if not faster:
        return stays
    impl, (joined, speedup) = max(faster.items(), key=lambda item: item[1][1].value)
    return replace(stays, impl=impl, launch=_launch(joined), best_us=joined.median_us, speedup=speedup)


def _confirmed(best: Best, found: JoinedCase, budget: Budget | None) -> Best:
    default, joined = (found.get((impl, "impl")) for impl in (DEFAULT, best.impl or ""))
    stays = Best(best.case, best.default_us, why=f"{best.impl} was faster in the sweep, and not when measured again")
    aa = band(found, DEFAULT)
    if joined is None or aa is None or not (speedup := _speedup(default, joined, aa, budget)):
        return stays
    default_us = default.median_us if default else None
    return replace(best, default_us=default_us, best_us=joined.median_us, speedup=speedup)


def _speedup(default: Joined | None, joined: Joined, aa: float, budget: Budget | None) -> Ratio | None:
    """The speedup of a launch that may replace the default; None where it may not."""
    if joined.status != "ok":
        return None
    try:
        speedup = ratio(default, joined, budget)
    except IncomparableError:
        return None
    return speedup if verdict(speedup, aa) == "faster" else None


def _launch(joined: Joined) -> Launch:
    note = next(note for row in joined.rows for note in row.notes if note.startswith(NOTE))
    return from_text(note.removeprefix(NOTE))


def _tuned(best: Best) -> TunedCase:
    speedup = best.speedup
    return TunedCase(
        **asdict(problem_of(best.case)),
        default_us=_rounded(best.default_us),
        best_us=_rounded(best.best_us),
        speedup=speedup
        and Speedup(
            value=round(speedup.value, 4),
            low=round(speedup.low, 4),
            high=round(speedup.high, 4),
            processes=speedup.processes,
        ),
        launch=best.launch,
    )


def _rounded(us: float | None) -> float | None:
    return None if us is None else round(us, 3)
