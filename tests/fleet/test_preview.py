"""How long runs will take, from how long published ones took."""

from dataclasses import replace

import pytest

from harness.fleet.preview import published, seconds_of_a_row
from harness.records.run_records import GpuRecord
from tests.results_factory import helpers, results, row


def test_rows_of_implementations_share_the_time_of_a_run():
    run = results(row("quack", 10.0), row("torch-eager", 10.0), *helpers(10.0, 5.0))
    assert seconds_of_a_row(run) == run.end.wall_s / 2


def test_gpus_of_a_fleet_measure_at_once():
    run = results(row("quack", 10.0))
    both = replace(run, gpus=[GpuRecord(number=number, host="one") for number in (0, 1)])
    assert seconds_of_a_row(both) == pytest.approx(2 * run.end.wall_s)


def test_runs_without_rows_or_an_end_say_nothing(tmp_path):
    assert seconds_of_a_row(results()) is None
    assert seconds_of_a_row(replace(results(row("quack")), end=None)) is None
    assert published("h200", tmp_path) == []
