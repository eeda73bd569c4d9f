"""Shows several runs side by side; many runs of a device as a history, with the runs at which a level changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.analysis.history import History, Series, histories
from harness.cases import NormCase
from harness.errors import UsageError
from harness.records.schema import FAILED
from reports import figures
from reports.markdown_writer import escape, paragraphs, table, write_table
from reports.parts import answers, conditions
from reports.parts.caveats import caveats
from reports.parts.reasons import details
from reports.table import Cell, Table, left
from reports.table import table as make_table

ABOUT = (
    "Times are medians in us of what each run measured by itself. Devices, clocks and versions differ between runs: a "
    "time may be set beside another of the same device, a speedup over the run's own baseline beside any, and neither "
    "is a test. `normbwd compare` measures two revisions in the same blocks, and is one."
)
ABOUT_ADDS = (
    "The time of an elementwise add of the same bytes on the same device, over that of the implementation: how near it "
    "comes to what its own device moves."
)
ABOUT_CHANGES = (
    "Runs are numbered by time. A change is a step of 1 % or more in the time over that of the add in the same blocks, "
    "which chance does not explain (adjusted p up to 0.05); + is slower. None is looked for across a run of another "
    "environment than the run before."
)
FIGURES: dict[str, Callable[[Entry], str]] = {
    "us": lambda entry: figures.microseconds(entry.median_us),
    "speedup over the baseline": lambda entry: figures.ratio_and_interval(entry.speedup),
}
OF_ADD = "% of the device's add"
LIBRARIES = ("torch", "triton", "cuda", "liger-kernel", "quack-kernels", "nvidia-cudnn-frontend")
MOST_BESIDE = 6  # runs that have a column each


def render(comparisons: Sequence[Comparison]) -> str:
    """The page as markdown; raises UsageError for one file, for runs without times, or without a case in common."""
    cases = checked(comparisons)
    if len(comparisons) > MOST_BESIDE:
        return _histories(histories(comparisons))
    answered = "\n".join(
        f"- run {number}: {escape(' '.join([answers.headline(comparison), *caveats(comparison)]))}"
        for number, comparison in enumerate(comparisons, 1)
    )
    parts = ["# Runs side by side", ABOUT, _runs(comparisons), answered]
    for norm in dict.fromkeys(case.norm for case in cases):
        of_norm = [case for case in cases if case.norm == norm]
        for title, figure in FIGURES.items():
            parts += [f"## {norm}: {title}", _table(comparisons, of_norm, figure)]
        if len({comparison.run.device.name for comparison in comparisons}) > 1:
            shares = _table(comparisons, of_norm, lambda entry: figures.percent(entry.percent_of_add))
            parts += [f"## {norm}: {OF_ADD}", ABOUT_ADDS, shares]
    return paragraphs(parts)


def checked(comparisons: Sequence[Comparison]) -> list[NormCase]:
    """The cases that two files have; raises UsageError where there is none, and where they cannot stand together."""
    if len(comparisons) < 2:
        raise UsageError("--format history shows several files side by side; name two or more")
    if untimed := [str(number) for number, comparison in enumerate(comparisons, 1) if not comparison.timed]:
        raise UsageError(f"file {', '.join(untimed)} holds no times; --format verification takes verifications")
    count = Counter(case.case for comparison in comparisons for case in comparison.cases)
    cases = [case for case, runs in count.items() if runs > 1]
    if not cases:
        raise UsageError("the files have no case in common that two of them measured")
    return cases


def headline(history: History) -> str:
    """How many series of a device there are, and how many of them changed."""
    changed = sum(bool(series.changes) for series in history.series)
    on = f"{history.runs[0].run.device.name}, {len(history.runs)} runs"
    return (
        f"{on}: {changed} of {len(history.series)} series changed." if history.series else f"{on}: nothing to compare."
    )


def changes_table(history: History) -> Table:
    """A row for every case and implementation: those that changed come first, the largest change on top."""

    def largest(series: Series) -> float:
        return max((abs(change.relative) for change in series.changes), default=0.0)

    rows = [
        (
            series.case.key,
            series.impl,
            _changes(history, series) or figures.NOTHING,
            str(len(series.ranked)),
            *(figures.microseconds(entry.median_us) for at in (0, -1) if (entry := series.entries[series.ranked[at]])),
            _failures(series),
        )
        for series in sorted(history.series, key=largest, reverse=True)
    ]
    heads = [*left("case", "impl", "changed"), "runs", "first us", "last us", *left("failed")]
    return make_table(heads, rows)


def runs_table(history: History) -> Table:
    """A row for every run, oldest first, with what keeps it apart from the run before."""
    rows = [
        [
            str(place + 1),
            comparison.run.started_at[:16].replace("T", " "),
            revision(comparison),
            "; ".join(f"{key} {was} -> {now}" for key, (was, now) in history.breaks.get(place, {}).items()) or "-",
        ]
        for place, comparison in enumerate(history.runs)
    ]
    return make_table(["run", *left("started", "revision", "apart from the run before")], rows)


def revision(comparison: Comparison) -> str:
    """The commit that a run measured: head of a comparison of revisions, or else the checkout of this project."""
    head = next((side.commit for side in comparison.run.sides if side.word == "head"), comparison.run.revision)
    return (head or figures.NOTHING)[:9]


def _histories(of_devices: Sequence[History]) -> str:
    parts = ["# History", ABOUT_CHANGES]
    for history in of_devices:
        tables = changes_table(history), runs_table(history)
        parts += [f"## {escape(headline(history))}", *map(write_table, tables)]
    return paragraphs(parts)


def _changes(history: History, series: Series) -> str:
    return " and ".join(
        f"{figures.signed_percent(change.relative)} at run {change.run + 1} ({revision(history.runs[change.run])})"
        for change in series.changes
    )


def _failures(series: Series) -> Cell:
    failed = [(run, entry) for run, entry in enumerate(series.entries, 1) if entry and entry.status in FAILED]
    text = ", ".join(f"{entry.status} in run {run}" for run, entry in failed)
    why = tuple(line for _, entry in failed[:1] for line in details(entry.reason, entry.checked))
    return Cell(text or figures.NOTHING, why=why, about={"impl": series.impl})


def _runs(comparisons: Sequence[Comparison]) -> str:
    headings = ["run", *left("device", "date", "revision", "baseline", "flush", *LIBRARIES)]
    rows = [
        [
            str(number),
            comparison.run.device.name,
            comparison.run.started_at[:10],
            comparison.run.revision or figures.NOTHING,
            comparison.baseline,
            comparison.run.settings.flush,
            *(conditions.without_hashes(comparison.run.libraries.get(name, figures.NOTHING)) for name in LIBRARIES),
        ]
        for number, comparison in enumerate(comparisons, 1)
    ]
    return table(headings, rows)


def _table(comparisons: Sequence[Comparison], cases: Sequence[NormCase], figure: Callable[[Entry], str]) -> str:
    """A row for each case and implementation that at least two runs rank; a run without it has an empty cell."""
    by_case = [{case.case: case for case in comparison.cases} for comparison in comparisons]
    rows: list[list[str]] = []
    for case in cases:
        runs = [cases_of_run.get(case) for cases_of_run in by_case]
        impls = dict.fromkeys(entry.impl for case_of_run in runs if case_of_run for entry in case_of_run.ranked)
        for impl in impls:
            entries = [case_of_run.entry(impl) if case_of_run else None for case_of_run in runs]
            cells = [figure(e) if e and e.standing == "ranked" else figures.NOTHING for e in entries]
            if sum(text != figures.NOTHING for text in cells) > 1:
                rows.append([case.key, impl, *cells])
    return table([*left("case", "impl"), *_heads(comparisons)], rows)


def _heads(comparisons: Sequence[Comparison]) -> list[str]:
    """The runs by their devices, or by their numbers where a device has several."""
    devices = [comparison.run.device.name for comparison in comparisons]
    return devices if len(set(devices)) == len(devices) else [f"run {n}" for n in range(1, len(devices) + 1)]
