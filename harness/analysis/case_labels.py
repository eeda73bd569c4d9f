"""Names of norms, and short names of cases that stand under one norm: only what tells them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from harness.cases import Norm, NormCase
from harness.cases.input_kinds import INPUT_KINDS

NORMS: dict[Norm, str] = {"rms": "RMSNorm", "layer": "LayerNorm"}


def labels(cases: Sequence[NormCase]) -> dict[NormCase, str]:
    """A name for each case of one norm, usual inputs first, such as `normal, 8192 x 1024` and `strided-x`.

    The shape of other inputs stands where they come in several; dtypes and the like where they are not the usual.
    """
    common = usual(cases)
    shapes: dict[str, set[tuple[int, int]]] = {}
    for case in cases:
        shapes.setdefault(case.inputs, set()).add((case.rows, case.cols))
    ordered = sorted(dict.fromkeys(cases), key=lambda case: list(INPUT_KINDS).index(case.inputs))
    named: dict[NormCase, str] = {}
    for case in ordered:
        parts = [case.inputs]
        if case.inputs == "normal" or len(shapes[case.inputs]) > 1:
            parts.append(shape(case))
        if variant(case) != common:
            parts.append(variant(case))
        named[case] = ", ".join(parts)
    return named


def shape(case: NormCase) -> str:
    """Rows and columns."""
    return f"{case.rows} x {case.cols}"


def variant(case: NormCase) -> str:
    """What a case's key says beyond norm, shape and inputs: `bf16`, `bf16-wfp32`."""
    return replace(case, inputs="normal").key.split("-", 2)[2]


def usual(cases: Sequence[NormCase]) -> str:
    """The variant of most of these cases."""
    return Counter(variant(case) for case in cases).most_common(1)[0][0]
