from pathlib import Path

import pytest

import reports
from harness.errors import UsageError
from harness.records.cases_asked import cases_on
from harness.records.published_plan import file_of, published_files, read_plan
from harness.run.invocation import Invocation
from harness.run.plan import matching
from harness.run.resolve import check
from harness.worker.discovery import discover

ROOT = Path(__file__).parents[2]
PLAN = read_plan()
IMPLS = discover()
SMALL = """
[runs.one]
about = "one shape"
bench = { shapes = "64x64" }

[pages."one.md"]
of = ["one"]
"""


@pytest.mark.parametrize("name", PLAN.runs)
def test_planned_run_can_be_asked_for(name):
    run = PLAN.runs[name]
    check(Invocation(settings=run.settings, sanitizer=run.sanitizer))
    assert cases_on("cuda", run.settings)
    assert run.settings.impls is None or matching(IMPLS, run.settings.impls.split(","))


def test_every_published_file_stands_in_the_plan():
    published = {name for _, name, _ in published_files()}
    assert published <= PLAN.runs.keys()
    assert {page.format for page in PLAN.pages.values()} <= set(reports.FORMATS)


def test_pages_and_the_command_of_a_run(tmp_path, monkeypatch):
    (tmp_path / "plan.toml").write_text(SMALL)
    plan = read_plan(tmp_path / "plan.toml")
    assert plan.runs["one"].command_line("b200") == "normbwd bench --device b200 --shapes 64x64"
    assert file_of("b200", "one", tmp_path) == tmp_path / "b200/one.jsonl.bz2"
    assert plan.pages["one.md"].of == ("one",)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    assert plan.runs["one"].model_copy(update={"tuned": True}).command_line("b200").endswith("=results/b200/tuned.json")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("[runs.one]", "[runs.one", "is not TOML"),
        ("bench =", "measure =", "runs.one.measure: unknown key; there are about, bench, sanitizer, tuned, verify"),
        ("bench = {", "bench = { shapess = '8x8',", "runs.one.bench.shapess: unknown key; did you mean shapes?"),
        ("[runs.one]", "[run.one]", "run: unknown key; did you mean runs?"),
        ("bench = {", "bench = { min_blocks = 3,", "min_blocks is no option of the command line"),
        ("bench = {", "sanitizer = true\nbench = {", "sanitizer is of verify"),
        ("bench = {", "verify = {}\nbench = {", "one command, bench or verify"),
        ('["one"]', '["older"]', "pages.one.md is of older, which the plan does not have"),
    ],
)
def test_fault_in_a_plan_is_named(tmp_path, was, now, said):
    path = tmp_path / "plan.toml"
    path.write_text(SMALL.replace(was, now))
    with pytest.raises(UsageError, match=r"plan\.toml") as error:
        read_plan(path)
    assert said in str(error.value)


def test_plan_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="a checkout of normbwd has it"):
        read_plan(tmp_path / "plan.toml")
