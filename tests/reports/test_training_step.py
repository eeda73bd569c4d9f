"""The section "In a training step", and what the formats say of a run in several contexts."""

import csv
import io
import json

import pytest

from harness.analysis.comparison import compare
from harness.errors import UsageError
from harness.records.reasons import Reason
from harness.records.schema import ContextRecord, HolderRecord
from reports import render
from reports.parts.training_step import not_timed, of_case, section, speedups, times, waiting
from tests.results_factory import CASE, LAYER, conditions, helpers, in_contexts, results, row, timing

HELD = HolderRecord(programs=8, threads=640, shared_kib=200)


def stalls(each, waited=40, us=2600.0):
    """The row with a time beside another kernel, for which so many of its 40 samples waited."""
    record = ContextRecord(status="ok", timing=timing(us, shift=each.process, waited=waited))
    return each.model_copy(update={"contexts": {**(each.contexts or {}), "beside:8": record}})


def beside(*waited_in_each_process, cases=(CASE,)):
    """A run beside another kernel, in which quack waited in so many of the 40 samples of each process."""
    rows = []
    for number, waited in enumerate(waited_in_each_process):
        for case in cases:
            here = {"case": case, "process": number}
            rows.append(stalls(row("quack", 25.0, **here), waited, 30.0))
            rows.append(stalls(row("torch-eager", 40.0, **here), 0, 50.0))
    return results(*rows, context="cold,beside:8")


def test_reasons_that_differ_in_numbers_alone_are_one_sentence():
    reasons = (Reason("tool_stopped", {"where": "there", "seconds": number}) for number in (2, 3))
    records = ({"graph": ContextRecord(status="crashed", reason=reason)} for reason in reasons)
    rows = [row("quack", 25.0, case=c).model_copy(update={"contexts": next(records)}) for c in (CASE, LAYER)]
    lines = not_timed(compare(results(*rows, context="cold,graph"), baseline="quack"))
    assert lines == ["Not ranked in graph: quack in 2 cases (crashed: stopped there after 2 to 3 s)."]


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


def test_nobody_is_called_fastest_without_an_aa_pair():
    rows = in_contexts([row("torch-eager", 40.0), row("quack", 20.0)], hot_dy=1.5)
    text = render(results(*rows, context="hot-dy"), "console").replace("\n", " ")
    assert "hot-dy: No A/A pair was measured, so nobody is called fastest." in text
    assert "hot-dy, dy written by another kernel just before." in text
    assert "is fastest" not in text


@pytest.mark.parametrize(
    ("waited", "usual", "counts"),
    [
        ((1,), False, "1 of 40"),
        ((19,), False, "19 of 40"),
        ((20,), True, "20 of 40"),  # half: the median lies between a sample that waited and one that did not
        ((40,), True, "40 of 40"),
        ((40, 0, 0), False, "40 of 120"),
        ((5, 5), False, "10 of 80"),
        ((40, 0), True, "40 of 80"),
    ],
)
def test_waiting_is_said_to_be_usual_from_half_of_the_samples_on(waited, usual, counts):
    run = beside(*waited)
    comparison = compare(run)
    always = "beside:8: waits for other kernels, and takes as long as the one beside: quack in 1 case."
    at_times = f"beside:8: fewer than half of the samples waited for other kernels: quack in 1 case ({counts} samples)."
    assert waiting(comparison) == [always if usual else at_times]
    (cell,) = (line[1].text for line in of_case(comparison, comparison.cases[0]).rows if line[0].text == "quack")
    assert cell.endswith("waits)" if usual else f"waited in {counts} samples)")
    of_all = [line[3].text for line in speedups(comparison, "quack").rows]
    of_all += [line[2].text for line in times(comparison).rows if line[0].text == "quack"]
    assert [text == "waits in 1" for text in of_all] == [usual] * len(of_all)  # its times are in no mean
    page = render(run, "markdown", context="beside:8")
    note = f"waits for other kernels: until the one beside had ended, in {counts} samples"
    rare = f"waited for other kernels in {counts} samples, fewer than half: until the one beside had ended"
    assert (note in page, rare in page) == (usual, not usual)


def test_each_context_has_a_report_of_its_own():
    text = render(step(), "markdown", context="host")
    assert "host: quack is fastest in 2 of 2 cases on this GPU." in text
    assert "- Context: host" in text
    assert "## In a training step" not in text


def test_a_cold_run_has_no_such_section():
    cold = results(row("torch-eager", 40.0), row("quack", 20.0), *helpers(40.0, 14.0))
    assert section(compare(cold)) is None
    assert "training step" not in render(cold, "markdown") + render(cold, "pr") + render(cold, "console")
    assert not {"context", "contexts", "holder"} & json.loads(render(cold, "json")).keys()


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


def test_a_format_of_the_engine_is_of_the_cold_context():
    with pytest.raises(UsageError, match="--format aa is about the context cold; leave out --context"):
        render(step(), "aa", context="host")
    with pytest.raises(UsageError, match="no context 'hot-dy' in these results"):
        render(step(), "markdown", context="hot-dy")
