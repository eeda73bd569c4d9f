"""The findings of compute-sanitizer."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.schema import SanitizerRecord
from reports import figures
from reports.table import Section, left, table

ABOUT = "Errors of memory and of order that a tool of compute-sanitizer counted in one backward."


def section(records: Sequence[SanitizerRecord]) -> Section | None:
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
    return Section("Sanitizer", (ABOUT, table(headings, rows))) if rows else None
