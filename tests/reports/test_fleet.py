"""A run that was spread over GPUs: what its report says of them."""

from dataclasses import replace

from harness.analysis.comparison import compare
from harness.analysis.joining import by_case
from harness.records.run_records import GpuRecord
from harness.records.schema import Check
from reports.formats import markdown
from tests.results_factory import CASE, LAYER, helpers, in_processes, results, row, selftest
from tests.wording import worded

FAILED = Check(name="t0", passed=False, value=9.0, limit=5.0, unit="us", detail="two events with nothing between them")


def spread(hosts, processes=2, selftests=()):
    """A run of a case on a GPU of each of `hosts`, one a process."""
    rows = in_processes(row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 40.0), scales=[1.0] * processes)
    rows = [each.model_copy(update={"gpu": each.process % len(hosts)}) for each in rows]
    gpus = [
        GpuRecord(number=number, host=host, visible="0", uuid=f"uuid-{number}") for number, host in enumerate(hosts)
    ]
    return replace(results(*rows, processes=processes, selftests=selftests), gpus=gpus)


def page(run):
    return markdown.render(compare(run))


def test_an_interval_across_gpus_says_so():
    told = "across 2 processes on 2 GPUs, which holds the difference between GPUs too"
    assert told in page(spread(["a", "b"]))
    assert "difference between GPUs" not in page(spread(["a"]))
    assert "difference between GPUs" not in page(spread(["a", "b"], processes=1))


def test_each_gpu_has_a_line():
    lines = [line.split("|") for line in page(spread(["a", "b"])).splitlines() if "| uuid-" in line]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines]
    assert cells == [["0", "a", "0", "uuid-0", "1"], ["1", "b", "0", "uuid-1", "1"]]


def test_a_failed_self_test_speaks_against_the_cases_of_its_gpu():
    tests = [selftest(FAILED).model_copy(update={"gpu": 1}), selftest().model_copy(update={"gpu": 0})]
    good = row("torch-eager", 100.0).model_copy(update={"gpu": 0})
    bad = row("torch-eager", 100.0, case=LAYER).model_copy(update={"gpu": 1})
    cases = by_case(results(good, bad, selftests=tests))
    assert cases[CASE].interference is None
    assert worded(cases[LAYER].interference) == "the self-test failed (t0)"
