"""A table to paste into a pull request: one implementation against the baseline, in at most 60 lines."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.defaults import OWN_IMPL
from harness.errors import UsageError
from reports import columns, figures
from reports.columns import Row
from reports.markdown_writer import code, escape, write_table
from reports.parts import answers, caveats, conditions, reasons, training_step
from reports.parts.geomeans import norms_side_by_side

MOST_LINES = 60
MOST_DETAILS = 20  # lines between <details> and </details>, so that the cases keep the larger part
LONGEST_LINE = 600


def render(comparison: Comparison, impl: str | None = None) -> str:
    """The text, about `impl`: by default those of `--impl` files, the project's own kernel, or the fastest on average.

    Raises UsageError where these results have no implementation of that name.
    """
    subjects = _subjects(comparison, impl)
    headlines = [_headline(comparison, subject) for subject in (subjects if comparison.timed else subjects[:1])]
    lead = [figures.one_line(headline, len(headline)) for headline in headlines]  # never cut: it says who is wrong
    lead += [figures.one_line(f"**{caveat}**", LONGEST_LINE) for caveat in caveats.caveats(comparison)]
    top = [line for text in lead for line in (escape(text), "")]
    budget = conditions.error_budget(comparison)
    step = [line for subject in subjects for line in _in_a_training_step(comparison, subject)]
    bottom = ["", *step, *([budget, ""] if budget else []), *_details(comparison, subjects), *_reproduce(comparison)]
    room = MOST_LINES - len(top) - len(bottom)
    return "\n".join([*top, *_cases(comparison, subjects, room), *bottom]) + "\n"


def _subjects(comparison: Comparison, impl: str | None) -> list[str]:
    names = list(dict.fromkeys(entry.impl for case in comparison.cases for entry in case.entries))
    if impl is not None:
        if impl not in names:
            raise UsageError(f"no implementation {impl!r} in these results; --subject can be: {', '.join(names)}")
        return [impl]
    run = comparison.run  # whose libraries name the files of --impl, with their hashes
    of_files = [item.name for item in run.implementations if item.source.rsplit("/", 1)[-1] in run.libraries]
    if subjects := [name for name in of_files if name in names and name != comparison.baseline]:
        return subjects
    competed = not comparison.timed or answers.competed(comparison, OWN_IMPL)
    if OWN_IMPL in names and comparison.baseline != OWN_IMPL and competed:
        return [OWN_IMPL]
    others = [mean for mean in comparison.summary.geomeans if mean.impl != comparison.baseline]
    if others:  # most cases first: a mean over a few easy cases is no lead
        return [max(others, key=lambda mean: (mean.cases, mean.value)).impl]
    return [next((name for name in names if name != comparison.baseline), comparison.baseline)]


def _headline(comparison: Comparison, subject: str) -> str:
    if not comparison.timed:
        return answers.headline(comparison)
    verdicts = [entry.verdict for case in comparison.cases if (entry := case.entry(subject)) and entry.speedup]
    counts = [f"{verdicts.count(word)} {word}" for word in ("faster", "slower", "same") if word in verdicts]
    against = f" Against {comparison.baseline}: {', '.join(counts)}." if counts else ""
    return answers.headline(comparison, subject) + against


def _cases(comparison: Comparison, subjects: Sequence[str], room: int) -> list[str]:
    """The table, in at most `room` lines; where rows are left out, those that are slower or have no time stay."""
    rows = [Row(comparison, case, case.entry(subject)) for case in comparison.cases for subject in subjects]
    fitting = room - 2  # the heads
    left_out = 0
    if len(rows) > fitting:
        fitting -= 2  # an empty line and the line that says so
        rows.sort(key=lambda row: _weight(row.entry))
        left_out = len(rows) - fitting
        rows = rows[:fitting]
    names = columns.PULL_REQUEST if comparison.timed else columns.PULL_REQUEST_UNTIMED
    if len(subjects) > 1:
        names, headings = (names[0], "impl", *names[1:]), {}
    else:
        headings = {"ranked_us": f"{subjects[0]} us"}
    lines = write_table(columns.table_of(names, rows, headings)).splitlines()
    return [*lines, "", f"… {left_out} more in report"] if left_out else lines


def _in_a_training_step(comparison: Comparison, subject: str) -> list[str]:
    """The subject in every context: a row a norm, and in how many cases it is fastest."""
    speedups = training_step.speedups(comparison, subject)
    if not speedups.rows:
        return []
    firsts = " ".join(training_step.leads(comparison, subject))
    return [
        f"{training_step.TITLE}, speedup over {comparison.baseline} (smallest):",
        "",
        *write_table(speedups).splitlines(),
        "",
        escape(firsts),
        "",
    ]


def _weight(entry: Entry | None) -> int:
    if entry is None or entry.standing in ("failed", "unranked"):
        return 0
    return {"slower": 0, "same": 1}.get(entry.verdict or "", 2)


def _details(comparison: Comparison, subjects: Sequence[str]) -> list[str]:
    """The geometric means of all, and what did not pass, folded."""
    lines = write_table(norms_side_by_side(comparison)).splitlines()
    failures = sorted(reasons.failure_lines(comparison), key=lambda failure: failure.split(":")[0] not in subjects)
    if failures:
        lines += [*([""] if lines else []), *(f"- {escape(figures.one_line(failure, 200))}" for failure in failures)]
    if not lines:
        return []
    if len(lines) > MOST_DETAILS:
        left_out = len(lines) - MOST_DETAILS + 2
        lines = [*lines[: MOST_DETAILS - 2], "", f"… {left_out} more lines in report"]
    summary = "All implementations: geometric mean speedup (smallest to largest); what did not pass"
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>", ""]


def _reproduce(comparison: Comparison) -> list[str]:
    made = "; ".join(f"{name}: {escape(value)}" for name, value in conditions.conditions(comparison))
    made = conditions.without_hashes(made)
    command = figures.one_line(comparison.run.command, LONGEST_LINE)
    return [f"Reproduce: {code(command)}", "", f"Conditions: {figures.one_line(made, 2 * LONGEST_LINE)}."]
