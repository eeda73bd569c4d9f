"""The comparison for other programs: csv with a line a row, json with everything but the raw samples."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pydantic import BaseModel

from harness.analysis.comparison import Comparison
from harness.analysis.step import every_context
from harness.cases import NormCase
from harness.cases.traffic import moved_bytes
from harness.records.contexts import COLD
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from reports.columns import CSV, columns, rows_of

SCHEMA_VERSION = 1  # of the JSON: docs/schema/report.json


def to_csv(comparison: Comparison) -> str:
    """A line for each implementation on each case, in each context; what is unknown or unbounded is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    rows = [row for context in every_context(comparison) for row in rows_of(context)]
    chosen = columns(CSV if _is_plain(comparison) else ("context", *CSV), rows)
    writer.writerow([column.name for column in chosen])
    writer.writerows([_finite(column.value(row)) for column in chosen] for row in rows)
    return stream.getvalue()


def to_json(comparison: Comparison) -> str:
    """The comparison as one JSON object; each case carries its key and bytes."""
    return dumped({"schema_version": SCHEMA_VERSION} | _as_fields(comparison))


def dumped(value: Any) -> str:
    """Dataclasses and records as JSON: nan and infinities are null, and a reason carries its text."""
    return json.dumps(_finite(value), indent=1, allow_nan=False) + "\n"


def _as_fields(comparison: Comparison) -> dict[str, Any]:
    whole = _finite(replace(comparison, contexts=()))
    for record, case in zip(whole["cases"], comparison.cases, strict=True):
        record["key"] = case.case.key
        record["moved_bytes"] = moved_bytes(case.case)
    if _is_plain(comparison):  # written as before there were contexts
        return {name: value for name, value in whole.items() if name not in ("context", "holder", "contexts")}
    return whole | {"contexts": [_as_fields(context) for context in comparison.contexts]}


def _is_plain(comparison: Comparison) -> bool:
    return comparison.context == COLD and not comparison.contexts


def _finite(value: Any) -> Any:
    if isinstance(value, Reason):
        return _finite(value.model_dump()) | {"text": sentence(value)}
    if isinstance(value, BaseModel):
        return _finite(value.model_dump())
    if is_dataclass(value):
        names = (field.name for field in fields(value) if field.name != "joined")  # the raw samples
        key = {"key": value.key} if isinstance(value, NormCase) else {}
        return key | {name: _finite(getattr(value, name)) for name in names}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
