"""Names of norms and cases, and of implementations with a mark where the bits of their results differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from harness.analysis.case_comparison import Entry
from harness.analysis.checks import NEW_PROCESS, Checked, OtherBits
from harness.analysis.comparison import Comparison
from harness.analysis.libraries import unmeasured
from harness.analysis.step import Spender
from harness.analysis.summary import Geomean, Wins
from harness.cases import Norm, NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.grouping import grouped
from reports import figures

NORMS: dict[Norm, str] = {"rms": "RMSNorm", "layer": "LayerNorm"}
MARKS: dict[OtherBits, str] = {"in one process": "nondeterministic", "in a new process": "other bits in a new process"}


def first_word(comparison: Comparison) -> str:
    """What coming first is called: `fastest` where every variant of every library was measured, else `first`."""
    return "fastest" if unmeasured(comparison) == [] else "first"


def case_labels(cases: Sequence[NormCase]) -> dict[NormCase, str]:
    """A name for each case of one norm, usual inputs first, such as `normal, 8192 x 1024` and `strided-x`.

    The shape of other inputs stands where they come in several; dtypes and the like where they are not the usual.
    """
    common = usual(cases)
    shapes = grouped((case.inputs, (case.rows, case.cols)) for case in cases)
    ordered = sorted(dict.fromkeys(cases), key=lambda case: list(INPUT_KINDS).index(case.inputs))
    named: dict[NormCase, str] = {}
    for case in ordered:
        parts = [case.inputs]
        if case.inputs == "normal" or len(set(shapes[case.inputs])) > 1:
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


def entry_label(entry: Entry) -> str:
    """The name, marked where the result has other bits or is unproven."""
    return _marked(entry.impl, MARKS[entry.other_bits] if entry.other_bits else "" if entry.proven else "unproven")


def spender_label(spender: Spender) -> str:
    """The name, marked where a result has other bits."""
    return _marked(spender.impl, MARKS[spender.other_bits] if spender.other_bits else "")


def counted_label(counted: Geomean | Wins) -> str:
    """The name, with the number of its cases in which results had other bits."""
    return _marked(counted.impl, ", ".join(f"{MARKS[where]} in {cases}" for where, cases in counted.other_bits.items()))


def determinism(checked: Checked) -> str:
    """The determinism in words, with the number of repetitions."""
    if checked.differing:
        where = f", in {', '.join(checked.differing_in)}" if checked.differing_in else ""
        return f"{checked.differing} of {checked.repeats} differ{where}"
    if checked.moved:
        return MARKS["in a new process"]
    return f"same bits in {checked.repeats} runs" if checked.repeats else "not checked"


def same_bits(checked: Checked) -> str:
    """The same in a few characters; `-` where it was not checked."""
    if checked.differing:
        return f"no, {checked.differing}/{checked.repeats}"
    if checked.moved:
        return f"no, {NEW_PROCESS}"
    return f"n={checked.repeats}" if checked.repeats else figures.NOTHING


def _marked(impl: str, mark: str) -> str:
    return f"{impl} ({mark})" if mark else impl
