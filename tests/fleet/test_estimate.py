"""How long runs will take, from how long published ones took; and how far more GPUs help."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.fleet.estimate import Durations, durations, published
from harness.records.run_records import GpuRecord
from harness.run.plan import Job
from tests.fleet.makespans import lines, share, whole
from tests.results_factory import CASE, LAYER, results, row, selftest

STAGES = {"compile ahead": 24.0, "self-test": 6.0, "start": 1.0, "verify": 2.0, "time": 6.0}
PREPARE_S = 1.5  # of a row, where it is not said


def timed_run(*rows, **stages):
    return results(*rows, stages_s=STAGES | stages, selftests=[selftest()])


def test_rows_share_the_stages_and_have_their_own_preparation():
    rows = [row("quack", 10.0).model_copy(update={"prepare_s": 5.0}), row("torch-eager", 10.0)]
    took = durations([timed_run(*rows)])
    assert took.of(Job(CASE, ("quack",))) == 4.0 + 5.0  # half of `verify` and `time`
    assert took.of(Job(LAYER, ("quack",))) == 9.0  # not published: as on other cases
    assert took.of(Job(CASE, ("quack", "torch-eager"))) == 9.0 + 5.5
    assert took.process_s == 600.0 - 24.0 - 8.0


def test_a_later_process_takes_less():
    """Of two processes' 3 seconds of verification the first has 2, as in a run of its own; and all of the breakdown."""
    alone = timed_run(row("quack", 10.0))
    both = timed_run(row("quack", 10.0), row("quack", 11.0, process=1), verify=3.0, time=12.0, **{"break down": 4.0})
    took = durations([alone, both])
    assert took.later_less_s == pytest.approx(((2.0 - 1.0) + (2.0 - 1.0 + 4.0)) / 2)
    first, later = (took.of(Job(CASE, ("quack",), process)) for process in (0, 1))
    assert first == pytest.approx(((6.0 + 2.0) + 2 * (6.0 + 2.0 + 4.0)) / 3 + PREPARE_S)
    assert later == pytest.approx(first - took.later_less_s)
    assert durations([alone]).later_less_s == 0.0  # nothing is known of later processes


def test_gpus_of_a_fleet_measure_at_once():
    """Of 100 seconds 24 compile; in the rest each GPU has 10 of self-tests and start, 60 of rows, and 6 besides."""
    stages = {"compile ahead": 24.0, "self-test": 18.0, "start": 2.0, "verify": 80.0, "time": 40.0}
    rows = [row("torch-eager", 10.0).model_copy(update={"gpu": 0}), row("torch-eager", 9.0, LAYER, gpu=1)]
    run = timed_run(*rows, **stages)
    both = replace(
        run,
        end=run.end.model_copy(update={"wall_s": 100.0}),
        gpus=[GpuRecord(number=number, host="one") for number in (0, 1)],
    )
    assert durations([both]).process_s == pytest.approx(10.0 + 6.0)


def test_what_is_unknown_takes_as_long_as_others():
    took = Durations(row_s={"a": 1.0, "b": 3.0})
    assert took.of(Job(CASE, ("c",))) == 2.0
    assert Durations().of(Job(CASE, ("a", "b"))) == 2.0


def test_runs_that_timed_nothing_say_nothing():
    assert durations([timed_run(row("quack"), time=0.0)]).runs == 0
    assert durations([timed_run(row("quack", untimed="it refused to be timed"))]).runs == 0


def test_a_kind_that_is_not_published_is_estimated_by_others():
    of_each = [published(device).runs for device in ("h200", "h100-sxm")]
    assert published("b200").runs == sum(of_each)
    assert min(of_each) > 1


def test_without_published_runs_there_is_no_estimate(tmp_path):
    assert published("h200", tmp_path).runs == 0


@pytest.fixture(scope="module")
def known():
    """What is published, the jobs of all of it in five processes, and those of fast-llm."""
    return whole()


@pytest.mark.parametrize(("gpus", "least"), [(2, 0.98), (8, 0.93)])
def test_more_gpus_of_a_host_help_nearly_in_proportion(known, gpus, least):
    took, jobs, _ = known
    assert least < share(took, jobs, gpus) <= 1
    assert least < share(took, jobs, gpus, estimate_s=took.about) <= 1  # the shares know no case


def test_two_gpus_take_at_most_55_hundredths_of_the_time_of_one(known):
    took, _, suite = known
    assert share(took, suite, 2) > 0.5 / 0.55


def test_beyond_that_what_each_gpu_does_first_counts(known):
    """64 GPUs: starting processes, testing the engine and the longest cases are then most of the time."""
    took, jobs, _ = known
    free = Durations(row_s=dict.fromkeys(took.row_s, 1.0))
    assert share(took, jobs, 64) < 0.8 < share(free, jobs, 64)


def test_hosts_of_one_gpu_compile_the_same_again(known):
    took, jobs, _ = known
    assert share(took, jobs, 8, lanes_a_host=1) < 0.8 < share(took, jobs, 8)


def test_shares_that_are_badly_made_are_found(known, monkeypatch):
    """Without handing over, a wrong guess of how long cases take costs what the test of eight GPUs asks for."""
    took, jobs, _ = known
    assert share(took, jobs, 8, estimate_s=lambda _job: 1.0) > 0.93
    monkeypatch.setattr("harness.fleet.shares.Shares._helps", lambda *_: False)
    assert share(took, jobs, 8, estimate_s=lambda _job: 1.0) < 0.93


def test_the_table_of_the_document_is_what_is_played():
    """To within a tenth, as the published runs come to be more."""
    text = (Path(__file__).parents[2] / "docs/fleet.md").read_text("utf-8").splitlines()
    heads, rule, *rows = lines()
    first = text.index(heads)
    assert text[first + 1] == rule
    for written, played in zip(text[first + 2 :], rows, strict=False):
        assert figures(written) == pytest.approx(figures(played), abs=0.1)


def figures(line):
    return [float(cell) for cell in line.strip("| ").split("|")]
