"""The page of a verification: who is right on what, how precisely, with the same bits, and why not.

It takes several files, such as a run of all and a longer one of a single implementation.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.checks import worst_class
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import Outcome, by_impl, join_outcomes, tally
from harness.errors import UsageError
from harness.records.schema import Status
from reports import figures
from reports.markdown_writer import escape, paragraphs, write_section
from reports.parts import answers, caveats, determinism, matrix, precision, reasons, sanitizer
from reports.parts.conditions import conditions_list
from reports.table import Section, left, table

COUNTED: dict[str, Status] = {
    "right": "ok",
    "nondet.": "nondeterministic",
    "refused": "unsupported",
    "wrong": "wrong",
    "impossible": "impossible",
    "crashed": "crashed",
    "timeout": "timeout",
    "oom": "oom",
    "missing": "missing",
}
ALWAYS = ("right", "refused", "wrong")


def render(runs: Sequence[Comparison]) -> str:
    """The page as markdown; raises UsageError where the files are of different devices."""
    heading = title(runs)
    all_outcomes = join_outcomes(runs)
    parts = [
        f"# {escape(heading)}",
        *(f"**{escape(caveat)}**" for comparison in runs for caveat in caveats.caveats(comparison)),
        escape(answers.verified(all_outcomes)),
        *(part for section in sections(runs, all_outcomes) for part in write_section(section)),
        "## Conditions",
        *(_conditions(number, comparison, len(runs)) for number, comparison in enumerate(runs, start=1)),
        chance(all_outcomes),
    ]
    return paragraphs(parts)


def title(runs: Sequence[Comparison]) -> str:
    """What the page is about; raises UsageError where the files are of different devices."""
    devices = {run.run.device.name for run in runs}
    if len(devices) > 1:
        raise UsageError(f"the files are of different devices ({', '.join(sorted(devices))}); give runs of one")
    return f"Verification of norm backwards on {', '.join(devices)}"


def sections(runs: Sequence[Comparison], outcomes: Sequence[Outcome]) -> list[Section]:
    """All that these files, which have these outcomes, say; a section that has nothing to show is left out."""
    made = (
        summary(outcomes),
        matrix.section(outcomes),
        precision.section(outcomes),
        precision.growth(outcomes),
        determinism.section(outcomes),
        sanitizer.section([record for run in runs for record in run.sanitized]),
        reasons.section(outcomes),
    )
    return [section for section in made if section]


def summary(outcomes: Sequence[Outcome]) -> Section:
    """A line an implementation: in how many cases it came out how, its worst class, and its determinism."""
    counts = {impl: tally(of_impl) for impl, of_impl in by_impl(outcomes).items()}
    heads = [
        head
        for head, status in COUNTED.items()
        if head in ALWAYS or any(counted[status] for counted in counts.values())
    ]
    rows = [
        [
            impl,
            *(str(counts[impl][COUNTED[head]]) for head in heads),
            _class(of_impl),
            determinism.in_short(of_impl),
        ]
        for impl, of_impl in by_impl(outcomes).items()
    ]
    headings = [*left("impl"), *heads, *left("class on normal inputs", "determinism")]
    return Section("Who is right", (table(headings, rows),))


def _class(outcomes: Sequence[Outcome]) -> str:
    return worst_class(outcome.checked.error_class for outcome in outcomes if outcome.normal) or figures.NOTHING


def _conditions(number: int, comparison: Comparison, runs: int) -> str:
    """Under what one file was made; numbered where there are several."""
    text = conditions_list(comparison)
    return f"### File {number}\n\n{text}" if runs > 1 else text


def chance(outcomes: Sequence[Outcome]) -> str:
    """For how many gradients the bounds allow; empty where that is not known."""
    cells = max((outcome.checked.cells for outcome in outcomes), default=1)
    if cells == 1:
        return ""
    return f"The bounds of the classes allow for chance over {cells} gradients of a run (Bonferroni)."
