"""How long runs will take, from how long published ones took."""

from contextlib import closing
from dataclasses import replace

import pytest

from harness.fleet.preview import published, seconds_of_a_row
from harness.records.file import ResultsFile
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
    assert published("h200", False, tmp_path) == []


def test_runs_of_as_many_processes_count_and_else_all(tmp_path):
    for name, processes in (("one", 1), ("five", 5)):
        run = results(row("quack")).run
        records = [run.model_copy(update={"settings": run.settings.changed(processes=processes)}), row("quack")]
        (tmp_path / "h200").mkdir(exist_ok=True)
        with closing(ResultsFile(tmp_path / f"h200/{name}.jsonl")) as file:
            for record in records:
                file.append(record)
    chosen = [published("h200", several, tmp_path) for several in (True, False)]
    assert [[run.run.settings.processes for run in runs] for runs in chosen] == [[5], [1]]
    (tmp_path / "h200/five.jsonl").unlink()
    assert len(published("b200", True, tmp_path)) == 1
