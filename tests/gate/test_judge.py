import dataclasses
import math
import re
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.analysis.statistics import PROCESS_BAND
from harness.analysis.verdicts import exit_code
from harness.errors import UsageError
from harness.gate.judge import judge, not_judged, only
from harness.gate.limits import Claim, Limits, Regression, read_limits
from reports.parts.verdicts import render
from tests.results_factory import (
    budget,
    gateable,
    helpers,
    in_contexts,
    in_processes,
    row,
    selftest,
    timing,
    twin,
    verification,
)
from tests.wording import worded


def verdicts(*rows, aa=True, **claim):
    extra = helpers(100.0, 46.0) if aa else []
    measured = gateable(row("torch-eager", 100.0), *rows, *extra)
    return judge(measured, Limits(claim=[Claim(**{"impl": "mine", **claim})]))


def outcome(*rows, **claim):
    (verdict,) = verdicts(*rows, **claim)
    return verdict.outcome


MINE = row("mine", 50.0)
OVER = {"over": "torch-eager"}


def test_ratio_above_claim_passes_and_below_fails():
    assert outcome(MINE, **OVER, at_least=1.5) == "PASS"
    assert outcome(MINE, **OVER, at_least=2.5) == "REGRESSED"


def test_aa_band_widens_the_interval_of_a_claim():
    noisy = row("mine", 50.0, timed=timing(50.0, noise=6.0, shift=1))
    ratio = verdicts(noisy, **OVER)[0].ratio
    assert ratio.low < 0.99 * ratio.value < 1.01 * ratio.value < ratio.high
    low, high = ratio.low * math.exp(-PROCESS_BAND), ratio.high * math.exp(PROCESS_BAND)
    claims = (low * 0.999, low * 1.001, high * 0.999, high * 1.001)
    found = [outcome(noisy, **OVER, at_least=claimed) for claimed in claims]
    assert found == ["PASS", "INCONCLUSIVE", "INCONCLUSIVE", "REGRESSED"]


def in_two_contexts(scale):
    """`mine` is twice as fast as the baseline alone, and `scale` times as long beside another kernel."""
    base, add = [row("torch-eager", 100.0), *helpers(100.0, 46.0)], {"beside_8": 1.0}
    rows = [*in_contexts(base, **add), *in_contexts([MINE], beside_8=scale)]
    return gateable(*rows, context="cold,beside:8")


def test_a_claim_is_of_one_context():
    claims = [Claim(impl="mine", over="torch-eager", at_least=1.5, context=name) for name in ("cold", "beside:8")]
    found = judge(in_two_contexts(50.0), Limits(claim=claims))
    assert [verdict.outcome for verdict in found] == ["PASS", "REGRESSED"]
    assert "mine >= 1.5 x torch-eager (beside:8)" in render(found)


def test_a_context_that_was_not_measured_cannot_be_judged():
    with pytest.raises(UsageError, match="no context 'host' in these results; there are: cold, beside:8"):
        judge(in_two_contexts(1.0), Limits(claim=[Claim(impl="mine", context="host")]))


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "oom"])
def test_what_does_not_pass_fails_however_fast(status):
    assert outcome(row("mine", 1.0, status=status, reason="off"), **OVER) == "REGRESSED"
    assert outcome(row("mine", 1.0, status=status, reason="off")) == "REGRESSED"


def test_determinism_is_asked_for_unless_it_is_waived():
    unsteady = row("mine", 50.0, status="nondeterministic", reason="2 of 50 runs differ")
    assert outcome(unsteady, **OVER, at_least=1.5) == "REGRESSED"
    assert outcome(unsteady, **OVER, at_least=1.5, deterministic=False) == "PASS"
    assert outcome(unsteady, deterministic=False) == "PASS"


@pytest.mark.parametrize("status", ["missing", "unsupported"])
def test_what_was_not_measured_is_an_error_not_a_pass(status):
    assert outcome(row("mine", 1.0, status=status, reason="not here")) == "ERROR"


def test_a_rival_that_failed_gives_no_ratio():
    assert outcome(MINE, row("rival", 10.0, status="wrong", reason="off"), over="rival") == "ERROR"


def test_unproven_samples_give_no_ratio():
    host_bound = MINE.model_copy(update={"timing": MINE.timing.model_copy(update={"proven": False})})
    assert outcome(host_bound, **OVER) == "ERROR"


def judged(*rows, selftests=(), **claim):
    claims = [Claim(**{"impl": "mine", "over": "torch-eager", **claim})]
    (verdict,) = judge(gateable(*rows, selftests=selftests), Limits(claim=claims))
    return verdict


def test_claim_fails_where_one_process_is_wrong():
    rows = in_processes(row("torch-eager", 100.0), row("mine", 50.0), *helpers(100.0, 46.0))
    wrong = row("mine", status="wrong", reason="dx is off", process=2)
    found = judged(*rows, wrong)
    assert (found.outcome, worded(found.reason)) == ("REGRESSED", "mine is wrong: process 2: dx is off")


@pytest.mark.parametrize(("mine", "base"), [(11.0, 100.0), (50.0, 11.0)])
def test_below_ten_t0_there_is_no_ratio(mine, base):
    rows = [row("torch-eager", base), row("mine", mine), *helpers(base, 46.0)]
    found = judged(*rows, at_least=0.1, selftests=[selftest()])
    assert found.outcome == "ERROR"
    assert re.fullmatch(r"no ratio: .* is below 10 x t0 \(12\.8 us\).*", worded(found.reason))
    assert judged(*rows, at_least=0.1, selftests=[selftest(t0_us=0.5)]).outcome == "PASS"
    assert budget().t0_us == 1.28


def test_what_is_not_in_the_file_passes_nothing():
    """The rows of a process, the self-test, and the record of the verification."""
    rows = in_processes(row("torch-eager", 100.0), row("mine", 50.0), *helpers(100.0, 46.0))
    claims = {"speed": {"over": "torch-eager", "at_least": 1.5}, "right": {}}

    def found(rows, **more):
        verdicts = {}
        for name, claim in claims.items():
            limits = Limits(claim=[Claim(impl="mine", **claim)])
            (verdict,) = judge(gateable(*rows, processes=3, **more), limits)
            verdicts[name] = (verdict.outcome, worded(verdict.reason).split(";")[0])
        return verdicts

    assert {outcome for outcome, _ in found(rows).values()} == {"PASS"}
    missing = "mine: rows of processes 1, 2 are missing"
    kept = [each for each in rows if each.impl != "mine" or each.process == 0]
    assert found(kept) == dict.fromkeys(claims, ("INCONCLUSIVE", missing))
    kept = [each for each in rows if each.process != 1]
    assert found(kept)["speed"] == ("INCONCLUSIVE", "mine: rows of processes 1 are missing")
    for of_verification in (
        None,
        verification(rho=9.0, error_class="wrong"),
        verification(differing_in=["dx"]),
        verification(repeats=1),
        verification().model_copy(update={"tensors": {}}),
    ):
        update = {"verification": of_verification}
        unverified = [each.model_copy(update=update) if each.impl == "mine" else each for each in rows]
        why = "mine: no record of a verification that gives its status"
        assert found(unverified) == dict.fromkeys(claims, ("INCONCLUSIVE", why))
    untested = found(rows, selftests=[selftest(), selftest(process=1)])
    assert untested["speed"] == ("INCONCLUSIVE", "the self-test of its process is missing")
    assert untested["right"][0] == "PASS"


def test_the_band_is_that_of_what_is_claimed_over():
    rows = [row("torch-eager", 100.0), row("rival", 60.0), row("mine", 50.0), *helpers(100.0, 46.0)]
    claim = {"over": "rival", "at_least": 1.17}
    assert judged(*rows, twin("rival", 60.0), **claim).outcome == "PASS"
    assert judged(*rows, twin("rival", 60.0, off=0.1), **claim).outcome == "INCONCLUSIVE"


def test_a_claim_that_fits_no_case_is_an_error():
    assert outcome(MINE, norm="layer") == "ERROR"
    assert outcome(MINE, cols=(1, 2)) == "ERROR"
    assert outcome(MINE, rows=(1, 2)) == "ERROR"
    assert outcome(MINE, norm="rms", rows=(8192, 8192), cols=(4096, 4096)) == "PASS"


def test_a_claim_may_be_of_a_suite():
    """Of its cases as `bench --suite` measures them on a GPU: their dtype and their variants are part of them."""
    assert outcome(MINE, suite="fast-llm") == "PASS"
    assert outcome(MINE, suite="qk") == "ERROR"
    assert Claim(impl="mine", over="a", suite="qk", context="graph").subject.words == "mine >= 1 x a (qk, graph)"
    assert Claim(impl="mine", suite="fast-llm").fits(MINE.case)
    for other in ({"dtype": "fp16"}, {"weight_dtype": "fp32"}, {"features": ("residual",)}, {"rows": 8191}):
        assert not Claim(impl="mine", suite="fast-llm").fits(dataclasses.replace(MINE.case, **other))


def where_measured(*rows, also=(), selftests=(), **claim):
    """The outcomes of a claim `where_measured` after one that passes in any case."""
    claims = [Claim(impl="mine", deterministic=False), Claim(impl="mine", where_measured=True, **claim)]
    found = gateable(*rows, *helpers(100.0, 46.0), *also, selftests=selftests)
    return [verdict.outcome for verdict in judge(found, Limits(claim=claims)) if verdict.subject.number]


EAGER = row("torch-eager", 100.0)


@pytest.mark.parametrize(
    "rival",
    [
        None,
        row("rival", status="missing", reason="not installed"),
        row("rival", status="unsupported", reason="no such case"),
        row("rival", 60.0, status="wrong", reason="off"),
        row("rival", 60.0, timed=timing(60.0, proven=False)),
    ],
)
def test_a_claim_where_measured_leaves_out_what_has_no_time(rival):
    also = [] if rival is None else [rival]
    assert where_measured(EAGER, MINE, also=also, over="rival") == []
    assert where_measured(EAGER, MINE, also=also, over="torch-eager", at_least=1.5) == ["PASS"]
    assert where_measured(EAGER, MINE, also=also, over="torch-eager", at_least=2.5) == ["REGRESSED"]


def test_a_claim_where_measured_leaves_out_what_is_too_fast_and_other_contexts():
    fast = row("mine", 11.0)
    assert where_measured(EAGER, fast, selftests=[selftest()], over="torch-eager", at_least=20.0) == []
    assert where_measured(EAGER, MINE, over="torch-eager", context="graph") == []


def test_a_claim_where_measured_still_needs_its_own_side():
    """A kernel that fails, or refuses what the other did, is no case without a time."""
    refused = row("mine", status="unsupported", reason="no such case")
    assert where_measured(EAGER, refused, over="torch-eager") == ["ERROR"]
    assert where_measured(EAGER, refused) == []
    wrong = row("mine", 1.0, status="wrong", reason="off")
    assert where_measured(EAGER, wrong, over="rival") == ["REGRESSED"]
    assert where_measured(EAGER, row("mine", 50.0, status="nondeterministic", reason="2 of 50")) == ["REGRESSED"]


def test_limits_of_another_device_ask_for_nothing_and_are_named():
    h100, h200 = ({"device": device} for device in ("h100", "h200"))
    asked = Limits(
        claim=[Claim(impl="mine", over="torch-eager", at_least=9.0, **h100), Claim(impl="mine", **h200)],
        regression=[Regression(head="missing", base="torch-eager", **h100)],
    )
    measured = gateable(EAGER, MINE, *helpers(100.0, 46.0))
    assert [(each.outcome, each.subject.words) for each in judge(measured, asked)] == [("PASS", "mine is right (h200)")]
    left_out = ["mine >= 9 x torch-eager (h100)", "missing not slower than torch-eager (h100)"]
    assert not_judged(measured, asked, judge(measured, asked)) == {"of another device": left_out}
    on_h100 = dataclasses.replace(
        measured,
        run=measured.run.model_copy(update={"device": measured.run.device.model_copy(update={"profile": "h100-sxm"})}),
    )
    with pytest.raises(UsageError, match="no implementation 'missing'"):
        judge(on_h100, asked)
    (verdict,) = judge(on_h100, Limits(claim=asked.claim))
    assert verdict.outcome == "REGRESSED"


def test_claims_that_had_nothing_to_judge_are_named():
    asked = Limits(claim=[Claim(impl="mine"), Claim(impl="mine", over="rival", context="graph", where_measured=True)])
    measured = gateable(EAGER, MINE, *helpers(100.0, 46.0))
    found = judge(measured, asked)
    assert not_judged(measured, asked, found) == {"not measured in this run": ["mine >= 1 x rival (graph)"]}
    nothing = Limits(claim=asked.claim[1:])
    with pytest.raises(UsageError, match="measured nothing that any of the limits is about"):
        judge(gateable(EAGER, MINE), nothing)


def test_an_unknown_implementation_is_named():
    with pytest.raises(
        UsageError, match=re.escape("no implementation 'yours' in these results; there are mine, torch")
    ):
        verdicts(MINE, over="yours")


@pytest.mark.parametrize("cut", [{"ended": False, "jobs": 2}, {"interrupted": True}, {"jobs": 2}])
def test_half_a_run_is_not_judged(cut):
    whole = [row(impl.name, 50.0) for impl in gateable(MINE).run.implementations if impl.name != MINE.impl]
    go_on = r"`normbwd bench --device h200 --shapes 8192x4096 --resume --out FOLDER` goes on"
    with pytest.raises(UsageError, match=rf"the run is not finished, 1 of [12] cases are here; {go_on}"):
        judge(gateable(MINE, *whole, **cut), Limits(claim=[Claim(impl="mine")]))


def test_whole_run_without_its_last_record_is_told_apart():
    whole = [row(impl.name, 50.0) for impl in gateable(MINE).run.implementations if impl.name != MINE.impl]
    said = "every case is here, but the file's last record is missing; `normbwd bench --device h200"
    with pytest.raises(UsageError, match=re.escape(said)):
        judge(gateable(MINE, *whole, ended=False), Limits(claim=[Claim(impl="mine")]))


def test_no_ratio_spans_two_files_or_two_devices():
    here, elsewhere = gateable(MINE), gateable(MINE, cpu=True)
    assert only([here]) is here
    with pytest.raises(UsageError, match="2 files; a ratio is of one run on one device"):
        only([here, here])
    with pytest.raises(
        UsageError, match=re.escape("results of 2 devices (NVIDIA H200, Some CPU); a ratio is of one run")
    ):
        only([here, elsewhere])


def test_the_gravest_verdict_decides_and_none_is_an_error():
    passed, failed = verdicts(MINE), verdicts(row("mine", 1.0, status="wrong", reason="off"))
    unclear, error = verdicts(MINE, **OVER, aa=False), verdicts(MINE, norm="layer")
    assert [exit_code(found) for found in (passed, failed, unclear, error, [])] == [0, 1, 3, 2, 2]
    assert exit_code([*passed, *unclear]) == 3
    assert exit_code([*passed, *unclear, *failed]) == 1
    assert exit_code([*passed, *unclear, *failed, *error]) == 2


def test_what_did_not_pass_stands_first():
    text = render([*verdicts(MINE), *verdicts(row("mine", 1.0, status="wrong", reason="dx is off"))])
    assert text.index("REGRESSED") < text.index("PASS")
    assert "mine is wrong: dx is off" in text
    assert text.endswith("1 REGRESSED, 1 PASS\n")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[[claim]]\nimpl = 'a'\nfaster = 2", "claim 1, faster: unknown key; there are at_least, cols, context,"),
        ("[[claim]]\nimpl = 'a'\ncontext = 'warm'", "claim 1, context: 'warm' is not one of cold, graph, beside:N"),
        ("[[claim]]\nimpl = 'a'\natleast = 2", "toml: claim 1, atleast: unknown key; did you mean at_least?"),
        ("[[claim]]\nimpl = 'a'\n[[claim]]\nimpl = 'b'\nrows = [1, 'x']", "claim 2, rows 2: Input should be a valid"),
        ("[[claim]]\nimpl = 'a'\nrows = 5", "claim 1, rows: Input should be a list; docs/pull-requests.md"),
        (
            "[[claim]]\nimpl = 'a'\ncols = [8192, 1024]",
            "claim 1, cols: the smallest comes first, [1024, 8192]; docs/pull-requests.md",
        ),
        ("[[regresion]]\nhead = 'a'", "regresion: unknown key; did you mean regression?"),
        ("[[regression]]\nhead = 'a'\nbase = 'b'\nmin_effect = 0.1", "min_effect: unknown key; did you mean minimum_e"),
        ("[[regression]]\nhead = 'a'", "regression 1, base: Field required"),
        ("[[regression]]\nhead = 'a'\nbase = 'a'", "regression 1: head and base are the same implementation"),
        (
            "[[regression]]\nhead = 'a'\nbase = 'b'\nminimum_effect = 5",
            "Input should be less than 1; docs/pull-requests",
        ),
        ("[[claim]]\nover = 'a'", "claim 1, impl: Field required"),
        ("[[claim]]\nimpl = 'a'\nat_least = 0", "claim 1, at_least: Input should be greater than 0"),
        ("[[claim]]\nimpl = 'a'\nsuite = 'fastllm'", "suite: no suite is called 'fastllm'; did you mean fast-llm?"),
        ("[[claim]]\nimpl = 'a'\ndevice = 'h20'", "device: no device is called 'h20'; did you mean h200?"),
        ("[[claim]]\nimpl = 'a'\ndevice = 'auto'", "device: no device is called 'auto'; "),
        ("claim = []", "gate.toml: it asks for nothing: give a [[claim]] or a [[regression]]"),
        ("claim = [", "is not TOML"),
    ],
)
def test_limits_that_cannot_be_read_are_said_in_one_line(tmp_path, content, complaint, capsys):
    path = tmp_path / "gate.toml"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_limits(path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_command_line_exits_with_the_verdict(tmp_path, capsys):
    path, limits = tmp_path / "results.jsonl", tmp_path / "gate.toml"
    measured = gateable(row("torch-eager", 100.0), MINE, *helpers(100.0, 46.0))
    records = [measured.run, *measured.selftests, *measured.rows, measured.end]
    path.write_text("".join(record.model_dump_json(exclude_none=True) + "\n" for record in records))
    torn, twice = tmp_path / "torn.jsonl", tmp_path / "twice.jsonl"
    content = path.read_bytes()
    torn.write_bytes(content[: len(content) // 2])
    twice.write_bytes(content + content)
    limits.write_text("[[claim]]\nimpl = 'mine'\nover = 'torch-eager'")
    assert gated(path, "--config", limits) == 0
    assert gated(path, "--config", tmp_path / "none.toml") == gated(path, path) == gated(torn) == gated(twice) == 2
    errors = capsys.readouterr().err.splitlines()
    for error, complaint in zip(errors, ("cannot read", "2 files; ", "is cut off", "starts a second run"), strict=True):
        assert complaint in error
    limits.write_text("[[claim]]\nimpl = 'torch-eager'\nover = 'mine'")
    assert gated(path, "--config", limits) == 1
    assert "REGRESSED" in capsys.readouterr().out


def gated(*arguments):
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["gate", *map(str, arguments)])
    return ended.value.code


def test_the_claims_of_this_project_can_be_read():
    limits = read_limits(Path(__file__).parents[2] / "gate.toml")
    assert all(claim.impl == "triton-inhouse" for claim in limits.claim)
