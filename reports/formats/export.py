"""The comparison for other programs: csv with a line a row, json with everything but the raw samples."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from harness.cases.traffic import moved_bytes
from reports.columns import CSV, columns, rows_of
from reports.data.comparison import Comparison


def to_csv(comparison: Comparison) -> str:
    """A line for each implementation on each case; what is unknown or unbounded is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    rows = rows_of(comparison)
    chosen = columns(CSV, rows)
    writer.writerow([column.name for column in chosen])
    writer.writerows([_finite(column.value(row)) for column in chosen] for row in rows)
    return stream.getvalue()


def to_json(comparison: Comparison) -> str:
    """The comparison as one JSON object; nan and infinities are null, and each case carries its key and bytes."""
    whole = asdict(comparison)
    for record, case in zip(whole["cases"], comparison.cases, strict=True):
        record["key"] = case.case.key
        record["moved_bytes"] = moved_bytes(case.case)
    return json.dumps(_finite(whole), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _finite(value.model_dump())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
