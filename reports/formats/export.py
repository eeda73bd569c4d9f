"""The comparison for other programs: csv with a line a row, json with everything but the raw samples."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from harness.cases.traffic import moved_bytes
from reports.data.checks import TENSORS
from reports.data.comparison import CaseComparison, Comparison
from reports.data.entries import Entry

Cell = str | int | float | bool | None

_CASE: dict[str, Callable[[CaseComparison], Cell]] = {
    "case": lambda c: c.case.key,
    "norm": lambda c: c.case.norm,
    "rows": lambda c: c.case.rows,
    "cols": lambda c: c.case.cols,
    "dtype": lambda c: c.case.dtype,
    "weight_dtype": lambda c: c.case.weight_dtype,
    "weight": lambda c: c.case.weight,
    "bias": lambda c: c.case.bias,
    "zero_centred": lambda c: c.case.zero_centred,
    "eps": lambda c: c.case.eps,
    "inputs": lambda c: c.case.inputs,
    "moved_bytes": lambda c: moved_bytes(c.case),
    "add_us": lambda c: c.add_us,
    "aa_band_percent": lambda c: None if c.aa_band is None else 100 * _expm1(c.aa_band),
}
_ENTRY: dict[str, Callable[[Entry], Cell]] = {
    "impl": lambda e: e.impl,
    "standing": lambda e: e.standing,
    "status": lambda e: e.status,
    "reason": lambda e: e.reason,
    "median_us": lambda e: e.median_us,
    "spread_percent": lambda e: None if e.spread is None else 100 * e.spread,
    "blocks": lambda e: e.blocks,
    "processes": lambda e: e.processes,
    "speedup": lambda e: e.speedup.value if e.speedup else None,
    "speedup_low": lambda e: e.speedup.low if e.speedup else None,
    "speedup_high": lambda e: e.speedup.high if e.speedup else None,
    "verdict": lambda e: e.verdict,
    "bandwidth_gbps": lambda e: e.bandwidth_gbps,
    "percent_of_add": lambda e: e.percent_of_add,
    "percent_of_copy": lambda e: e.percent_of_copy,
    "percent_of_datasheet": lambda e: e.percent_of_datasheet,
    "repeats": lambda e: e.checked.repeats,
    "differing": lambda e: e.checked.differing,
    "differing_in": lambda e: " ".join(e.checked.differing_in),
    "peak_extra_bytes": lambda e: e.peak_extra_bytes,
    "kernels": lambda e: None if e.kernels is None else len(e.kernels),
    "prepare_s": lambda e: e.prepare_s,
    "via": lambda e: e.via,
    "in_place": lambda e: e.in_place,
    "proven": lambda e: e.proven,
    "notes": lambda e: "; ".join(e.notes),
}
_ERRORS = [f"{figure}_{tensor}" for tensor in TENSORS for figure in ("rho", "relative_rms", "error_class")]
COLUMNS = ["device", "flush", "baseline", *_CASE, *_ENTRY, *_ERRORS]


def to_csv(comparison: Comparison) -> str:
    """A line for each implementation on each case; what is unknown or unbounded is empty."""
    run = comparison.run
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for case in comparison.cases:
        for entry in case.entries:
            cells: list[Cell] = [run.device.name, run.settings.flush, comparison.baseline]
            cells += [of(case) for of in _CASE.values()]
            cells += [of(entry) for of in _ENTRY.values()]
            cells += [cell for tensor in TENSORS for cell in _errors(entry, tensor)]
            writer.writerow([_finite(cell) for cell in cells])
    return stream.getvalue()


def to_json(comparison: Comparison) -> str:
    """The comparison as one JSON object; nan and infinities are null, and each case carries its key and bytes."""
    whole = asdict(comparison)
    for record, case in zip(whole["cases"], comparison.cases, strict=True):
        record["key"] = case.case.key
        record["moved_bytes"] = moved_bytes(case.case)
    return json.dumps(_finite(whole), indent=1, allow_nan=False) + "\n"


def _errors(entry: Entry, tensor: str) -> list[Cell]:
    error = entry.checked.errors.get(tensor)
    return [error.rho, error.relative_rms, error.error_class] if error else [None, None, None]


def _expm1(value: float) -> float:
    return math.expm1(value) if math.isfinite(value) else math.nan


def _finite(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _finite(value.model_dump())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
