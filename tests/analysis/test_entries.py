"""An entry of several processes, and one that the engine cannot resolve."""

import math

import pytest

from harness.analysis.comparison import compare
from harness.analysis.statistics import PROCESS_BAND
from harness.records.reasons import Reason
from harness.records.schema import VoidBlocks
from reports.labels import determinism
from tests.results_factory import CASE, helpers, in_processes, results, row, selftest, timing, twin, verification
from tests.wording import worded

PAIR = (row("torch-eager", 100.0), row("quack", 50.0, shift=1), *helpers(100.0, 25.0))


def only_case(*rows, **more):
    return compare(results(*rows, **more)).cases[0]


def test_an_entry_is_made_of_all_processes():
    scales = (1.0, 1.3, 1.1)
    alone = only_case(*PAIR).entry("quack")
    case = only_case(*in_processes(*PAIR, scales=scales), processes=3)
    entry = case.entry("quack")
    assert entry.median_us == pytest.approx(1.1 * alone.median_us)
    assert (entry.blocks, entry.processes, entry.speedup.processes) == (120, 3, 3)
    assert entry.speedup.value == pytest.approx(alone.speedup.value)
    assert entry.percent_of_add == pytest.approx(alone.percent_of_add)
    assert entry.spread > 2 * alone.spread
    assert entry.notes == ()


def test_deviating_process_can_remove_the_verdict():
    steady = only_case(*in_processes(row("liger", 95.0), *PAIR)).entry("liger")
    uneven = only_case(*in_processes(row("liger", 95.0), *PAIR, bias={("liger", "impl", 1): 1.2})).entry("liger")
    assert (steady.verdict, uneven.verdict) == ("faster", "same")
    assert uneven.speedup.low < 1 < uneven.speedup.high


def test_the_band_is_of_all_processes():
    sharp = only_case(*in_processes(*PAIR)).aa_band
    wide = only_case(*in_processes(*PAIR, bias={("torch-eager", "again", 1): 1.05})).aa_band
    assert sharp < 0.003
    assert wide == pytest.approx(math.log(1.05 / 1.01) / math.sqrt(3), abs=2e-3)  # of three processes one is off


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "oom"])
def test_one_process_that_fails_is_enough(status):
    failing = row("quack", status=status, reason="off", process=2)
    others = [each for each in in_processes(*PAIR) if (each.impl, each.process) != ("quack", 2)]
    entry = only_case(*others, failing).entry("quack")
    assert (entry.standing, entry.status, worded(entry.reason), entry.median_us) == (
        "failed",
        status,
        "process 2: off",
        None,
    )


@pytest.mark.parametrize(
    ("timed", "why"),
    [
        (timing(50.0, group="p1", proven=False), "process 1: unproven"),
        (timing(50.0, group="another"), "process 1: timed apart from the others (group another, flush clean)"),
        (timing(50.0, group="p1", flush="dirty"), "process 1: timed apart from the others (group p1, flush dirty)"),
    ],
)
def test_one_process_that_cannot_be_compared_takes_the_rank(timed, why):
    doubtful = row("quack", 50.0, timed=timed, process=1)
    others = [each for each in in_processes(*PAIR) if (each.impl, each.process) != ("quack", 1)]
    entry = only_case(*others, doubtful).entry("quack")
    assert (entry.standing, entry.speedup) == ("unranked", None)
    assert worded(entry.reason).startswith(why)


def test_the_worst_error_and_all_repetitions_count():
    checks = [verification(rho=1.0), verification(rho=1.4, error_class="one extra rounding"), verification()]
    unsteady = verification(differing_in=["dweight"])
    rows = [row("quack", 50.0, verification=check) for check in [*checks, unsteady]]
    rows = [in_processes(each, scales=(1,) * 4)[process] for process, each in enumerate(rows)]
    entry = only_case(*rows).entry("quack")
    assert (entry.checked.errors["dx"].rho, entry.checked.errors["dx"].error_class) == (1.4, "one extra rounding")
    assert (entry.checked.repeats, entry.checked.differing, entry.checked.differing_in) == (200, 2, ("dweight",))
    assert determinism(entry.checked) == "2 of 200 differ, in dweight"


def test_void_blocks_are_summed_over_processes():
    voided = [
        each.model_copy(
            update={
                "timing": each.timing.model_copy(
                    update={"voided": [VoidBlocks(cause=Reason("throttled"), blocks=each.process + 1)]}
                )
            }
        )
        for each in in_processes(*PAIR)
    ]
    assert only_case(*voided).voided == (VoidBlocks(cause=Reason("throttled"), blocks=6),)


@pytest.mark.parametrize(("t0", "standing"), [(5.4, "ranked"), (5.6, "unranked")])
def test_nothing_below_ten_t0_ranks(t0, standing):
    case = only_case(*PAIR, selftests=[selftest(t0_us=t0)])
    quack = case.entry("quack")
    assert (quack.standing, quack.median_us) == (standing, pytest.approx(54.9, rel=0.01))
    assert (case.lead and case.lead.impl) == ("quack" if standing == "ranked" else None)  # the slower one leads no more
    assert case.fastest is (quack if standing == "ranked" else None)
    if standing == "unranked":
        assert worded(quack.reason) == "below 10 x t0 (56.0 us): shown, not ranked"
        assert (quack.speedup, quack.verdict, quack.bandwidth_gbps) == (None, None, None)


def test_process_on_a_host_with_a_large_t0_is_set_aside():
    tests = [selftest(t0_us=1.3), selftest(process=1, t0_us=9.0)]
    case = only_case(*in_processes(*PAIR, scales=(1.0, 1.3)), processes=2, selftests=tests)
    quack, alone = case.entry("quack"), only_case(*PAIR).entry("quack")
    assert (quack.standing, quack.median_us, quack.speedup) == ("ranked", alone.median_us, alone.speedup)
    assert worded(quack.notes) == ["timed in 1 of 2 processes, 1 set aside for t0"]
    assert (case.set_aside, case.lead.impl) == ((1,), "quack")


def test_a_baseline_below_the_floor_gives_no_speedups():
    case = only_case(row("torch-eager", 8.0), row("quack", 50.0), *helpers(8.0, 6.0), selftests=[selftest()])
    assert (case.entry("torch-eager").standing, case.entry("quack").standing) == ("unranked", "ranked")
    assert case.entry("quack").speedup is None
    assert case.aa_band is not None


def test_another_baseline_is_judged_by_its_own_twin():
    rows = [*PAIR, twin("quack", 50.0, off=0.05)]
    assert compare(results(*rows)).cases[0].aa_band == PROCESS_BAND
    assert compare(results(*rows), "quack").cases[0].aa_band == pytest.approx(0.05, abs=2e-3)
    assert compare(results(*rows)).cases[0].case == CASE


def test_what_was_chosen_is_said_with_the_processes_that_chose_it_and_how_far_they_are_apart():
    tuned = [each.model_copy(update={"chosen": "8 warps"}) if each.impl == "quack" else each for each in PAIR]
    assert worded(only_case(*tuned).entry("quack").notes) == ["chosen: 8 warps"]
    rows = [
        each.model_copy(update={"chosen": "4 warps" if each.process == 1 else "8 warps"}) if each.chosen else each
        for each in in_processes(*tuned, scales=(1.0, 1.3, 1.1))
    ]
    chosen, scatter = only_case(*rows, processes=3).entry("quack").notes
    assert worded(chosen) == "chosen: process 0, 2: 8 warps; process 1: 4 warps"
    alone = only_case(*PAIR).entry("quack").median_us
    assert worded(scatter) == f"medians of the 3 processes: {alone:.1f} to {1.3 * alone:.1f} us"
