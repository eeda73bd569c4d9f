"""Where each implementation is best: the case in which it is furthest ahead of all others, or least behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.results.published.planned import Plan
from reports import figures
from reports.data.case_comparison import CaseComparison, Lead
from reports.markdown_writer import paragraphs, table
from reports.published.sources import Source, by_device, usual_rankings
from reports.table import words

OURS = "triton-inhouse"
ABOUT = (
    "The last number is the time of the fastest implementation of another library over its own, the median over blocks "
    "where these two are the fastest of all, else by medians: above 1 it is ahead. The tables of the run say whether "
    "that is more than noise. Cases in which something is too fast to be ranked have no fastest and are left out."
)


@dataclass(frozen=True)
class Stand:
    """One implementation in one case: how it leads, and by how much it is ahead of all other libraries, below 1 behind.

    `rival` is the fastest implementation of another library.
    """

    impl: str
    run: str
    case: str
    rival: str
    ahead: float
    leads: bool
    ties: bool


def section(sources: Sequence[Source], plan: Plan) -> str:
    """A table a device, over the runs of the plan with the usual flush in which several libraries rank.

    A case that stands in several is taken of the first. The implementation that is most ahead comes first.
    """
    parts: list[str] = []
    for files in by_device(sources).values():
        of_plan = usual_rankings(files, plan)
        if found := _by_impl(_once(stand for source in of_plan for stand in stands(source))):
            there = {stand.run for of_impl in found.values() for stand in of_impl}
            runs = ", ".join(f"{each.name} ({each.results.run.revision})" for each in of_plan if each.name in there)
            parts += [
                f"{files[0].device_name}, by these runs (and the revision of each): {runs}. {ABOUT}",
                _table(found),
            ]
    return paragraphs(parts)


def stands(source: Source) -> Iterator[Stand]:
    """Every implementation in every case of a run that has a fastest, where one of another library ranks too."""
    libraries = libraries_of(source)
    for case in source.comparison.cases:
        if case.lead is not None:
            yield from _of_case(case, case.lead, source.name, libraries)


def libraries_of(source: Source) -> dict[str, str]:
    """The library of each implementation; all that is this project's own, told a margin or not, is one."""
    names = [impl.name for impl in source.results.run.implementations]
    own = {name for name in names if name == OURS or name.startswith(f"{OURS}-")}
    return {impl.name: OURS if impl.name in own else impl.family for impl in source.results.run.implementations}


def _of_case(case: CaseComparison, lead: Lead, run: str, libraries: Mapping[str, str]) -> Iterator[Stand]:
    times = {entry.impl: entry.median_us for entry in case.ranked if entry.median_us}
    for impl, us in times.items():
        others = {other: other_us for other, other_us in times.items() if libraries[other] != libraries[impl]}
        if others:
            rival = min(others, key=others.__getitem__)
            first = (lead.impl, *lead.tied_with)
            ties = impl in first and not others.keys().isdisjoint(first)
            ahead = _by_blocks(lead, impl, rival) or others[rival] / us
            yield Stand(impl, run, case.case.key, rival, ahead, impl in first and not ties, ties)


def _by_blocks(lead: Lead, impl: str, rival: str) -> float | None:
    """How far it is ahead of the rival within blocks, where these two lead the case."""
    if lead.ratio is None:
        return None
    return {(impl, rival): lead.ratio.value, (rival, impl): 1 / lead.ratio.value}.get((lead.impl, lead.runner_up or ""))


def _once(found: Iterator[Stand]) -> Iterator[Stand]:
    """Each case of the run that comes first in the plan alone."""
    runs: dict[str, str] = {}
    return (stand for stand in found if runs.setdefault(stand.case, stand.run) == stand.run)


def _by_impl(found: Iterator[Stand]) -> dict[str, list[Stand]]:
    by_impl: dict[str, list[Stand]] = {}
    for stand in found:
        by_impl.setdefault(stand.impl, []).append(stand)
    return by_impl


def _table(found: Mapping[str, Sequence[Stand]]) -> str:
    best = {impl: max(of_impl, key=lambda stand: stand.ahead) for impl, of_impl in found.items()}
    rows = [
        [
            impl,
            str(len(found[impl])),
            str(sum(stand.leads for stand in found[impl])),
            str(sum(stand.ties for stand in found[impl])),
            f"{best[impl].case}, {best[impl].run}",
            figures.plain_ratio(best[impl].ahead),
        ]
        for impl in sorted(found, key=lambda impl: -best[impl].ahead)
    ]
    return table([*words("impl"), "cases", "fastest in", "ties in", "best case, run", "fastest other over it"], rows)
