"""The self-tests of a run: every check of the engine by itself, with its value and its limit."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from harness.analysis.comparison import Comparison
from harness.records.schema import Check, SelfTestRecord, worst
from reports import figures
from reports.markdown_writer import details as folded
from reports.markdown_writer import escape, paragraphs, write_table
from reports.parts import caveats, conditions
from reports.table import Table, left, table
from reports.terminal import captured, print_line, print_table

ASK = "No self-test was made here; `normbwd selftest` makes one.\n"
PASSED = {True: "passed", False: "FAILED", None: "not here"}


def render(records: Sequence[SelfTestRecord]) -> str:
    """The checks as plain text, 120 columns wide, a table a self-test, and what they say of the engine's error."""

    def show(console: Console) -> None:
        for record in records:
            print_table(console, _checks([record]).choose(range(1, 6)), _title(record))
            console.print()
        for line in [*caveats.failed_checks(records), *_budget(records)]:
            print_line(console, line)

    return captured(show)


def page(comparison: Comparison) -> str:
    """The self-tests of a run as a page of markdown."""
    records = comparison.selftests
    if not records:
        return ASK
    parts = [conditions.heading("Self-test", comparison.run), write_table(_checks(records))]
    parts += [*map(escape, caveats.failed_checks(records)), *_budget(records)]
    return paragraphs(parts)


def details(records: Sequence[SelfTestRecord]) -> str:
    """The same as markdown, folded; empty where no self-test was made."""
    if not records:
        return ""
    checks = [check for record in records for check in record.checks]
    failed = sum(check.passed is False for check in checks)
    head = f"{figures.count(len(checks), 'check')}, {failed} failed"
    return folded(f"Self-test of the engine: {head}", write_table(_checks(records)))


def _checks(records: Sequence[SelfTestRecord]) -> Table:
    rows = [[_title(record), *_cells(check)] for record in records for check in record.checks]
    return table([*left("self-test", "check"), "found", "limit", *left("passed", "how")], rows)


def _budget(records: Sequence[SelfTestRecord]) -> list[str]:
    return [conditions.budget_sentence(worst([record.budget for record in records]))] if records else []


def _title(record: SelfTestRecord) -> str:
    when = caveats.WHEN[record.when].strip()
    process = f"process {record.process}" if record.process else ""
    return ", ".join(part for part in (when, process) if part) or "self-test"


def _cells(check: Check) -> list[str]:
    value, limit = (figures.measure(value, check.unit) for value in (check.value, check.limit))
    return [check.name, value, limit, PASSED[check.passed], figures.one_line(check.detail, 400) or figures.NOTHING]
