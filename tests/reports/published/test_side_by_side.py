"""Two runs beside each other, such as on two GPUs and on one, from numbers that are easy to check."""

import math
from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.records.published_plan import Plan
from harness.records.run_records import EndRecord
from reports.published.side_by_side import NEIGHBOURS, another_run, fleet_of_one, neighbours, two_gpus
from reports.published.sources import Source
from tests.reports.published.small_checkout import publish
from tests.results_factory import helpers, in_processes, results, row, timing, twin

WITHIN = "within the A/A band (at least ±1.92 %) of the first run"
ABOUT = {"about": "two shapes", "because": "they are two"}
NAMES = {
    two_gpus: ("two-gpus-one", "two-gpus"),
    fleet_of_one: ("fleet-none", "fleet-one"),
    neighbours: tuple(NEIGHBOURS),
    another_run: ("fast-llm", "contexts"),
}
PLANNED = {name: {"about": "two shapes", "bench": {}} for name in NAMES[another_run]}
KEPT = {name: ABOUT for names in NAMES.values() for name in names if name not in PLANNED}
PLAN = Plan.model_validate({"runs": PLANNED, "kept": KEPT})
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
    """What is written of runs; one that is None was not published."""

    def write(*runs, section=two_gpus, plan=PLAN):
        sources = []
        for name, run in zip(NAMES[section], runs, strict=True):
            if run is not None:
                path = tmp_path / f"h200/{name}.jsonl.bz2"
                publish(run, path, "h200")
                sources.append(Source("h200", name, "two shapes", path, plan))
        return section(sources, plan)

    return write


def test_times_stand_beside_each_other(written):
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, 50.0)))
    assert text.startswith("On NVIDIA H200: two shapes; measured at revision abc1234")
    assert "With two the run takes 0.60 of the time with one." in text
    assert "two GPUs | 60 s, of which time 30 s" in " ".join(text.split())
    assert f"Of 2 speedups, 2 are {WITHIN}, one GPU; half are off by at most 0.00 %" in text


def test_a_speedup_outside_of_the_band_is_named(written):
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, 60.0)))
    assert f"Of 2 speedups, 1 are {WITHIN}, one GPU; half are off by at most 8.33 %" in text
    assert "furthest ours at rms-4096x8192-bf16 by -16.67 %, ours at rms-8192x4096-bf16 by +0.00 %." in text


def test_pairs_of_several_processes_that_read_nothing_leave_room_for_one_process(written):
    def twice(us):
        once = row("torch-eager", 100.0, CASES[0]), row("ours", us, CASES[0]), twin("torch-eager", 100.0, CASES[0])
        return results(*in_processes(*once, scales=(1.0, 1.0)), processes=2)

    assert "Of 1 speedup, 1 are within" in written(twice(40.0), twice(40.4))
    assert "Of 1 speedup, 0 are within" in written(twice(40.0), twice(40.9))


def test_of_a_fleet_of_one_gpu_only_the_stages_are_told(written):
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, 50.0)), section=fleet_of_one)
    assert "a fleet of one GPU | 60 s, of which time 30 s" in " ".join(text.split())
    assert "of the time" not in text  # the first run had more to compile
    assert f"Of 2 speedups, 2 are {WITHIN}, without a fleet; half" in text


def test_another_run_of_the_same_cases_is_told_by_how_far_it_is_off(written):
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, 60.0)), section=another_run)
    runs = "fast-llm (abc1234, stale) and the context cold of contexts (abc1234, stale)"
    assert text.startswith(f"On NVIDIA H200, {runs}:\n")
    assert f"Of 2 speedups, 1 are {WITHIN}, fast-llm; half are off by at most 8.33 %, 95 % by at most 16.67 %" in text


@pytest.mark.parametrize(
    ("last_us", "told"),
    [
        (50.0, "it is the same in 2 of 2 (100.0 %)."),
        (110.0, "it is the same in 1 of 2 (50.0 %), and not in rms-4096x8192-bf16."),
        (100.2, "it is the same in 1 of 1 (100.0 %)."),  # tied in the second run
    ],
)
def test_of_any_two_current_runs_it_is_told_whether_the_same_is_first(written, monkeypatch, last_us, told):
    monkeypatch.setattr(Source, "stale", False)
    text = written(a_run(100.0, (40.0, 50.0)), a_run(60.0, (40.0, last_us)), section=another_run)
    assert "the 2 current runs of the plan with a clean flush, in the context cold, any two of them:" in text
    assert f"{WITHIN}, by the order of the plan; half are off by" in text
    assert told in " ".join(text.split())


def test_runs_that_are_stale_or_not_of_the_plan_or_share_no_case_are_not_told_two_at_a_time(written, monkeypatch):
    run = a_run(100.0, (40.0, 50.0))
    assert "any two" not in written(run, run, section=another_run)
    monkeypatch.setattr(Source, "stale", False)
    outside = PLAN.model_copy(update={"runs": {}})
    assert "any two" not in written(run, run, section=another_run, plan=outside)
    first, second = (replace(run, rows=[row for row in run.rows if row.case == case]) for case in CASES)
    assert "any two" not in written(first, second, section=another_run)


def test_one_run_alone_is_not_told(tmp_path):
    path = tmp_path / "h200/two-gpus.jsonl.bz2"
    publish(a_run(60.0, (40.0, 50.0)), path, "h200")
    assert two_gpus([Source("h200", "two-gpus", "two shapes", path, PLAN)], PLAN).strip() == ""


def beside(base_us, ours_us, bands=(2.0, 4.0)):
    """The baseline and `ours` take these times in the two cases; the A/A bands are in percent."""
    rows = []
    for case, base, ours, band in zip(CASES, base_us, ours_us, bands, strict=True):
        again = twin("torch-eager", base, case, math.log1p(band / 100), shift=0)
        rows += [row("torch-eager", base, case), row("ours", ours, case), again]
    return results(*rows)


FIRST = beside((100.0, 100.0), (40.0, 50.0))
LONGER = beside((110.0, 110.0), (42.0, 66.0), bands=(7.0, 9.0))  # speedups by +4.76 % and -16.67 %, both off
SHORTER = beside((101.0, 101.0), (39.6, 49.0))  # by +2.02 %, beyond a band of 2 %, and +3.06 %, within one of 4 %


def rows_of(text):
    """The cells of the rows of the table in a text."""
    _, _, *rows = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]


def sentences_of(text):
    """What stands behind the table."""
    return text.rpartition("|")[2].split("\n\n")[1:]


def test_a_gpu_stands_beside_itself_with_a_neighbour(written):
    text = written(FIRST, LONGER, SHORTER, section=neighbours)
    assert text.startswith("On NVIDIA H200: two shapes; measured at revision abc1234")
    assert rows_of(text) == [
        ["GPU 1 idle", "3.00", "-", "-", "-"],
        [
            "GPU 1 measuring, just before",
            "8.00",
            "0 of 2 (0.0 %)",
            "10.00",
            "+32.00",
        ],  # times by +5, +10, +10 and +32 %
        ["GPU 1 idle, before that", "3.00", "1 of 2 (50.0 %)", "1.00", "-2.00"],  # by -1, +1, +1 and -2 %
    ]


def test_of_each_later_run_the_speedups_furthest_off_are_named(written):
    busy, earlier = sentences_of(written(FIRST, LONGER, SHORTER, section=neighbours))
    assert busy == (
        f"GPU 1 measuring, just before: of 2 speedups, 0 are {WITHIN}, GPU 1 idle; "
        "half are off by at most 10.71 %, 95 % by at most 16.67 %, furthest ours at rms-4096x8192-bf16 by -16.67 %, "
        "ours at rms-8192x4096-bf16 by +4.76 %."
    )
    assert earlier.rstrip() == (
        f"GPU 1 idle, before that: of 2 speedups, 1 are {WITHIN}, GPU 1 idle; "
        "half are off by at most 2.54 %, 95 % by at most 3.06 %, furthest ours at rms-4096x8192-bf16 by +3.06 %, "
        "ours at rms-8192x4096-bf16 by +2.02 %."
    )


def test_a_neighbour_that_does_not_disturb_changes_nothing(written):
    text = written(FIRST, FIRST, FIRST, section=neighbours)
    assert rows_of(text)[1] == ["GPU 1 measuring, just before", "3.00", "2 of 2 (100.0 %)", "0.00", "+0.00"]
    assert "GPU 1 measuring, just before: of 2 speedups, 2 are within" in text


def test_a_time_that_one_run_lacks_is_not_compared(written):
    """Neither is a speedup; of no times there is no change."""
    lacking = replace(LONGER, rows=[row for row in LONGER.rows if row.case == CASES[0]])
    text = written(FIRST, lacking, replace(LONGER, rows=[]), section=neighbours)
    assert rows_of(text)[1] == [
        "GPU 1 measuring, just before",
        "7.00",
        "0 of 1 (0.0 %)",
        "7.50",
        "+10.00",
    ]  # by +5 and +10 %
    assert rows_of(text)[2] == ["GPU 1 idle, before that", "-", "0 of 0", "-", "-"]


def test_a_time_that_is_not_ranked_counts_and_has_no_speedup(written):
    apart = row("ours", 60.0, CASES[1], timed=timing(60.0, group="apart"))
    rows = [apart if (each.impl, each.case) == ("ours", CASES[1]) else each for each in FIRST.rows]
    text = written(FIRST, replace(FIRST, rows=rows), FIRST, section=neighbours)
    assert rows_of(text)[1] == ["GPU 1 measuring, just before", "3.00", "1 of 1 (100.0 %)", "0.00", "+20.00"]


@pytest.mark.parametrize("runs", [(FIRST, None, SHORTER), (None, LONGER, SHORTER), (FIRST, LONGER, None)])
def test_unless_all_three_are_there_nothing_is_written(written, runs):
    assert written(*runs, section=neighbours).strip() == ""
