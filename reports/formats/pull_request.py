"""A table to paste into a pull request: one implementation against the baseline, in at most 60 lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from harness.analysis.comparison import Comparison
from harness.analysis.verdicts import Verdict
from harness.defaults import OWN_IMPL
from harness.errors import UsageError
from harness.records.run_records import OUT_OPTION, SameCodeRecord
from reports import columns, figures
from reports.columns import Row
from reports.markdown_writer import code, escape, write_table
from reports.parts import answers, caveats, conditions, head, libraries, reasons, training_step

MOST_LINES = 60
MOST_DETAILS = 20  # lines between <details> and </details>, so that the cases keep the larger part
LONGEST_LINE = 600


def render(comparison: Comparison, impl: str | None = None, verdicts: Sequence[Verdict] = ()) -> str:
    """The text, about `impl`: by default those of `--impl` files, the project's own kernel, or the fastest on average.

    Of a `compare` run it is about head, with the `verdicts` of a gate. Raises UsageError where these results have no
    implementation of that name.
    """
    name = head.head_of(comparison)
    if name and impl in (None, name):
        return _head_and_base(comparison, name, verdicts)
    subjects = _subjects(comparison, impl)
    headlines = [_headline(comparison, subject) for subject in (subjects if comparison.timed else subjects[:1])]
    lead = [figures.one_line(headline, len(headline)) for headline in headlines]  # never cut: it says who is wrong
    lead += [figures.one_line(f"**{caveat}**", LONGEST_LINE) for caveat in caveats.caveats(comparison)]
    top = [line for text in lead for line in (escape(text), "")]
    budget = conditions.error_budget(comparison)
    step = [line for subject in subjects for line in _in_a_training_step(comparison, subject)]
    bottom = ["", *step, *([budget, ""] if budget else []), *_details(comparison, subjects), *_reproduce(comparison)]
    room = MOST_LINES - len(top) - len(bottom)
    names = columns.PULL_REQUEST if comparison.timed else columns.PULL_REQUEST_UNTIMED
    if len(subjects) > 1:
        names, headings = (names[0], "impl", *names[1:]), {}
    else:
        headings = {"ranked_us": f"{subjects[0]} us"}
    rows = [Row(comparison, case, case.entry(subject)) for case in comparison.cases for subject in subjects]
    return "\n".join([*top, *_table(rows, room, names, headings), *bottom]) + "\n"


def same_code(record: SameCodeRecord) -> str:
    """The text where head's code is base's."""
    impl, base, head = (escape(text) for text in (record.impl, *(side.commit[:12] for side in record.sides)))
    said = f"**{impl}: head's code is base's (comments and docstrings aside): nothing to measure.**"
    sides = f"Base {base}, head {head}: the adapter and what it may import relatively."
    return f"{said}\n\n{sides} `normbwd compare --even-if-same` measures all the same.\n"


def _head_and_base(comparison: Comparison, name: str, verdicts: Sequence[Verdict]) -> str:
    """The text of a `compare` run: right or wrong, faster or slower, all failures, the cases, folded the conditions."""
    made_of = f"{answers.revisions(comparison).removesuffix('.')}, on {comparison.run.device.name}."
    texts = (f"**{head.summary(comparison, name)}**", head.gate(verdicts), made_of)
    lines = [*head.failures(comparison, name), *(f"**{each}**" for each in head.warnings(comparison, bool(verdicts)))]
    top = [line for text in texts if text for line in (escape(figures.one_line(text, len(text))), "")]
    top += [*(f"- {escape(figures.one_line(line, len(line)))}" for line in lines), *([""] if lines else [])]
    budget = conditions.error_budget(comparison)
    made = [*_reproduce(comparison), *(["", budget] if budget else [])]
    bottom = ["", "<details><summary>Conditions</summary>", "", *made, "", "</details>"]
    outcomes = head.outcomes(verdicts, name)
    rows = [Row(comparison, case, case.entry(name), outcomes.get(case.case.key)) for case in comparison.cases]
    headings = {"base_us": "base us", "ranked_us": "head us"}
    table = _table(rows, MOST_LINES - len(top) - len(bottom), columns.HEAD_AND_BASE, headings)
    return "\n".join([*top, *table, *bottom]) + "\n"


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


def _table(rows: Sequence[Row], room: int, names: Sequence[str], headings: Mapping[str, str]) -> list[str]:
    """The table, in at most `room` lines; where rows are left out, those that are slower or have no time stay."""
    fitting = room - 2  # the heads
    cut: list[str] = []
    if len(rows) > fitting:
        fitting -= 2  # an empty line and the line that says so
        rows = sorted(rows, key=_weight)
        verdict = columns.COLUMNS[next(name for name in ("change", "verdict", "status") if name in names)]
        counts = Counter(verdict.cell(row).text.replace(figures.NOTHING, "no verdict") for row in rows[fitting:])
        words = ", ".join(f"{number} {word}" for word, number in counts.items())
        cut = ["", f"… {len(rows) - fitting} more in report: {words}"]
    return [*write_table(columns.table_of(names, rows[:fitting], headings)).splitlines(), *cut]


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


def _weight(row: Row) -> int:
    entry = row.entry
    if entry is None or entry.standing in ("failed", "unranked") or entry.other_bits:
        return 0
    words = (row.outcome, entry.verdict)
    return next((n for n, word in enumerate(("REGRESSED", "slower", "INCONCLUSIVE", "same"), 1) if word in words), 5)


def _details(comparison: Comparison, subjects: Sequence[str]) -> list[str]:
    """The geometric means of all, and what did not pass, folded."""
    lines = [line for part in libraries.tables(comparison) for line in write_table(part).splitlines()]
    failures = sorted(reasons.failure_lines(comparison), key=lambda failure: failure.split(":")[0] not in subjects)
    if failures:
        lines += [*([""] if lines else []), *(f"- {escape(failure)}" for failure in failures)]
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
    command = OUT_OPTION.sub("", comparison.run.command)
    for side in comparison.run.sides:  # HEAD is another commit elsewhere
        command = re.sub(rf" '?--{side.word}[ =]\S+", "", command) + f" --{side.word} {side.commit[:12]}"
    command = figures.one_line(command, LONGEST_LINE)
    return [f"Reproduce: {code(command)}", "", f"Conditions: {figures.one_line(made, 2 * LONGEST_LINE)}."]
