"""The section "In a training step", and what the formats say of a run in several contexts."""

import csv
import io
import json

import pytest

from harness.cases import NormCase
from harness.errors import UsageError
from harness.results.schema import ContextRecord, HolderRecord
from reports import render
from reports.data.comparison import compare
from reports.data.step import training_step
from reports.parts.training_step import of_case, section
from tests.results_factory import LAYER, conditions, helpers, in_contexts, results, row, timing

WAITS = "waits for other kernels: until the one beside had ended, in 40 of 40 samples"
HELD = HolderRecord(programs=8, threads=640, shared_kib=200)


def stalls(each):
    """The row with a time beside another kernel that is as long as that kernel runs."""
    record = ContextRecord(status="ok", timing=timing(2600.0), notes=[WAITS])
    return each.model_copy(update={"contexts": {**(each.contexts or {}), "beside:8": record}})


def step():
    """Two cases in four contexts: one implementation waits beside another kernel, one cannot be captured."""
    rows = []
    for case, scale in ((None, 1.0), (LAYER, 2.0)):
        more = {"case": case} if case else {}
        mine = row("triton-inhouse", 20.0 * scale, shift=1, **more)
        others = [row("torch-eager", 40.0 * scale, **more), row("quack", 25.0 * scale, shift=2, **more)]
        others += helpers(40.0 * scale, 14.0 * scale, **more)
        rows += [stalls(in_contexts([mine], graph=1.1, host=5.0)[0])]
        rows += in_contexts(others, graph=1.0, beside_8=1.2, host=0.5)
    refused = ContextRecord(status="unsupported", reason="cannot be captured: it allocates")
    rows = [
        each.model_copy(update={"contexts": each.contexts | {"graph": refused}}) if each.impl == "quack" else each
        for each in rows
    ]
    states = [conditions(), conditions(context="beside:8", holder=HELD)]
    return results(*rows, context="cold,graph,beside:8,host", states=states)


def test_section_is_the_same_in_all_formats(golden):
    golden("step.pr.md", render(step(), "pr"))
    golden("step.txt", render(step(), "console"))
    text = render(step(), "markdown")
    section = text[text.index("## In a training step") : text.index("## Conditions")]
    golden("step.md", section)
    assert section.strip() in render(step(), "grid")


def test_first_is_said_of_a_context():
    text = render(step(), "console").replace("\n", " ")
    assert "cold: triton-inhouse is fastest in 2 of 2 cases." in text
    assert "beside:8: quack is fastest in 2 of 2 cases." in text


def test_nobody_is_called_fastest_without_an_aa_pair():
    rows = in_contexts([row("torch-eager", 40.0), row("quack", 20.0)], all_reduce=1.5)
    text = render(results(*rows, context="all-reduce"), "console").replace("\n", " ")
    assert "all-reduce: No A/A pair was measured, so nobody is called fastest." in text
    assert "all-reduce, while NCCL reduces over two GPUs." in text
    assert "is fastest" not in text


def test_a_backward_that_waits_is_told_in_words():
    said = "beside:8: triton-inhouse in 2 cases waits for other kernels, and takes as long as the one beside."
    assert said in render(step(), "console").replace("\n", " ")
    assert WAITS in render(step(), "markdown", context="beside:8")


def test_each_context_has_a_report_of_its_own():
    text = render(step(), "markdown", context="host")
    assert "host: quack is fastest in 2 of 2 cases." in text
    assert "- Context: host" in text
    assert "## In a training step" not in text


def test_a_cold_run_has_no_such_section():
    cold = results(row("torch-eager", 40.0), row("quack", 20.0), *helpers(40.0, 14.0))
    assert section(compare(cold)) is None
    assert "training step" not in render(cold, "markdown") + render(cold, "pr") + render(cold, "console")
    assert not {"context", "contexts", "holder"} & json.loads(render(cold, "json")).keys()


def test_where_nothing_ranks_there_is_no_empty_section():
    case = NormCase("rms", 16, 64, device="cpu")
    rows = in_contexts([row("torch-eager", 40.0, case), row("quack", 25.0, case)], hot_dy=1.0)
    run = results(*rows, cpu=True, context="cold,hot-dy")
    assert section(compare(run)) is None
    assert "In a training step" not in render(run, "console")


def test_a_case_lists_its_times_in_every_context():
    comparison = compare(step())
    table = of_case(comparison, comparison.cases[0])
    assert table.heads == ("impl", "graph", "beside:8", "host")
    cells = {line[0].text: [cell.text for cell in line[1:]] for line in table.rows}
    assert cells["triton-inhouse"][:1] == ["24.2 (1.815 faster)"]
    assert cells["triton-inhouse"][1].endswith(" slower waits)")
    assert cells["quack"][0] == "unsupported"


def test_csv_and_json_hold_every_context():
    lines = list(csv.DictReader(io.StringIO(render(step(), "csv"))))
    assert {line["context"] for line in lines} == {"cold", "graph", "beside:8", "host"}
    whole = json.loads(render(step(), "json"))
    assert [each["context"] for each in whole["contexts"]] == ["graph", "beside:8", "host"]
    assert whole["contexts"][1]["holder"] == {"programs": 8, "threads": 640, "shared_kib": 200}


def test_the_page_has_the_section():
    page = render(step(), "html")
    assert "<h2>In a training step</h2>" in page
    assert "waits for other kernels" in page


def test_a_format_of_the_engine_is_of_the_cold_context():
    with pytest.raises(UsageError, match="--format aa is about the context cold; leave out --context"):
        render(step(), "aa", context="host")
    with pytest.raises(UsageError, match="no context 'hot-dy' in these results"):
        render(step(), "markdown", context="hot-dy")


def test_a_cell_has_the_mean_and_the_worst_case():
    """One case takes twice as long beside another kernel as alone, the other eight times."""
    rows = []
    for case, times in ((None, 2.0), (NormCase("rms", 64, 128), 8.0)):
        more = {"case": case} if case else {}
        rows += in_contexts([row("torch-eager", 40.0, **more), *helpers(40.0, 14.0, **more)], beside_8=times)
    (found,) = training_step(compare(results(*rows, context="cold,beside:8")))
    assert (found.cells[1].time, found.cells[1].longest) == pytest.approx((4.0, 8.0))
