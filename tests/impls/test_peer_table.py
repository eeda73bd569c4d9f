"""The table of docs/peers.md that says what each implementation takes, against what its adapter says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.cases import NormCase
from tests.impls.peer_cases import IMPLS

DOCUMENT = (Path(__file__).parents[2] / "docs/peers.md").read_text("utf-8")
USUAL = {"RMS": NormCase("rms", 8192, 4096), "LN": NormCase("layer", 8192, 4096, bias=True)}
OF_HEADS = "quack-per-head"  # which takes no plain case


def rows_of(document: str) -> dict[str, list[str]]:
    """The cells behind each name; one that begins with a hyphen goes on from the first of its row."""
    table = document.partition("## How each is called")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")][2:]
    return {
        name if not name.startswith("-") else names.partition(",")[0] + name: cells
        for names, *cells in rows
        for name in names.split(", ")
    }


def taken(name: str, **change: object) -> str:
    """Which of the norms that an adapter has it also takes with this change."""
    has = [norm for norm, case in USUAL.items() if IMPLS[name].unsupported(case) is None]
    takes = [norm for norm in has if IMPLS[name].unsupported(dataclasses.replace(USUAL[norm], **change)) is None]
    return "yes" if takes == has else ", ".join(takes) or "no"


def said_of(name: str) -> tuple[str, ...]:
    """The cells that an adapter can be asked about: its norms, a zero-centred weight, no weight."""
    norms = ", ".join(norm for norm, case in USUAL.items() if IMPLS[name].unsupported(case) is None)
    return norms, taken(name, zero_centred=True), taken(name, weight=False, bias=False)


@pytest.mark.parametrize("name", [name for name in rows_of(DOCUMENT) if name != OF_HEADS])
def test_the_table_says_what_the_adapter_says(name):
    _, norms, _, *parameters, variants = rows_of(DOCUMENT)[name]
    assert (norms, *parameters) == said_of(name)
    rms, layer = (IMPLS[name].handles[norm] for norm in ("rms", "layer"))
    if variants and not variants.startswith(("all", "what")) and not name.startswith("quack"):
        assert set(variants.removesuffix(" (RMS)").split(", ")) == rms
        assert layer == (frozenset() if variants.endswith(" (RMS)") or norms == "RMS" else rms)


def test_the_table_has_every_peer():
    own = {name for name in IMPLS if name.startswith("triton-inhouse-")}
    assert set(rows_of(DOCUMENT)) == set(IMPLS) - own


def test_a_wrong_cell_is_seen():
    row = "| mamba | x | RMS, LN | yes | no | no |"
    assert row in DOCUMENT
    _, _, _, *parameters, _ = rows_of(DOCUMENT.replace(row, row.replace("no | no", "no | RMS")))["mamba"]
    assert ("RMS, LN", *parameters) != said_of("mamba")
