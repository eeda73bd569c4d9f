"""What this project claims of its own kernel: of what its first run measures, and true of what is published."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.defaults import BASELINE
from harness.gate.judge import judge
from harness.gate.limits import read_limits
from harness.records.file import load
from harness.records.published_plan import file_of, published_files, read_plan
from harness.run.plan import select
from harness.worker.discovery import discover
from harness.worker.serve import record
from tests.test_command_line import typed

ROOT = Path(__file__).parents[2]
LIMITS = read_limits(ROOT / "gate.toml")
ROOM = 1.15  # how much more than it claims a claim may have measured on the case that is nearest to it

pytestmark = pytest.mark.xdist_group("the project's own claims")


def published():
    """Each file of the plan, by device and name.

    A gate refuses a part of a run; the cases of a part that is published are judged as if they were all of it.
    """
    planned = read_plan().runs
    for device, name, path in published_files():
        if name not in planned:
            continue
        results = load(path)
        if results.end and not results.end.interrupted:
            run = results.run.model_copy(update={"jobs": results.finished_cases})
            yield f"{device}/{name}", replace(results, run=run)


@pytest.fixture(scope="module")
def judged():
    return {name: judge(results, LIMITS) for name, results in published()}


def test_claims_are_of_what_the_most_important_run_measures():
    run = next(iter(read_plan().runs.values()))
    known = [record(item) for item in discover() if item.source.startswith("impls/")]
    chosen = {item.name for item in select(known, run.settings.impls, None, BASELINE)}
    claimed = {name for claim in LIMITS.claim for name in claim.names}
    assert claimed <= chosen


def test_claims_hold_of_every_published_run(judged):
    least = {f"h200/{name}" for name in ("fast-llm", "contexts", "odd", "models", "verify-inhouse")}
    assert least | {"h100-sxm/fast-llm", "h100-sxm/verify-inhouse"} <= judged.keys()
    assert [
        (name, verdict.subject.words, verdict.case, verdict.reason)
        for name, verdicts in judged.items()
        for verdict in verdicts
        if verdict.outcome != "PASS"
    ] == []


def test_what_a_file_lacks_is_named_below_its_verdicts(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert typed(f"gate {file_of('h200', 'verify-inhouse')}") in (0, None)
    *_, counts, absent = capsys.readouterr().out.splitlines()
    assert counts.endswith(" PASS")
    assert absent.startswith("not measured in this run: triton-inhouse >= 1.7 x torch-eager, ")


def test_each_claim_was_measured_and_would_fail_if_it_claimed_much_more(judged):
    """The planted fault: a claim that is ROOM times what it is does not pass on the case that is nearest to it."""
    verdicts = [verdict for of_file in judged.values() for verdict in of_file]
    assert {verdict.subject.number for verdict in verdicts} == set(range(len(LIMITS.claim)))
    for number, claim in enumerate(LIMITS.claim):
        ratios = [verdict.ratio.value for verdict in verdicts if verdict.subject.number == number and verdict.ratio]
        assert not claim.over or min(ratios) < ROOM * claim.at_least, claim


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("fast-llm", "over = 'quack'\nat_least = 1.8"),
        ("contexts", "over = 'torch-compiled'\nat_least = 2.0\ncontext = 'beside:8'"),
    ],
)
def test_a_claim_that_is_too_much_fails_the_gate(tmp_path, capsys, name, planted):
    limits = tmp_path / "gate.toml"
    limits.write_text(f"[[claim]]\nimpl = 'triton-inhouse'\n{planted}\nwhere_measured = true\n")
    assert typed(f"gate {file_of('h200', name)} --config {limits}") == 1
    assert re.search(r"^REGRESSED +rms-32768x1024-bf16 ", capsys.readouterr().out, re.MULTILINE)
