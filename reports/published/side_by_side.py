"""Compares runs of the same cases in other circumstances, such as on two GPUs and on one: times and speedups."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from harness.analysis import figures
from harness.analysis.comparison import Comparison
from harness.analysis.joining import aa_ratio, by_case
from harness.analysis.statistics import PROCESS_BAND
from harness.cases import NormCase
from harness.records.published_plan import Plan
from reports.markdown_writer import paragraphs, table
from reports.parts.conditions import time_spent
from reports.published.sources import Source, by_device, usual_rankings
from reports.table import words

NEIGHBOURS = {  # the last first: the earliest had kernels to compile
    "neighbour-idle-again": "GPU 1 idle",
    "neighbour-busy": "GPU 1 measuring, just before",
    "neighbour-idle": "GPU 1 idle, before that",
}
OF_NEIGHBOURS = [
    *words("run"),
    "median of what the A/A pairs read, ±%",
    "speedups within the band of the first run",
    "median change of a time, ±%",
    "largest change of a time, %",
]


@dataclass(frozen=True)
class Shift:
    """The log of the factor between a speedup in the first run and in the second, and the A/A band in the first.

    The band is at least that of one process: the pairs of several may read next to nothing, while ratios differ from
    process to process.
    """

    case: str
    impl: str
    log_factor: float
    band: float

    @property
    def inside(self) -> bool:
        """Whether it is within the band."""
        return abs(self.log_factor) <= self.band

    @property
    def percent(self) -> float:
        """How much larger the speedup is in the second run, in percent."""
        return 100 * math.expm1(self.log_factor)

    def in_words(self) -> str:
        """The shift in words."""
        return f"{self.impl} at {self.case} by {figures.signed(self.percent)} %"


def two_gpus(sources: Sequence[Source], _plan: Plan) -> str:
    """For each device with both runs: a run on two GPUs of one host beside the same on one of them."""

    def told(one: Comparison, two: Comparison) -> str | None:
        if not (one.end and two.end and one.end.wall_s):
            return None
        return f"With two the run takes {two.end.wall_s / one.end.wall_s:.2f} of the time with one."

    return _section(sources, {"two-gpus-one": "one GPU", "two-gpus": "two GPUs"}, told)


def fleet_of_one(sources: Sequence[Source], _plan: Plan) -> str:
    """For each device with both runs: a run over a fleet of one GPU beside the same without a fleet."""
    return _section(sources, {"fleet-none": "without a fleet", "fleet-one": "a fleet of one GPU"}, lambda *_: None)


def another_run(sources: Sequence[Source], plan: Plan) -> str:
    """For each device: the README's run beside its cases in other contexts, and any two current runs of the plan.

    Runs outside of the plan had other libraries, or a neighbour.
    """
    parts: list[str] = []
    for named in _by_name(sources, "fast-llm", "contexts"):
        one, two = named["fast-llm"], named["contexts"]
        parts += [f"On {one.device_name}, fast-llm ({one.revision}) and the context cold of contexts ({two.revision}):"]
        parts += [_shifts_in_words(shifts(one.comparison, two.comparison), "fast-llm")]
    for files in by_device(usual_rankings(sources, plan)).values():
        parts += _any_two([source for source in files if source.name in plan.runs and not source.stale])
    return paragraphs(parts)


def _any_two(files: Sequence[Source]) -> list[str]:
    """How far any two of these runs are off each other, and whether they name the same fastest; empty if none share."""
    runs = [file.comparison for file in files]
    shifted = [shift for one, two in combinations(runs, 2) for shift in shifts(one, two)]
    if not shifted:
        return []
    fastest: defaultdict[NormCase, list[str]] = defaultdict(list)
    for case in (case for run in runs for case in run.cases):
        if case.lead and not case.lead.tied_with:
            fastest[case.case].append(case.lead.impl)
    again = {case.key: set(impls) for case, impls in fastest.items() if len(impls) > 1}
    others = [key for key, impls in again.items() if len(impls) > 1]
    same = figures.share(len(again) - len(others), len(again))
    these = f"the {len(files)} current runs of the plan with a clean flush, in the context cold, any two of them"
    return [
        f"On {files[0].device_name}, {these}:",
        _shifts_in_words(shifted, "by the order of the plan"),
        f"Cases that have a fastest, tied with none, in two of them or more: it is the same in {same}"
        f"{', and not in ' * bool(others)}{', '.join(others)}.",
    ]


def neighbours(sources: Sequence[Source], _plan: Plan) -> str:
    """For each device with all NEIGHBOURS: a run while another GPU of the host measures, and two while it does not."""
    parts: list[str] = []
    for named in _by_name(sources, *NEIGHBOURS):
        first, *others = (named[name] for name in NEIGHBOURS)
        rows = [[NEIGHBOURS[first.name], _pair_reading(first), *[figures.NOTHING] * 3]]
        rows += [[NEIGHBOURS[run.name], _pair_reading(run), *_differences(first, run)] for run in others]
        parts += [f"On {first.device_name}: {first.about}; {first.mark}.", table(OF_NEIGHBOURS, rows)]
        parts += [
            _shifts_in_words(
                shifts(first.comparison, run.comparison), NEIGHBOURS[first.name], f"{NEIGHBOURS[run.name]}: of"
            )
            for run in others
        ]
    return paragraphs(parts)


def _section(
    sources: Sequence[Source], runs: dict[str, str], told: Callable[[Comparison, Comparison], str | None]
) -> str:
    """Two runs, by their names in the plan, the second beside the first; `told` says what their times come to."""
    (first, first_name), (second, second_name) = runs.items()
    parts: list[str | None] = []
    for named in _by_name(sources, first, second):
        source, one, two = named[second], named[first].comparison, named[second].comparison
        rows = [[name, time_spent(run.end)] for name, run in ((first_name, one), (second_name, two))]
        parts += [f"On {source.device_name}: {source.about}; {source.mark}."]
        parts += [table(words("run", "time, and GPU time by stage"), rows), told(one, two)]
        parts += [_shifts_in_words(shifts(one, two), first_name)]
    return paragraphs(part for part in parts if part)


def _by_name(sources: Sequence[Source], *needed: str) -> Iterator[dict[str, Source]]:
    """The files of each device that has all that are needed, by their names in the plan."""
    for files in by_device(sources).values():
        named = {source.name: source for source in files}
        if named.keys() >= set(needed):
            yield named


def shifts(one: Comparison, two: Comparison) -> list[Shift]:
    """The shift of every speedup that both runs have, in cases where the first has an A/A band."""
    of_two = {
        (case.case, entry.impl): entry.speedup.value for case in two.cases for entry in case.entries if entry.speedup
    }
    return [
        Shift(
            case.case.key,
            entry.impl,
            math.log(of_two[case.case, entry.impl] / entry.speedup.value),
            max(PROCESS_BAND, case.aa_band),
        )
        for case in one.cases
        for entry in case.entries
        if case.aa_band is not None and entry.speedup and (case.case, entry.impl) in of_two
    ]


def _differences(one: Source, two: Source) -> list[str]:
    """How many speedups of the second run are within the A/A band of the first, and how far times are off."""
    shifted, changes = shifts(one.comparison, two.comparison), _changes(one.comparison, two.comparison)
    return [
        figures.share(sum(shift.inside for shift in shifted), len(shifted)),
        _median(map(abs, changes)),
        figures.signed(max(changes, key=abs, default=None)),
    ]


def _changes(one: Comparison, two: Comparison) -> list[float]:
    """How much longer each time that both runs have is in the second, in percent of the first."""
    before, after = _times(one), _times(two)
    return [100 * (after[key] / before[key] - 1) for key in before if key in after]


def _times(run: Comparison) -> dict[tuple[NormCase, str], float]:
    """The times of all implementations, those that are not ranked too, in us."""
    return {(case.case, entry.impl): entry.median_us for case in run.cases for entry in case.entries if entry.median_us}


def _pair_reading(run: Source) -> str:
    """What the A/A pairs of its cases read: the median, which no least band hides."""
    baseline = run.results.run.settings.baseline
    read = [aa_ratio(joined, baseline) for joined in by_case(run.results).values()]
    return _median(100 * math.expm1(abs(math.log(ratio.value))) for ratio in read if ratio)


def _median(percents: Iterable[float]) -> str:
    found = [*percents]
    return figures.percent(median(found) if found else None, 2)


def _shifts_in_words(shifts: Sequence[Shift], first_name: str, begin: str = "Of") -> str:
    """How many speedups are within the band, and how far off they are, in a sentence that begins with `begin`."""
    number, inside = figures.count(len(shifts), "speedup"), sum(shift.inside for shift in shifts)
    least = figures.band(PROCESS_BAND)
    text = f"{begin} {number}, {inside} are within the A/A band (at least {least}) of the first run, {first_name}"
    if not shifts:
        return f"{text}."
    off = sorted((abs(shift.percent) for shift in shifts), reverse=True)
    most = figures.percent(off[len(off) // 20], 2)  # of all but a twentieth
    furthest = sorted(shifts, key=lambda shift: -abs(shift.log_factor))[:3]
    return (
        f"{text}; half are off by at most {_median(off)} %, 95 % by at most {most} %, furthest "
        f"{', '.join(shift.in_words() for shift in furthest)}."
    )
