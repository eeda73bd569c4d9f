"""Two runs beside each other, such as on two GPUs and on one, from numbers that are easy to check."""

from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.results.published.planned import Plan
from harness.results.run_records import EndRecord
from reports.published.side_by_side import fleet_of_one, two_gpus
from reports.published.sources import Source
from tests.reports.published.small_checkout import publish
from tests.results_factory import helpers, results, row

ABOUT = {"about": "two shapes", "because": "they are two"}
NAMES = {two_gpus: ("two-gpus-one", "two-gpus"), fleet_of_one: ("fleet-none", "fleet-one")}
PLAN = Plan.model_validate({"runs": {}, "kept": {name: ABOUT for names in NAMES.values() for name in names}})
CASES = [NormCase("rms", 8192, 4096), NormCase("rms", 4096, 8192)]


def a_run(wall_s, ours_us):
    """`ours` takes these times in the two cases, the baseline always 100 us."""
    rows = []
    for case, us in zip(CASES, ours_us, strict=True):
        rows += [row("torch-eager", 100.0, case), row("ours", us, case), *helpers(100.0, 30.0, case)]
    end = EndRecord(ended_at="2026-01-01T00:00:00+00:00", wall_s=wall_s, stages_s={"time": wall_s / 2})
    return replace(results(*rows), end=end)


@pytest.fixture
def written(tmp_path):
    """What is written of two runs."""

    def write(one, two, section=two_gpus):
        sources = []
        for name, run in zip(NAMES[section], (one, two), strict=True):
            path = tmp_path / f"h200/{name}.jsonl.bz2"
            publish(run, path, "h200")
            sources.append(Source("h200", name, "two shapes", path, PLAN))
        return section(sources, PLAN)

    return write


def test_times_stand_beside_each_other(written):
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, 50.0)))
    assert text.startswith("On NVIDIA H200: two shapes; measured at revision abc1234")
    assert "With two the run takes 0.60 of the time with one." in text
    assert "two GPUs | 60 s, of which time 30 s" in " ".join(text.split())
    assert text.rstrip().endswith("Of 2 speedups, 2 are within the A/A band of the first run, one GPU.")


def test_a_speedup_outside_of_the_band_is_named(written):
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, 60.0)))
    assert "Of 2 speedups, 1 are within the A/A band of the first run, one GPU" in text
    assert "furthest off: ours at rms-4096x8192-bf16 by -16.67 %." in text


def test_of_a_fleet_of_one_gpu_only_the_stages_are_told(written):
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, 50.0)), fleet_of_one)
    assert "a fleet of one GPU | 60 s, of which time 30 s" in " ".join(text.split())
    assert "of the time" not in text  # the first run had more to compile
    assert text.rstrip().endswith("Of 2 speedups, 2 are within the A/A band of the first run, without a fleet.")


def test_one_run_alone_is_not_told(tmp_path):
    path = tmp_path / "h200/two-gpus.jsonl.bz2"
    publish(a_run(60.0, (40.0, 50.0)), path, "h200")
    assert two_gpus([Source("h200", "two-gpus", "two shapes", path, PLAN)], PLAN).strip() == ""
