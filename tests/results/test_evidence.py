"""Planted interference: what was seen of the run, the host or the A/A pair leaves no verdict on a case."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.gate.judge import judge
from harness.gate.limits import Claim, Limits, Regression
from harness.results.evidence import EVENTS_AGAINST_PROFILER, MOST_HOST_LOAD, failed_checks
from harness.results.file import load
from harness.results.joining import band, by_case
from harness.results.schema import Check
from reports.data.comparison import compare
from reports.parts.wording import caveats, headline
from tests.results_factory import CASE, COLD, conditions, helpers, in_processes, results, row, selftest, timing

ROWS = [row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)]
LIMITS = Limits(
    claim=[Claim(impl="quack", over="torch-eager", at_least=2.5)],
    regression=[Regression(head="torch-eager", base="quack")],
)
BUSY = [0.0, 0.9, 1.0]


def stalled(seed=1, share=0.5, blocks=40):
    """Samples of which some waited for a CPU that others held."""
    rng = np.random.default_rng(seed)
    return [float(us) for us in 100.0 * np.where(rng.random(blocks) < share, 30.0, 1.0)]


def scattered(*rows):
    """The rows, each stalled at other moments than the others."""
    return [
        each.model_copy(update={"timing": timing(100.0).model_copy(update={"samples_us": stalled(seed)})})
        for seed, each in enumerate(rows)
    ]


def interfered(kind):
    return {
        "self-test": results(*ROWS, selftests=[selftest(COLD)]),
        "host": results(*ROWS, selftests=[selftest()], states=[conditions(host_load=BUSY)]),
        "A/A pair": results(*scattered(*ROWS), selftests=[selftest()]),
    }[kind]


REASONS = {
    "self-test": "the self-test failed (coldness)",
    "host": "other processes used 90 % of the CPUs",
    "A/A pair": "an A/A pair scatters by 170 % from block to block",
}


@pytest.mark.parametrize("kind", REASONS)
def test_interference_leaves_no_verdict(kind):
    run = interfered(kind)
    (case,) = by_case(run).values()
    assert (case.interference, band(case, "torch-eager")) == (REASONS[kind], np.inf)
    (compared,) = compare(run).cases
    assert {(entry.standing, entry.speedup, entry.verdict) for entry in compared.entries} == {("unranked", None, None)}
    assert compared.lead is None
    assert f"Nothing is ranked in 1 case: {REASONS[kind]}." in caveats(compare(run))


@pytest.mark.parametrize("kind", REASONS)
def test_a_gate_is_inconclusive_and_says_why(kind):
    verdicts = judge(interfered(kind), LIMITS)
    assert [(verdict.outcome, verdict.reason) for verdict in verdicts] == [("INCONCLUSIVE", REASONS[kind])] * 2


def test_without_interference_the_same_figures_are_judged():
    run = results(*ROWS, selftests=[selftest()], states=[conditions(host_load=[0.0, MOST_HOST_LOAD, 0.2])])
    (case,) = by_case(run).values()
    assert case.interference is None
    assert [verdict.outcome for verdict in judge(run, LIMITS)] == ["REGRESSED"] * 2
    assert compare(run).cases[0].entry("quack").verdict == "faster"


def test_interference_in_one_case_leaves_the_others_alone():
    other = replace(CASE, rows=512)
    rows = [*ROWS, *(each.model_copy(update={"case": other}) for each in ROWS)]
    cases = by_case(results(*rows, states=[conditions(host_load=BUSY), conditions(other, host_load=[0.0])]))
    assert [case.interference is None for case in cases.values()] == [False, True]


def test_one_process_with_a_busy_host_is_enough():
    quiet, busy = (conditions(process=process, host_load=load) for process, load in enumerate(([0.0], BUSY)))
    (case,) = by_case(results(*in_processes(*ROWS), states=[quiet, busy])).values()
    assert case.interference == REASONS["host"]


def test_no_ratio_rests_on_the_clock_of_the_profiler():
    check = Check(name=EVENTS_AGAINST_PROFILER, passed=False, value=2.0, limit=1.0, unit="us")
    assert failed_checks([selftest(check)]) == []
    assert failed_checks([selftest(check, COLD), selftest(when="after", process=1)]) == ["coldness"]


@pytest.mark.parametrize("seed", range(20))
def test_identical_kernels_on_loaded_host_are_ties(seed):
    """Whichever of them waits more for a CPU, and however evenly: some claim differences, and none may."""
    rng = np.random.default_rng(seed)
    rows = [
        each.model_copy(
            update={
                "timing": timing(100.0).model_copy(
                    update={"samples_us": (100.0 * np.exp(rng.normal(shift, 0.05, 40))).tolist()}
                )
            }
        )
        for each, shift in zip(ROWS, rng.normal(0, 1.0, 4), strict=True)
    ]
    loaded = compare(results(*rows, states=[conditions(host_load=[0.8] * 3)]))
    assert {entry.verdict for entry in loaded.cases[0].entries} == {None}
    assert (loaded.cases[0].ranked, loaded.cases[0].lead) == ((), None)
    assert headline(loaded) == "Nothing is ranked in 1 case: other processes used 80 % of the CPUs."


def quiet(blocks=60, seed=7):
    """Samples that scatter as those of an H200 do."""
    return 50.0 * np.exp(np.random.default_rng(seed).normal(0, 0.0175, blocks))


PLANTED = {
    "scatter": (
        lambda us: us * np.exp(np.random.default_rng(1).normal(0, 0.3, us.size)),
        r"scatters by \d+ % from block to block",
    ),
    "drift": (
        lambda us: us * np.linspace(1.0, 1.3, us.size),
        r"drifts by 1\d % from the first third of the blocks to the last",
    ),
    "burst": (
        lambda us: np.where(np.arange(us.size) % 60 // 9 == 3, 3 * us, us),
        "is off by more than 30 % in 15 % of the blocks",
    ),
}


def disturbed(plant, blocks=60):
    """A run of which one implementation alone met interference."""

    def timed(us):
        samples = {"samples_us": us.tolist(), "blocks": list(range(blocks))}
        return timing(100.0).model_copy(update=samples)

    rows = [
        each.model_copy(update={"timing": timed(factor * quiet(blocks, seed))})
        for seed, (each, factor) in enumerate(zip(ROWS, (2.0, 1.0, 2.0, 0.9), strict=True))
    ]
    rows[1] = rows[1].model_copy(update={"timing": timed(plant(np.array(rows[1].timing.samples_us)))})
    rows.append(row("liger", timed=timed(0.7 * quiet(blocks, 9)), us=35.0))
    return results(*rows, selftests=[selftest()])


@pytest.mark.parametrize("kind", PLANTED)
def test_own_samples_take_a_row_out_of_the_ranking(kind):
    plant, reason = PLANTED[kind]
    run = disturbed(plant)
    (case,) = compare(run).cases
    assert case.interference is None
    assert case.entry("quack").standing == "unranked"
    assert re.fullmatch(f"its ratio to torch-eager {reason}", case.entry("quack").reason)
    assert (case.entry("liger").verdict, case.lead) == ("faster", None)  # the row left out might be the fastest
    assert [(verdict.outcome, verdict.reason) for verdict in judge(run, LIMITS)] == [
        ("INCONCLUSIVE", f"quack: {case.entry('quack').reason}")
    ] * 2


@pytest.mark.parametrize("blocks", [6, 60])
def test_quiet_samples_are_ranked(blocks):
    (case,) = compare(disturbed(lambda us: us, blocks)).cases
    assert (case.entry("quack").standing, case.lead.impl) == ("ranked", "liger")


PUBLISHED = sorted(Path("results/h200").glob("*.jsonl.bz2"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name.split(".")[0])
def test_no_published_row_is_disturbed(path):
    cases = by_case(load(path))
    assert {case.key: joined.disturbed for case, joined in cases.items() if joined.disturbed} == {}
    assert {joined.interference for joined in cases.values()} <= {None}
