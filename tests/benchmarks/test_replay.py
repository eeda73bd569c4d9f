"""pytest-benchmark shows the engine's samples, to the last digit, and what is known of them besides."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from harness.records.file import ResultsFile
from harness.records.schema import RowRecord
from tests.benchmarks.replay import VirtualClock, replays
from tests.results_factory import mixed

ROOT = Path(__file__).parent.parent.parent


def test_a_virtual_clock_moves_when_it_is_told_to():
    clock = VirtualClock()
    assert clock() == clock() == 0.0
    clock.advance(12.5)
    assert clock() == pytest.approx(12.5e-6)


def test_what_may_be_compared_is_replayed_and_nothing_else():
    run = mixed()
    found = replays(run)
    rows = {(row.case.key, row.impl): row for row in run.rows if row.role == "impl"}
    assert found
    for each in found:
        row = rows[each.case, each.impl]
        assert row.status in ("ok", "nondeterministic")
        assert list(each.samples_us) == row.timing.samples_us
    assert len(found) < len(rows)


def written(run, path):
    """The results as a file, as the engine writes them."""
    file = ResultsFile(path)
    for record in (run.run, *run.rows, *run.selftests, *run.conditions):
        file.append(record)
    file.close()
    return path


@pytest.mark.slow
def test_json_holds_samples_ratio_and_gpu(tmp_path):
    run = mixed()
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "pytest", "-q", "tests/benchmarks/bench_backward.py", "-p", "no:cacheprovider"]
    command += ["--normbwd-results", str(written(run, tmp_path / "results.jsonl")), "--benchmark-json", str(out)]
    # Told that it runs beside others, pytest-benchmark would measure nothing.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(out.read_text())
    samples = {(row.case.key, row.impl): row.timing.samples_us for row in run.rows if _timed(row)}
    assert len(told["benchmarks"]) == len(replays(run))
    for found in told["benchmarks"]:
        impl = found["name"].removeprefix(f"test_backward[{found['group']}-").removesuffix("]")
        expected = samples[found["group"], impl]
        assert found["stats"]["rounds"] == len(expected)
        assert found["stats"]["median"] == pytest.approx(median(expected) * 1e-6, rel=1e-9)
        extra = found["extra_info"]
        assert extra["speedup_low"] <= extra["speedup"] <= extra["speedup_high"]
        assert extra["bandwidth_gbps"] > 0
    assert told["machine_info"]["gpu"]["name"] == run.run.device.name


def _timed(row: RowRecord) -> bool:
    return row.role == "impl" and row.timing is not None
