"""What is verified where nothing else is asked for: every kind of inputs at one shape, and the usual kind at the edges.

Also the reading of `--inputs`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, get_args

from harness.cases import ITEM_BYTES, DeviceKind, Dtype, NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.suites import Shape
from harness.errors import UsageError, name_hint

# The shape at which every kind is tried, first; then others with the same columns, for the slope of the error against
# rows; then the edges. A GPU's first is one that Inductor's fused backward takes (rows >= 2 * cols, 5 * 2^20 elements).
# A CPU's are small, as Triton's interpreter is slow.
SHAPES: dict[DeviceKind, tuple[Shape, ...]] = {
    "cuda": (
        (8192, 1024),
        (512, 1024),
        (2048, 1024),
        (32768, 1024),
        (0, 1024),
        (1, 1024),
        (65537, 1024),  # one more than a grid's y and z may have
        (2048, 1),
        (2047, 515),  # odd, both
        (2048, 1023),  # one off a power of two
        (2048, 1025),
        (2048, 1028),  # rows of 16-bit numbers that begin on 8 bytes, not on 16
        (512, 65536),
        (8388609, 62),  # more than 2^23 rows, of columns that 4 does not divide
        (65537, 32768),  # more than 2^31 elements
        (2097153, 1024),
        (131073, 32768),  # more than 2^32
    ),
    "cpu": (
        (32, 128),
        (128, 128),
        (512, 128),
        (0, 128),
        (1, 128),
        (65537, 16),
        (64, 1),
        (31, 515),
        (32, 127),
        (32, 129),
        (32, 132),
        (2, 65536),
    ),
}

# Inputs, dx, copies of them, and what an implementation keeps, in times the bytes of x: where they do not fit on a
# device, a shape of the catalogue is left out.
TIMES_X = 10

NEAR_ONE = 0.999  # a p that is 1 in bf16

# Parameters that are not the usual ones, and the kinds of inputs that show whether an implementation heeds them.
OTHER_PARAMETERS: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...] = (
    *(("another eps (--eps)", {"eps": eps}, ("small-x",)) for eps in (1e-12, 1e-6, 1e-3)),
    ("a zero-centred weight (--zero-centred)", {"zero_centred": True}, ("correlated", "outliers")),
    ("no weight (--no-weight)", {"weight": False, "bias": False}, ("correlated", "outliers")),
    ("LayerNorm without a bias (--no-bias)", {"bias": False}, ("correlated",)),
    ("a weight in fp32 (--weight-dtype)", {"weight_dtype": "fp32"}, ("correlated", "outliers")),
)


def parse_inputs(text: str) -> list[str]:
    """Parse `normal,mean-*` or `all` into kinds of inputs; raises UsageError for a pattern that matches none."""
    patterns = [part.strip().lower() for part in text.split(",")]
    for pattern in patterns:
        if pattern != "all" and not any(fnmatchcase(name, pattern) for name in INPUT_KINDS):
            hint = name_hint(pattern, INPUT_KINDS, "choose among all,")
            raise UsageError(f"--inputs {pattern or '(empty)'}: no inputs are called so; {hint}")
    return [name for name in INPUT_KINDS if any(part == "all" or fnmatchcase(name, part) for part in patterns)]


def of_kinds(cases: Sequence[NormCase], names: Sequence[str]) -> list[NormCase]:
    """Each case with each kind of inputs that suits it."""
    return [
        replace(case, inputs=name)
        for case in cases
        for name in names
        if INPUT_KINDS[name].suits(norm=case.norm, weight=case.weight, bias=case.bias, features=case.features)
    ]


def catalogue(cases: Sequence[NormCase], names: Sequence[str], memory_bytes: int | None = None) -> list[NormCase]:
    """Of the cases of SHAPES, the first shape's with every kind and the others' with the usual one, where asked for.

    The first is also tried with other parameters, where all are the usual ones, and dropout with a p near 1. What does
    not fit into the memory of a device is left out.
    """
    rows, cols = SHAPES[cases[0].device][0]
    first = [case for case in cases if (case.rows, case.cols) == (rows, cols)]
    others = [case for case in cases if (case.rows, case.cols) != (rows, cols)]
    others += [replace(case, dropout_p=NEAR_ONE) for case in first if case.dropout_p]
    most_bytes = math.inf if memory_bytes is None else memory_bytes // TIMES_X
    others = [case for case in others if case.rows * case.cols * ITEM_BYTES[case.dtype] <= most_bytes]
    varied = [
        case
        for _, changes, kinds in OTHER_PARAMETERS
        for case in of_kinds([replace(each, **changes) for each in first if each == _usual(each)], kinds)
        if case.inputs in names and case != _usual(case)
    ]
    return of_kinds(first, names) + varied + of_kinds(others, [name for name in names if name == "normal"])


def _usual(case: NormCase) -> NormCase:
    """The case with the parameters that a norm has where nothing else is asked for."""
    usual = replace(case, weight=True, zero_centred=False, weight_dtype=case.dtype, eps=NormCase.eps)
    return replace(usual, bias=case.norm == "layer")


def not_tried(cases: Collection[NormCase]) -> list[str]:
    """What none of these cases has: other parameters, variants, dtypes, many elements, and kinds of inputs."""
    varied = {name for case in cases for name, value in vars(_usual(case)).items() if getattr(case, name) != value}
    dtypes = [name for name in get_args(Dtype) if name not in {case.dtype for case in cases}]
    suits = {case.inputs for case in of_kinds(list(cases), list(INPUT_KINDS))}
    kinds = len(suits - {case.inputs for case in cases})
    absent = {
        **{what: next(iter(changes)) not in varied for what, changes, _ in OTHER_PARAMETERS},
        "variants (--variant)": not any(case.features for case in cases),
        f"x in {' or '.join(dtypes)} (--dtype)": bool(dtypes),
        "more than 2^31 elements": all(case.rows * case.cols <= 1 << 31 for case in cases),
        f"{kinds} kinds of inputs (--inputs)": kinds > 0,
    }
    return [what for what, is_absent in absent.items() if is_absent]


def studied(cases: Sequence[NormCase]) -> frozenset[NormCase]:
    """The cases of usual inputs in which an implementation is looked at most closely.

    They are those beside which others are tried, and where there are none the first of each norm.
    """
    others = {replace(case, inputs="normal") for case in cases if case.inputs != "normal"}
    first = {case.norm: case for case in reversed(cases) if case.inputs == "normal"}
    return frozenset(case for case in cases if case in others) or frozenset(first.values())


def compiled_alike(case: NormCase) -> NormCase:
    """The case whose compiled code serves this one too: numbers are nothing to a compiler, layouts are."""
    return replace(case, inputs="normal") if INPUT_KINDS[case.inputs].layout == "contiguous" else case
