"""Every reason for which nothing is called fastest stands in a sentence that can be read."""

from dataclasses import replace

import pytest

from harness.analysis.comparison import compare
from harness.records.reasons import Reason
from harness.records.schema import Check
from reports.parts.answers import no_fastest
from reports.parts.caveats import caveats
from tests.results_factory import CASE, helpers, in_processes, results, row, selftest, timing, twin

WARM = [row("torch-eager", 100.0), row("quack", 80.0), *helpers(100.0, 46.0)]


def told(*rows, **more):
    """What is said of the only case of a run."""
    (case,) = compare(results(*rows, **more)).cases
    assert case.lead is None
    return no_fastest(case)


def uneven(us, factors):
    """A timing of which some blocks take longer, by these factors in turn."""
    once = timing(us)
    samples = [sample * factors[block % len(factors)] for block, sample in enumerate(once.samples_us)]
    return once.model_copy(update={"samples_us": samples})


def rising(us):
    """A timing that takes a quarter longer in the last third of its blocks."""
    once = timing(us)
    samples = [sample * (1.25 if block >= 26 else 1.0) for block, sample in enumerate(once.samples_us)]
    return once.model_copy(update={"samples_us": samples})


RATIO = "its ratio to torch-eager"
DISTURBED = {
    "scatter": (uneven(50.0, (1.0, 1.5)), f"{RATIO} scatters by 20 % from block to block"),
    "drift": (rising(50.0), f"{RATIO} drifts by 22 % from the first third of the blocks to the last"),
    "bursts": (uneven(50.0, (1, 1, 1, 1, 1, 1, 1, 2)), f"{RATIO} is off by more than 30 % in 12 % of the blocks"),
}


@pytest.mark.parametrize("kind", DISTURBED)
def test_own_samples_that_are_disturbed(kind):
    timed, why = DISTURBED[kind]
    said = told(*WARM, row("liger", 50.0, timed=timed))
    assert said == f"Nothing is called fastest, because liger is not ranked ({why})."


@pytest.mark.parametrize("kind", DISTURBED)
def test_a_disturbed_pair_of_the_baseline(kind):
    timed, why = DISTURBED[kind]
    again = twin("torch-eager", 50.0).model_copy(update={"timing": timed})
    said = told(row("torch-eager", 50.0), row("quack", 40.0), again)
    assert said == f"Nothing is ranked: an A/A pair {why.removeprefix(f'{RATIO} ')}."


def test_what_is_too_fast():
    said = told(*WARM, row("liger", 9.0), selftests=[selftest(t0_us=2.0)])
    assert said == "Nothing is called fastest, because liger is too fast to be ranked, below 10 x t0 (20.0 us)."


def test_times_that_are_not_proven():
    said = told(row("liger", 50.0, timed=timing(50.0, proven=False)))
    assert said == (
        "Nothing is called fastest, because liger is not ranked (unproven: the device may have waited for the host, so "
        "host time may be inside)."
    )


def test_one_process_of_several_without_times():
    first, second = in_processes(row("liger", 50.0), scales=(1.0, 1.0))
    said = told(first, second.model_copy(update={"timing": None, "untimed": "it took too long"}), processes=2)
    assert said == ("Nothing is called fastest, because liger is not ranked (process 1: not timed: it took too long).")


def test_a_failed_self_test():
    failed = Check(name="coldness", passed=False, value=3.1, limit=2.0, unit="%")
    assert told(*WARM, selftests=[selftest(failed)]) == "Nothing is ranked: the self-test failed (coldness)."


def test_a_baseline_that_failed_on_a_cpu():
    """No ratio would be formed there; that it is wrong, and why, is said."""
    case = replace(CASE, device="cpu")
    note = Reason("adapter_note", {"text": "it sums in bf16"})
    baseline = row("torch-eager", case=case, status="wrong", notes=[note])
    slow = row("torch-eager", case=replace(case, rows=1), status="timeout", notes=[Reason("in_place")])
    said = "The baseline torch-eager is wrong in 1 case, timeout in 1 case: nothing is compared with it there."
    assert f"{said} It notes: it sums in bf16." in caveats(compare(results(baseline, slow)))
