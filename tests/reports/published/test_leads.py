"""How far the in-house kernel leads, from times that are easy to check."""

import shutil
from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.records.published_plan import Plan
from reports.published import leads, sections
from reports.published.sources import Source
from tests.reports.published.small_checkout import publish
from tests.results_factory import NAMES, helpers, in_contexts, results, row

PLAN = Plan.model_validate({"runs": {"shapes": {"about": "three shapes", "bench": {"shapes": "8x8"}}}})
CASES = [NormCase("rms", rows, 4096) for rows in (8192, 4096, 2048)]


@pytest.fixture
def source(tmp_path):
    """A run in which the in-house kernel takes 40 us in every case, and QuACK what it is given."""

    def make(quack_us, beside=None, beside_us=0.0, slower=None, **settings):
        rows = [row(beside, beside_us, case) for case in CASES] if beside else []
        for case, us in zip(CASES, quack_us, strict=True):
            rows += [row("torch-eager", 100.0, case), row("triton-inhouse", 40.0, case), row("quack", us, case)]
            rows += helpers(100.0, 30.0, case)
        if slower is not None:
            rows = in_contexts(rows, beside_8=lambda impl: slower.get(impl, 1.0))
            settings["context"] = "beside:8"
        path = tmp_path / "h200/shapes.jsonl.bz2"
        names = (*NAMES, beside) if beside else NAMES
        publish(results(*rows, names=names, **settings), path, "h200")
        return Source("h200", "shapes", "three shapes", path, PLAN)

    return make


def row_names(text):
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| shapes")]


def test_each_context_of_a_step_has_a_row(source, monkeypatch):
    """Beside 8 held multiprocessors the in-house kernel takes four times as long, and QuACK takes as long as alone."""
    found = source((50.0, 44.0, 60.0), slower={"triton-inhouse": 4.0})
    text = leads.section([found], PLAN)
    assert row_names(text) == ["shapes (abc1234, stale)", "shapes, beside:8 (abc1234, stale)"]
    alone, beside = cells(text, "shapes ("), cells(text, "shapes, beside:8")
    assert (alone[1], beside[1]) == ("3 of 3", "0 of 3")
    assert beside[-1].startswith("rms-4096x4096-bf16 (quack 263.64 % faster)")


def test_beside_others_itself_told_a_margin_leads_and_has_no_row(source):
    found = source((50.0, 44.0, 60.0), "triton-inhouse-margin8", 41.0, slower={"triton-inhouse": 4.0})
    assert row_names(leads.section([found], PLAN)) == ["shapes (abc1234, stale)"]


HEADLINE = (
    "triton-inhouse, this project's own kernel, called by itself with cold caches, is faster than every other library"
)


def cells(text, name="shapes"):
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_smallest_lead_is_named(source):
    found = source((50.0, 44.0, 60.0))
    smallest = "10.00 % over quack (rms-4096x4096-bf16)"
    assert cells(leads.section([found], PLAN)) == ["shapes (abc1234, stale)", "3 of 3", smallest, *2 * ["nowhere"]]
    assert leads.sentences(found) == (f"{HEADLINE} in 3 of 3 cases; its smallest lead is {smallest}.")


@pytest.mark.parametrize("us", [40.0, 38.0])
def test_itself_told_a_margin_is_no_other_library(source, us):
    """It neither ties with it nor is behind it."""
    found = source((50.0, 44.0, 60.0), "triton-inhouse-margin8", us)
    ahead = "3" if us == 40.0 else "0"
    assert cells(leads.section([found], PLAN))[1] == f"{ahead} of 3"
    assert cells(leads.section([found], PLAN))[-2:] == ["nowhere", "nowhere"]


@pytest.mark.parametrize(
    ("us", "text"),
    [(40.0, "quack 0.00 % slower"), (40.2, "quack 0.50 % slower"), (39.8, "quack 0.50 % faster")],
    ids=["level", "ahead", "behind"],
)
def test_who_is_ahead_of_it_is_named_and_whom_it_is_tied_with(source, us, text):
    found = source((50.0, 32.0, us))
    behind, tied = "rms-4096x4096-bf16 (quack 25.00 % faster)", f"rms-2048x4096-bf16 ({text})"
    smallest = "25.00 % over quack (rms-8192x4096-bf16)"
    assert cells(leads.section([found], PLAN))[1:] == ["1 of 3", smallest, tied, behind]
    assert leads.sentences(found).endswith(f"Tied, as the difference is within noise: {tied}. Behind: {behind}.")
    assert leads.sentences(found) in sections.fastest([found], PLAN)


def test_the_readme_says_where_it_is_behind_in_other_current_runs(source, monkeypatch):
    stale = set()
    monkeypatch.setattr(Source, "stale", property(lambda each: each.name in stale))
    found = source((32.0, 32.0, 60.0), slower={"triton-inhouse": 4.0})
    shown, other = (replace(found, name=name) for name in ("shapes", "other"))
    assert leads.behind_elsewhere([shown], PLAN, shown) == ""
    text = leads.behind_elsewhere([shown, other], PLAN, shown)
    assert text == (
        "In the other current runs, a case counted once in each run and context, it is ahead in 1 of 6 cases, "
        "tied in 0 and behind in 5: "
        "in 2 behind quack (run other), in 3 behind quack (run other, context beside:8)."
    )
    assert text in sections.fastest([shown, other], PLAN)
    elsewhere = [replace(each, device="b200") for each in (shown, other)]
    assert f" {text} " in sections.fastest([shown, *elsewhere], PLAN).splitlines()[-1]
    stale.add("other")
    planned = Plan(runs=PLAN.runs | {"other": PLAN.runs["shapes"]})
    assert "| other (abc1234" in leads.section([shown, other], planned)
    assert leads.behind_elsewhere([shown, other], planned, shown) == ""
    stale.clear()
    ahead = source((50.0, 44.0, 60.0))
    assert leads.behind_elsewhere([shown, replace(ahead, name="other")], PLAN, shown).endswith(
        "it is ahead in 3 of 3 cases, tied in 0 and behind in 0."
    )


def test_the_readme_names_a_run_by_its_page(source, monkeypatch):
    monkeypatch.setattr(Source, "stale", False)
    found = source((32.0, 32.0, 60.0))
    shutil.copy(found.path, found.path.with_name("other.jsonl.bz2"))
    runs = {"runs": {name: {"about": "three shapes", "bench": {}} for name in ("shapes", "other")}}
    plan = Plan.model_validate({**runs, "pages": {"other.md": {"of": ["other"]}}})
    other = replace(found, name="other", plan=plan, path=found.path.with_name("other.jsonl.bz2"))
    text = leads.behind_elsewhere([found, other], plan, found)
    assert text.endswith(": in 2 behind quack (run [other](results/h200/other.md)).")


def test_behind_everywhere_it_has_no_lead(source):
    found = source((32.0, 32.0, 32.0))
    assert cells(leads.section([found], PLAN))[1:4] == ["0 of 3", "-", "nowhere"]
    assert leads.sentences(found).startswith(f"{HEADLINE} in 0 of 3 cases. Behind")


def test_of_many_cases_the_worst_are_named(source, monkeypatch):
    monkeypatch.setattr(leads, "NAMED", 1)
    behind = cells(leads.section([source((20.0, 32.0, 30.0))], PLAN))[-1]
    assert behind == "rms-8192x4096-bf16 (quack 100.00 % faster), 2 more"


def test_who_leads_in_how_many_cases(source):
    assert leads.leaders(source((50.0, 32.0, 40.0)).comparison) == (
        "triton-inhouse in 1 of 3, quack in 1, quack and triton-inhouse tied in 1"
    )


def test_another_flush_and_a_run_without_it_are_left_out(source, tmp_path):
    assert leads.section([source((50.0, 50.0, 50.0), flush="dirty")], PLAN).strip() == ""
    path = tmp_path / "h200/alone.jsonl.bz2"
    publish(results(row("quack", 50.0), *helpers(100.0, 40.0)), path, "h200")
    assert leads.sentences(Source("h200", "shapes", "one", path, PLAN)) == ""
