"""What became of each implementation of a run."""

import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from reports.parts import ran
from tests.results_factory import helpers, results, row, verification

CASES = [NormCase("rms", 8192, 4096), NormCase("layer", 4096, 2048, bias=True)]
TWO = verification(CASES[1], error_class="two")


@pytest.fixture(scope="module")
def comparison():
    rows = [each for case in CASES for each in (row("torch-eager", 100.0, case), *helpers(100.0, 30.0, case))]
    rows += [row("quack", 50.0, CASES[0]), row("quack", 50.0, CASES[1], verification=TWO)]
    rows += [row("liger", None, CASES[0], status="wrong", reason="dx is off\nby far"), row("liger", 60.0, CASES[1])]
    rows += [row("apex", None, case, status="missing", reason="not installed") for case in CASES]
    return compare(results(*rows))


def test_outcomes_are_counted_by_norm(comparison):
    assert [[cell.text for cell in row] for row in ran.outcomes(comparison).rows] == [
        ["torch-eager", "1 right", "1 right"],
        ["quack", "1 right", "1 right: dx (+2), dweight (+2), dbias (+2)"],
        ["liger", "1 wrong", "1 right"],
    ]


def test_reasons_follow_and_what_was_missing(comparison):
    failed, missing = ran.reasons(comparison)
    assert failed == "liger: wrong in 1 case, first rms-8192x4096-bf16: dx is off by far."
    assert missing.startswith("Missing: apex ")


def test_those_that_failed_are_named_in_a_sentence(comparison):
    assert ran.failed(comparison) == "Not ranked where it failed: liger (wrong in 1 of 2 cases)."


def test_what_keeps_its_bits_within_each_process_is_right():
    """It has words of its own, apart from what differs from run to run."""
    prints = [verification(fingerprint=bits) for bits in ("aa", "bb")]
    rows = [row("quack", 50.0, verification=each, process=process) for process, each in enumerate(prints)]
    unsteady = verification(differing_in=["dweight"])
    rows.append(row("liger", 60.0, status="nondeterministic", verification=unsteady))
    found = ran.outcomes(compare(results(*rows, row("torch-eager", 100.0), processes=2))).rows
    assert [[cell.text for cell in each] for each in found] == [
        ["torch-eager", "1 right"],
        ["quack", "1 right with other bits in a new process"],
        ["liger", "1 nondet."],
    ]
