"""What is verified where nothing else is asked for: every kind of inputs at one shape, and the usual kind at the edges.

Also the reading of `--inputs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from harness.cases import DeviceKind, NormCase
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
        (2048, 515),  # odd
        (2048, 1023),  # one off a power of two
        (2048, 1025),
        (2048, 1028),  # rows of 16-bit numbers that begin on 8 bytes, not on 16
        (512, 65536),
        (65537, 32768),  # more than 2^31 elements
    ),
    "cpu": (
        (32, 128),
        (128, 128),
        (512, 128),
        (0, 128),
        (1, 128),
        (65537, 16),
        (64, 1),
        (32, 515),
        (32, 127),
        (32, 129),
        (32, 132),
        (2, 65536),
    ),
}


NEAR_ONE = 0.999  # a p that is 1 in bf16


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


def catalogue(cases: Sequence[NormCase], names: Sequence[str]) -> list[NormCase]:
    """Of the cases of SHAPES, the first shape's with every kind and the others' with the usual one, where asked for.

    Dropout is also tried with a p near 1.
    """
    rows, cols = SHAPES["cpu" if cases[0].device == "cpu" else "cuda"][0]
    first = [case for case in cases if (case.rows, case.cols) == (rows, cols)]
    others = [case for case in cases if (case.rows, case.cols) != (rows, cols)]
    others += [replace(case, dropout_p=NEAR_ONE) for case in first if case.dropout_p]
    return of_kinds(first, names) + of_kinds(others, [name for name in names if name == "normal"])


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
