import pytest

from harness.errors import UsageError
from harness.records.contexts import STEP, HolderSize, parse_contexts, parse_holder, programs_beside
from harness.records.file import ResultsFile, load
from harness.records.schema import ContextRecord
from harness.records.settings import Settings
from tests.results_factory import budget, conditions, helpers, in_contexts, results, row, run_record, selftest, timing
from tests.wording import worded


@pytest.mark.parametrize(
    ("text", "contexts"),
    [
        ("cold", ("cold",)),
        ("cold,cold", ("cold",)),
        ("graph", ("cold", "graph")),
        ("host, beside:4,host", ("cold", "host", "beside:4")),
        ("step", STEP),
        ("beside:64,step", ("cold", "beside:64", *STEP[1:])),
        ("beside:08", ("cold", "beside:8")),
        ("beside:8,fwd+bwd", ("cold", "beside:8", "fwd+bwd")),
    ],
)
def test_cold_is_always_first_among_the_contexts(text, contexts):
    assert parse_contexts(text) == contexts


@pytest.mark.parametrize("text", ["warm", "", "beside", "beside:", "beside:0", "beside:-1", "beside:x", "Graph"])
def test_another_word_is_refused_with_what_there_is(text):
    with pytest.raises(UsageError, match=r"--context .*: not one of cold, graph, beside:N"):
        parse_contexts(text)


def test_how_many_programs_run_beside():
    assert [programs_beside(context) for context in STEP] == [None, None, 8, 32, None, None, None]


@pytest.mark.parametrize("text", ["640", "640x", "x200", "600x200", "32x200", "2048x100", "640x0", "832x200", "a x b"])
def test_a_holder_that_cannot_be_launched_is_refused(text):
    with pytest.raises(UsageError, match="--holder"):
        parse_holder(text)


def test_what_the_kernel_beside_holds():
    assert parse_holder("640x200") == HolderSize(640, 200)
    assert parse_holder("512x48") == HolderSize(512, 48)


def test_a_row_says_what_became_of_it_in_each_context():
    found = results(
        *in_contexts([row("torch-eager", 40.0), row("quack", 20.0), *helpers(40.0, 14.0)], graph=2.0),
        context="cold,graph",
    )
    assert [each.timing.samples_us[0] for each in found.in_context("graph").rows] == [
        2 * each.timing.samples_us[0] for each in found.rows
    ]
    assert found.in_context("cold").rows == found.rows


def test_a_failure_in_one_context_is_one_there_alone():
    refused = ContextRecord(status="unsupported", reason="cannot be captured: it allocates")
    found = results(row("quack", 20.0, contexts={"graph": refused}), context="graph")
    (cold,), (graph,) = found.rows, found.in_context("graph").rows
    assert (cold.status, cold.timing is not None) == ("ok", True)
    assert (graph.status, worded(graph.reason), graph.timing) == (
        "unsupported",
        "cannot be captured: it allocates",
        None,
    )


def test_what_failed_alone_failed_in_every_context():
    graph = ContextRecord(status="ok", timing=timing(20.0))
    for status in ("wrong", "nondeterministic"):
        found = results(row("quack", 20.0, status=status, contexts={"graph": graph}), context="graph")
        assert found.in_context("graph").rows[0].status == status


def test_without_a_record_nothing_was_timed_in_a_context():
    found = results(row("quack", 20.0), *helpers(20.0, 14.0), context="graph")
    (only,) = found.in_context("graph").rows
    assert (only.status, only.timing, worded(only.untimed)) == ("ok", None, "not timed in the context graph")


def test_a_context_that_was_not_asked_for_is_refused():
    with pytest.raises(UsageError, match="no context 'graph' in these results; there are: cold"):
        results(row("quack", 20.0)).in_context("graph")


def test_conditions_are_those_of_the_context():
    found = results(
        row("quack", 20.0), states=[conditions(), conditions(context="graph", power_w=[1.0])], context="graph"
    )
    assert [record.power_w for record in found.in_context("graph").conditions] == [[1.0]]
    assert [record.context for record in found.in_context("cold").conditions] == [None]


def test_t0_is_no_limit_of_the_time_on_the_host():
    found = results(row("quack", 20.0), selftests=[selftest()], context="host,graph")
    assert found.in_context("graph").budget == budget()
    assert found.in_context("host").budget is None


def test_a_cold_run_is_written_as_before_there_were_contexts(tmp_path):
    file = ResultsFile(tmp_path / "results.jsonl")
    file.append(run_record())
    file.append(row("quack", 20.0))
    file.close()
    text = file.path.read_text("utf-8")
    assert "context" not in text
    assert "holder" not in text
    assert load(file.path).contexts == ("cold",)


def test_contexts_survive_writing_and_reading(tmp_path):
    given = in_contexts([row("quack", 60.0)], graph=1.1)
    file = ResultsFile(tmp_path / "results.jsonl")
    for record in (run_record(context="graph", holder="512x48"), *given):
        file.append(record)
    file.close()
    read = load(file.path)
    assert read.run.settings == Settings(**dict(run_record().settings) | {"context": "graph", "holder": "512x48"})
    assert read.rows == given
