"""Shows several runs side by side: the results of each, without ratios between runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.cases import NormCase
from harness.errors import UsageError
from reports import figures
from reports.markdown_writer import escape, paragraphs, table
from reports.parts import answers, conditions
from reports.table import left

ABOUT = (
    "Times are medians in us of what each run measured by itself. Devices, clocks and versions differ between runs: a "
    "time may be set beside another of the same device, a speedup over the run's own baseline beside any, and neither "
    "is a test. `normbwd compare` measures two revisions in the same blocks, and is one."
)
ABOUT_ADDS = (
    "The time of an elementwise add of the same bytes on the same device, over that of the implementation: how near it "
    "comes to what its own device moves."
)
FIGURES: dict[str, Callable[[Entry], str]] = {
    "us": lambda entry: figures.microseconds(entry.median_us),
    "speedup over the baseline": lambda entry: figures.ratio_and_interval(entry.speedup),
}
OF_ADD = "% of the device's add"
LIBRARIES = ("torch", "triton", "cuda", "liger-kernel", "quack-kernels", "nvidia-cudnn-frontend")


def render(comparisons: Sequence[Comparison]) -> str:
    """The page as markdown; raises UsageError for one file, for runs without times, or without a case in common."""
    if len(comparisons) < 2:
        raise UsageError("--format history shows several files side by side; name two or more")
    if untimed := [str(number) for number, comparison in enumerate(comparisons, 1) if not comparison.timed]:
        raise UsageError(f"file {', '.join(untimed)} holds no times; --format verification takes verifications")
    cases = common(comparisons)
    if not cases:
        raise UsageError("the files have no case in common that two of them measured")
    answered = "\n".join(
        f"- run {number}: {escape(answers.answer(comparison))}" for number, comparison in enumerate(comparisons, 1)
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


def common(comparisons: Sequence[Comparison]) -> list[NormCase]:
    """The cases that at least two of the runs have, in the order in which they come."""
    count = Counter(case.case for comparison in comparisons for case in comparison.cases)
    return [case for case, runs in count.items() if runs > 1]


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
