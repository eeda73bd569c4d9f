"""How long runs will take, from how long published ones took."""

from dataclasses import replace

import pytest

from harness.fleet.preview import Durations, durations, published
from harness.records.run_records import GpuRecord
from harness.run.plan import Job
from tests.results_factory import CASE, LAYER, results, row, selftest

STAGES = {"compile ahead": 24.0, "self-test": 6.0, "start": 1.0, "verify": 2.0, "time": 6.0}


def timed_run(*rows, **stages):
    return results(*rows, stages_s=STAGES | stages, selftests=[selftest()])


def test_rows_share_the_stages_and_have_their_own_preparation():
    rows = [row("quack", 10.0).model_copy(update={"prepare_s": 5.0}), row("torch-eager", 10.0)]
    took = durations([timed_run(*rows)])
    assert took.job_s(Job(CASE, ("quack",))) == 4.0 + 5.0  # half of `verify` and `time`
    assert took.job_s(Job(CASE, ("quack", "torch-eager"))) == 9.0 + 5.5
    assert took.process_s == 600.0 - 24.0 - 8.0


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
    assert took.job_s(Job(CASE, ("c",))) == 2.0
    assert Durations().job_s(Job(CASE, ("a", "b"))) == 2.0


def test_more_gpus_take_less_time_and_never_less_than_the_longest_job():
    took = Durations(row_s={"a": 10.0}, process_s=5.0, compile_s=12.0)
    jobs = [Job(case, ("a",), process) for process in (0, 1) for case in (CASE, LAYER)]
    assert took.run_s(jobs, 1, []) == 4 * 10.0 + 2 * 5.0
    assert took.run_s(jobs, 2, []) == 2 * 10.0 + 5.0
    assert took.run_s(jobs, 64, []) == 10.0 + 5.0
    assert took.run_s(jobs, 1, ["a"]) == 50.0 + 2.0  # two tasks, and twelve processes


def test_runs_that_timed_nothing_say_nothing(tmp_path):
    assert durations([timed_run(row("quack"), time=0.0)]).runs == 0
    assert durations([timed_run(row("quack", untimed="it refused to be timed"))]).runs == 0
    assert published("h200", tmp_path).runs == 0
