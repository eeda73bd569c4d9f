"""The page of a verification: who is right on what, how precisely, with the same bits, and why not.

It takes several files, such as a run of all and a longer one of a single implementation.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.checks import worst_class
from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import Outcome, by_impl, join_outcomes, tally
from harness.errors import UsageError
from harness.records.schema import SanitizerRecord, Status
from reports import figures
from reports.markdown_writer import escape, paragraphs, write_section
from reports.parts import answers, caveats, determinism, matrix, precision, reasons
from reports.parts.conditions import conditions_list
from reports.table import Section, left, table

ABOUT_SANITIZER = "Errors of memory and of order that a tool of compute-sanitizer counted in one backward."
ALWAYS: tuple[Status, ...] = ("ok", "unsupported", "wrong")


def render(runs: Sequence[Comparison]) -> str:
    """The page as markdown; raises UsageError where the files are of different devices."""
    heading = title(runs)
    all_outcomes = join_outcomes(runs)
    parts = [
        f"# {escape(heading)}",
        escape(answers.verified(all_outcomes)),
        *(f"**{escape(caveat)}**" for comparison in runs for caveat in caveats.caveats(comparison)),
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
        _sanitizer([record for run in runs for record in run.sanitized]),
        reasons.section(outcomes),
    )
    return [section for section in made if section]


def summary(outcomes: Sequence[Outcome]) -> Section:
    """A line an implementation: in how many cases it came out how, its worst class, and its determinism."""
    impls = by_impl(outcomes)
    counts = {impl: tally(of_impl) for impl, of_impl in impls.items()}
    statuses: list[Status] = [s for s in matrix.WORDS if s in ALWAYS or any(counted[s] for counted in counts.values())]
    rows = [
        [
            impl,
            *(str(counts[impl][status]) for status in statuses),
            worst_class(o.checked.error_class for o in of_impl if o.normal) or figures.NOTHING,
            determinism.in_short(of_impl),
        ]
        for impl, of_impl in impls.items()
    ]
    heads = ("missing" if status == "missing" else matrix.WORDS[status] for status in statuses)
    headings = [*left("impl"), *heads, *left("class on normal inputs", "determinism")]
    return Section("Who is right", (table(headings, rows),))


def _sanitizer(records: Sequence[SanitizerRecord]) -> Section | None:
    """One line for each backward and tool; None where no tool was run."""
    rows = [
        [
            record.impl,
            record.case.key,
            record.tool,
            "not run" if record.errors is None else str(record.errors),
            figures.one_line(record.detail) or figures.NOTHING,
        ]
        for record in records
    ]
    headings = [*left("impl", "case", "tool"), "errors", *left("detail")]
    return Section("Sanitizer", (ABOUT_SANITIZER, table(headings, rows))) if rows else None


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
