"""Planted interference: what was seen of the run, the device or the A/A pair leaves no verdict on a case."""

import re
from dataclasses import replace

import numpy as np
import pytest

from harness.analysis.comparison import compare
from harness.analysis.evidence import EVENTS_AGAINST_PROFILER, failed_checks, too_void, void_shares
from harness.analysis.joining import band, by_case
from harness.gate.judge import judge
from harness.gate.limits import Claim, Limits, Regression
from harness.records.reasons import ALL_VOID, Reason
from harness.records.schema import Check, ContextRecord
from reports.formats import console, grid, markdown, pull_request
from reports.parts.answers import headline
from reports.parts.caveats import caveats
from tests.results_factory import CASE, COLD, conditions, helpers, in_contexts, results, row, selftest, timing
from tests.wording import worded

ROWS = [row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)]
LIMITS = Limits(
    claim=[Claim(impl="quack", over="torch-eager", at_least=2.5)],
    regression=[Regression(head="torch-eager", base="quack")],
)
ON_CPU = [each.model_copy(update={"case": replace(CASE, device="cpu")}) for each in ROWS]


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
        "CPU": results(*ON_CPU, cpu=True),
        "A/A pair": results(*scattered(*ROWS), selftests=[selftest()]),
    }[kind]


REASONS = {
    "self-test": "the self-test failed (coldness)",
    "CPU": worded(Reason("on_a_cpu")),
    "A/A pair": "an A/A pair scatters by 170 % from block to block",
}


@pytest.mark.parametrize("kind", REASONS)
def test_interference_leaves_no_verdict(kind):
    run = interfered(kind)
    (case,) = by_case(run).values()
    assert (worded(case.interference), band(case, "torch-eager")) == (REASONS[kind], np.inf)
    (compared,) = compare(run).cases
    assert {(entry.standing, entry.speedup, entry.verdict) for entry in compared.entries} == {("unranked", None, None)}
    assert compared.lead is None
    nothing = f"Nothing is ranked in 1 case: {REASONS[kind]}."
    assert headline(compare(run)) == f"2 of 2 right, same bits. {nothing}"
    assert headline(compare(run), "quack") == f"quack: right 1 of 1, same bits 1 of 1. {nothing}"
    assert nothing not in caveats(compare(run))  # which is printed beside it


@pytest.mark.parametrize("kind", REASONS)
def test_a_gate_is_inconclusive_and_says_why(kind):
    verdicts = judge(interfered(kind), LIMITS)
    assert [(verdict.outcome, worded(verdict.reason)) for verdict in verdicts] == [("INCONCLUSIVE", REASONS[kind])] * 2


@pytest.mark.parametrize("kind", REASONS)
@pytest.mark.parametrize("render", [console.render, markdown.render, pull_request.render, grid.render])
def test_what_speaks_against_every_case_is_said_once(kind, render):
    text = " ".join(render(compare(interfered(kind))).split())
    assert text.count("Nothing is ranked") == 1
    assert "unknown" not in text.replace("unknown, as no self-test was made", "")


def test_without_interference_the_same_figures_are_judged():
    run = results(*ROWS, selftests=[selftest()])
    (case,) = by_case(run).values()
    assert case.interference is None
    assert [verdict.outcome for verdict in judge(run, LIMITS)] == ["REGRESSED"] * 2
    assert compare(run).cases[0].entry("quack").verdict == "faster"


def test_interference_in_one_case_leaves_the_others_alone():
    other = [each.model_copy(update={"case": replace(CASE, rows=512)}) for each in scattered(*ROWS)]
    run = results(*ROWS, *other)
    assert [case.interference is None for case in by_case(run).values()] == [True, False]
    assert f"Nothing is ranked in 1 case: {REASONS['A/A pair']}." in caveats(compare(run))
    assert headline(compare(run)).startswith("2 of 2 right, same bits. quack is fastest in 1 of 2 cases on this GPU.")


def test_other_load_on_a_cpu_is_shown():
    of_others = "Other processes used 90 % of the CPUs: times are worth little."
    for share, said in ((0.9, True), (0.1, False)):
        states = [conditions(case=ON_CPU[0].case, host_load=[0.0, share, 1.0])]
        assert (of_others in caveats(compare(results(*ON_CPU, cpu=True, states=states)))) == said


def test_no_ratio_rests_on_the_clock_of_the_profiler():
    check = Check(name=EVENTS_AGAINST_PROFILER, passed=False, value=2.0, limit=1.0, unit="us")
    assert failed_checks([selftest(check)]) == []
    assert failed_checks([selftest(check, COLD), selftest(when="after", process=1)]) == ["coldness"]


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
    assert re.fullmatch(f"its ratio to torch-eager {reason}", worded(case.entry("quack").reason))
    assert (case.entry("liger").verdict, case.lead) == ("faster", None)  # the row left out might be the fastest
    assert [(verdict.outcome, worded(verdict.reason)) for verdict in judge(run, LIMITS)] == [
        ("INCONCLUSIVE", f"quack: {worded(case.entry('quack').reason)}")
    ] * 2


@pytest.mark.parametrize("blocks", [6, 60])
def test_quiet_samples_are_ranked(blocks):
    (case,) = compare(disturbed(lambda us: us, blocks)).cases
    assert (case.entry("quack").standing, case.lead.impl) == ("ranked", "liger")


def test_a_context_in_which_every_block_was_void_is_void():
    """It has no times, and is to be measured again; one that may not be timed is not."""
    (timed,) = in_contexts([row("quack", 10.0)], graph=1.0)
    for why, share in ((Reason(ALL_VOID), {"cold": 0.0, "graph": 1.0}), (Reason("host_waited"), {"cold": 0.0})):
        lost = ContextRecord(status="ok", untimed=why)
        assert void_shares(timed.model_copy(update={"contexts": {"graph": lost}})) == share
    assert too_void(
        timed.model_copy(update={"contexts": {"graph": ContextRecord(status="ok", untimed=Reason(ALL_VOID))}})
    )
