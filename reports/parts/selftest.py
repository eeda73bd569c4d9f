"""The self-tests of a run: every check of the engine by itself, with what was found and the limit it must keep."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.results.file import Results
from harness.results.schema import Check, SelfTestRecord, worst
from reports import figures
from reports.parts import markdown_table, wording

WIDTH = 120
HEADS = ("check", "found", "limit", "passed", "how")
ASK = "No self-test was made here; `normbwd selftest` makes one.\n"
PASSED = {True: "passed", False: "FAILED", None: "not here"}


def render(records: Sequence[SelfTestRecord]) -> str:
    """The checks as plain text, 120 columns wide, a table a self-test, and what they say of the engine's error."""
    console = Console(width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False)
    with console.capture() as capture:
        for record in records:
            table = Table(title=_title(record), title_justify="left", box=SIMPLE_HEAD, show_edge=False)
            for head in HEADS:
                figure = head in ("found", "limit")
                table.add_column(head, justify="right" if figure else "left", no_wrap=figure, overflow="fold")
            for check in record.checks:
                table.add_row(*(escape(cell) for cell in _cells(check)))
            console.print(table)
            console.print()
        for line in [*wording.failed_checks(records), *_budget(records)]:
            console.print(escape(line), highlight=False)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def page(results: Results) -> str:
    """The self-tests of a run as a page of markdown."""
    if not results.selftests:
        return ASK
    parts = [f"# Self-test on {results.run.device.name}", _checks(results.selftests)]
    parts += [*wording.failed_checks(results.selftests), *_budget(results.selftests)]
    return "\n\n".join(parts) + "\n"


def details(records: Sequence[SelfTestRecord]) -> str:
    """The same as markdown, folded; empty where no self-test was made."""
    if not records:
        return ""
    checks = [check for record in records for check in record.checks]
    failed = sum(check.passed is False for check in checks)
    head = f"{figures.count(len(checks), 'check')}, {failed} failed"
    return f"<details><summary>Self-test of the engine: {head}</summary>\n\n{_checks(records)}\n\n</details>"


def _checks(records: Sequence[SelfTestRecord]) -> str:
    rows = [[_title(record), *_cells(check)] for record in records for check in record.checks]
    return markdown_table.table(["self-test", *HEADS], rows)


def _budget(records: Sequence[SelfTestRecord]) -> list[str]:
    return [wording.budget_sentence(worst([record.budget for record in records]))] if records else []


def _title(record: SelfTestRecord) -> str:
    when = wording.WHEN[record.when].strip()
    process = f"process {record.process}" if record.process else ""
    return ", ".join(part for part in (when, process) if part) or "self-test"


def _cells(check: Check) -> list[str]:
    found, limit = (figures.measure(value, check.unit) for value in (check.value, check.limit))
    return [check.name, found, limit, PASSED[check.passed], check.detail or figures.NOTHING]
