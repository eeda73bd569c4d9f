"""The best case of each implementation: where it is furthest ahead of all others, or least behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis import figures
from harness.analysis.case_comparison import CaseComparison, Lead
from harness.analysis.comparison import Comparison
from harness.records.published_plan import Plan
from reports.markdown_writer import paragraphs, table
from reports.published.sources import Source, by_device, usual_rankings
from reports.table import words

OURS = "triton-inhouse"
ABOUT = (
    "The last number is the time of the fastest implementation of another library over its own, the median over blocks "
    "where these two are the fastest of all, else by medians: above 1 it is ahead. The tables of the run say whether "
    "that is more than noise. A case counts in the first of these runs that has it, in the context cold. Cases "
    "in which something is too fast to be ranked have no fastest and are left out."
)


@dataclass(frozen=True)
class Placing:
    """One implementation in one case: whether it leads or ties, and the time of its rival over its own (`ahead`).

    The `rival` is the fastest implementation of another library.
    """

    impl: str
    run: str
    case: str
    rival: str
    ahead: float
    leads: bool
    ties: bool


def section(sources: Sequence[Source], plan: Plan) -> str:
    """A table for each device, over the files of `usual_rankings` in which several libraries rank.

    A case that is in several runs is taken from the first. The implementation that is most ahead comes first.
    """
    parts: list[str] = []
    for files in by_device(sources).values():
        rankings = usual_rankings(files, plan)
        if by_impl := _by_impl(_first_run_only(placing for source in rankings for placing in placings(source))):
            names = {placing.run for of_impl in by_impl.values() for placing in of_impl}
            runs = ", ".join(f"{run.name} ({run.revision})" for run in rankings if run.name in names)
            parts += [
                f"{files[0].device_name}, by these runs (and the revision of each): {runs}. {ABOUT}",
                _table(by_impl),
            ]
    return paragraphs(parts)


def placings(source: Source, comparison: Comparison | None = None) -> Iterator[Placing]:
    """Every implementation in every case of a run that has a lead, where one of another library ranks too.

    `comparison` is that of one context of the run, by default cold.
    """
    libraries = libraries_of(source)
    for case in (comparison or source.comparison).cases:
        if case.lead is not None:
            yield from _of_case(case, case.lead, source.name, libraries)


def libraries_of(source: Source) -> dict[str, str]:
    """The library of each implementation; all in-house kernels, with or without a margin, are one library."""
    names = [impl.name for impl in source.results.run.implementations]
    own = {name for name in names if name == OURS or name.startswith(f"{OURS}-")}
    return {impl.name: OURS if impl.name in own else impl.family for impl in source.results.run.implementations}


def _of_case(case: CaseComparison, lead: Lead, run: str, libraries: Mapping[str, str]) -> Iterator[Placing]:
    times = {entry.impl: entry.median_us for entry in case.ranked if entry.median_us}
    for impl, us in times.items():
        others = {other: other_us for other, other_us in times.items() if libraries[other] != libraries[impl]}
        if others:
            rival = min(others, key=others.__getitem__)
            first = (lead.impl, *lead.tied_with)
            ties = impl in first and not others.keys().isdisjoint(first)
            ahead = _by_blocks(lead, impl, rival) or others[rival] / us
            yield Placing(impl, run, case.case.key, rival, ahead, impl in first and not ties, ties)


def _by_blocks(lead: Lead, impl: str, rival: str) -> float | None:
    """The ratio to the rival within blocks, where these two lead the case; otherwise None."""
    if lead.ratio is None:
        return None
    return {(impl, rival): lead.ratio.value, (rival, impl): 1 / lead.ratio.value}.get((lead.impl, lead.runner_up or ""))


def _first_run_only(placings: Iterator[Placing]) -> Iterator[Placing]:
    """The placings without those of a case that an earlier run has."""
    runs: dict[str, str] = {}
    return (placing for placing in placings if runs.setdefault(placing.case, placing.run) == placing.run)


def _by_impl(placings: Iterator[Placing]) -> dict[str, list[Placing]]:
    by_impl: dict[str, list[Placing]] = {}
    for placing in placings:
        by_impl.setdefault(placing.impl, []).append(placing)
    return by_impl


def _table(by_impl: Mapping[str, Sequence[Placing]]) -> str:
    best = {impl: max(placings, key=lambda placing: placing.ahead) for impl, placings in by_impl.items()}
    rows = [
        [
            impl,
            str(len(by_impl[impl])),
            str(sum(placing.leads for placing in by_impl[impl])),
            str(sum(placing.ties for placing in by_impl[impl])),
            f"{best[impl].case}, {best[impl].run}",
            figures.plain_ratio(best[impl].ahead),
        ]
        for impl in sorted(by_impl, key=lambda impl: -best[impl].ahead)
    ]
    return table([*words("impl"), "cases", "fastest in", "ties in", "best case, run", "fastest other over it"], rows)
