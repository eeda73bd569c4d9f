"""What is said of a published file is what it holds; what the plan asks otherwise is said apart."""

import re
from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.cases.unfused import WITH_TORCH
from harness.records.published_plan import Plan, PlannedRun, read_plan
from reports.published.held import contents, planned_instead
from reports.published.sources import Source, sources
from tests.reports.published.small_checkout import make
from tests.results_factory import careful, helpers, results, row

PUBLISHED = {f"{each.device}/{each.name}": each for each in sources(read_plan())}
CASES = [NormCase("rms", 32768, 1024), NormCase("rms", 8192, 4096)]
BENCH = {"shapes": "32768x1024,8192x4096", "norm": "rms", "impls": "torch-eager,triton-inhouse"}


def run(**settings):
    rows = [each for case in CASES for each in (row("torch-eager", 4.0, case), row("triton-inhouse", 2.0, case))]
    return results(*rows, *helpers(4.0, 1.0, CASES[0]), names=["torch-eager", "triton-inhouse"], **settings)


def otherwise(found, **options):
    return planned_instead(found, PlannedRun.model_validate({"about": "in words", "bench": BENCH | options}))


def test_a_run_is_told_by_what_it_holds():
    assert (
        contents(run()) == "32768 x 1024, 8192 x 4096, RMSNorm, bf16; torch-eager, triton-inhouse; one process, seed 7"
    )
    more = run(processes=5, flush="dirty", twice=True, cross_check=True, context="graph")
    assert contents(more).endswith(
        "; 5 processes, a flush that writes alone, cold and in the contexts graph, each implementation twice in its "
        "blocks, do_bench and NVBench beside, seed 7"
    )


def test_what_was_missing_is_counted_apart():
    found = run()
    impls = [each.model_copy(update={"missing": "not there"}) for each in found.run.implementations[1:]]
    impls = [found.run.implementations[0], *impls]
    found = replace(found, run=found.run.model_copy(update={"implementations": impls}))
    assert "; torch-eager, 1 more missing; " in contents(found)


@pytest.mark.parametrize(("jobs", "said"), [(3, None), (2, "8192 x 4096, 4096 x 8192, 32768 x 1024, RMSNorm, bf16")])
def test_a_part_of_the_planned_cases_is_no_other_run(jobs, said):
    """Two cases of a run of three; a run that was of these two is another one."""
    found = run(jobs=jobs)
    planned = otherwise(found, shapes="8192x4096,4096x8192,32768x1024", seed=7)
    assert (planned or "").partition(";")[0] == (said or "")


def test_a_verification_is_told_by_its_inputs_and_runs():
    assert re.search(r"kinds? of inputs; .*; \d+ runs a case", contents(careful()))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, None),
        ({"shapes": "8192x4096"}, "8192 x 4096, RMSNorm, bf16"),
        ({"norm": "rms,layer"}, "32768 x 1024, 8192 x 4096, both norms, bf16"),
        ({"dtype": "fp16"}, "32768 x 1024, 8192 x 4096, RMSNorm, fp16"),
        ({"impls": "triton-*,torch-eager"}, None),
        ({"impls": "torch-eager"}, "torch-eager"),
        ({"impls": "torch-eager,triton-inhouse,quack"}, "torch-eager, triton-inhouse, quack"),
        ({"impls": "all"}, "every implementation"),
        ({"impls": "torch-eager,triton-inhouse", "baseline": "triton-inhouse"}, "over triton-inhouse"),
        ({"processes": 5}, "5 processes, seed 7"),
        ({"flush": "none"}, "one process, no flush, seed 7"),
        ({"context": "host"}, "one process, cold and in the contexts host, seed 7"),
    ],
)
def test_what_the_plan_asks_otherwise_is_named(options, said):
    found = otherwise(run(), seed=7, **options)
    assert found == said or (said and found and found.endswith(said))


def agrees(text, results):
    """Whether the numbers of a text are those of the rows of a file."""
    rows = [row for row in results.rows if row.role == "impl"]
    shapes = {(row.case.rows, row.case.cols) for row in rows}
    impls = {row.impl.removesuffix(WITH_TORCH) for row in rows if row.status != "missing"}
    counted = {name: re.search(rf"(\d+|one) {name}", text) for name in ("shapes", "implementations", "process")}
    told = {name: int(found[1].replace("one", "1")) for name, found in counted.items() if found}
    return (
        len(shapes) == told.get("shapes", len(re.findall(r"\d+ x \d+", text)))
        and (
            len(impls) == told["implementations"] if "implementations" in told else all(name in text for name in impls)
        )
        and (not results.run.settings.timed or len({row.process for row in rows}) == told.get("process"))
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_file_holds_what_is_said(name):
    source = PUBLISHED[name]
    assert agrees(contents(source.results), source.results)
    if source.name in source.plan.runs:
        assert source.about == (contents(source.results) if source.planned_now else source.about_in_plan)


def test_plan_that_has_changed_is_told_apart(tmp_path):
    checkout = make(tmp_path)
    found = {each.name: each for each in sources(read_plan(checkout / "results/plan.toml"), checkout / "results")}
    timed = found["timed"]
    assert timed.about.startswith("4 shapes") or timed.about.count(" x ") == 4
    assert timed.about_in_plan not in timed.about
    assert not agrees(timed.about_in_plan, timed.results), "the words of the plan are of other figures"
    assert "32768 x 1024, both norms, bf16" in timed.planned_now
    kept = Source("h200", "timed", "by hand", timed.path, Plan.model_validate({"runs": {}}))
    assert (kept.about, kept.planned_now) == ("by hand", None)
