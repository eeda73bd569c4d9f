"""The cases that tests run with other libraries, and which of them each takes by the table of docs/peers.md."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.cases import NormCase
from harness.cases.variants import parse_variants, with_features
from tests.cases.test_unfused import COMBINED
from tests.impls.peer_cases import FAST, LAYER, RMS

DOCUMENT = (Path(__file__).parents[2] / "docs/peers.md").read_text("utf-8")
WIDE_RMS = dataclasses.replace(RMS, cols=64)  # the least that quack's tuner takes
CHANGES = {  # of a plain case, by the column that says who takes it
    "norms": {},
    "fp32 weight, bf16 x": {"dtype": "bf16"},
    "all bf16": {"dtype": "bf16", "weight_dtype": "bf16"},
    "zero-centred": {"zero_centred": True},
    "no weight": {"weight": False, "bias": False},
    "LN without bias": {"bias": False},
}
OF_HEADS = {  # two tokens of 20 heads
    "RMS": dataclasses.replace(WIDE_RMS, rows=40),
    "LN": dataclasses.replace(LAYER, rows=40, cols=64),
}
VARIANTS = [*COMBINED, "qk+residual", "gated+residual", "gated-norm-first+residual"]
# Variants that some refuse without a weight, though they take a plain case so.
ALWAYS_WITH_WEIGHT = {"fla": "gated", "liger": "residual", "tilegym": "residual"}


def rows_of(document: str) -> dict[str, dict[str, str]]:
    """The cells of each implementation by column; `-name` goes on from the first of its row."""
    table = document.partition("## What each takes")[2].partition("\n## ")[0]
    header, _, *lines = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")]
    columns = [cell.strip().replace("[variants](variants.md)", "variants") for cell in header]
    rows = {}
    for names, *cells in lines:
        first, *others = names.strip().split(", ")
        row = dict(zip(columns[1:], (cell.strip() for cell in cells), strict=True))
        rows |= dict.fromkeys((first, *(first + other for other in others)), row)
    return rows


ROWS = rows_of(DOCUMENT)
PEERS = [name for name in ROWS if not name.startswith(("torch", "triton-inhouse"))]


def says(cell: str, norm: str) -> bool:
    """Whether a cell says yes of a norm."""
    return cell == "yes" or norm in cell.split(", ")


def plain_cases(name: str) -> list[tuple[NormCase, bool]]:
    """Every plain case, and whether an implementation takes it."""
    row = ROWS[name] | {"all bf16": "yes"}
    return [
        (dataclasses.replace(base, **change), says(row["norms"], norm) and says(row.get(column, ""), norm))
        for norm, base in (("LN", FAST), ("RMS", WIDE_RMS))
        for column, change in CHANGES.items()
        if norm == "LN" or column != "LN without bias"
    ]


def variant_cases(name: str) -> list[tuple[NormCase, bool]]:
    """Every variant, also without a weight and with a zero-centred one, and whether an implementation has it itself."""
    row = ROWS[name]
    own, rms_alone, _ = row["variants of its own"].replace("these with", "").partition(" (RMS)")
    named = {cell.strip() for cell in own.replace("dropout", ", dropout").split(",")}
    norms = "RMS" if rms_alone or row["norms"] == "heads" else row["norms"]

    def takes(norm: str, text: str, column: str) -> bool:
        parts = text.split("+")
        has = text in named or (named.issuperset(parts) and not text.startswith("gated"))
        needs_weight = column == "no weight" and ALWAYS_WITH_WEIGHT.get(name.partition("-")[0]) in parts
        return (
            has and says(norms, norm) and says(row[column] if column != "norms" else norms, norm) and not needs_weight
        )

    return [
        (
            with_features(dataclasses.replace(OF_HEADS[norm], **CHANGES[column]), parse_variants(text)[0]),
            takes(norm, text, column),
        )
        for norm in OF_HEADS
        for text in VARIANTS
        for column in ("norms", "zero-centred", "no weight")
    ]
