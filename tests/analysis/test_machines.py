"""Claims over GPUs: the interval holds where GPUs differ, and what runs differ by is no claim."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import reports
from harness.analysis.comparison import compare
from harness.analysis.machines import OverGpus, claim, place, random_effects
from harness.errors import UsageError
from tests.results_factory import helpers, results, row


def results_on(gpu, speedup, model="NVIDIA H200"):
    """A run on this GPU, in which the in-house kernel has this speedup."""
    run = results(row("torch-eager", 60 * speedup), row("triton-inhouse", 60), *helpers(60 * speedup, 40))
    device = run.run.device.model_copy(update={"gpu": gpu, "name": model})
    return replace(run, run=run.run.model_copy(update={"device": device}))


def fast_pair(own, other):
    rows = (row("triton-inhouse", 60 * own), row("quack", 60 * other))
    return results(row("torch-eager", 120), *rows, *helpers(120, 40))


@pytest.mark.parametrize("gpus", [3, 5, 8])
def test_interval_covers_the_truth_where_gpus_differ_by_one_percent(gpus):
    random, truth = np.random.default_rng(1), math.log(1.2)
    centres = truth + random.normal(0, 0.01, size=(1500, gpus, 1))
    runs = centres + random.normal(0, 0.004, size=(1500, gpus, 3))
    intervals = [random_effects(list(run)).interval() for run in runs]
    assert np.mean([low <= truth <= high for low, high in intervals]) == pytest.approx(0.95, abs=0.02)


def test_processes_of_one_gpu_alone_are_too_sure():
    """What a report of one run does: its t over processes knows nothing of other GPUs."""
    random = np.random.default_rng(2)
    runs = random.normal(0, 0.01, size=(500, 1)) + random.normal(0, 0.004, size=(500, 5))
    halves = 2.776 * runs.std(axis=1, ddof=1) / math.sqrt(5)
    assert np.mean(np.abs(runs.mean(axis=1)) <= halves) < 0.6


def test_one_process_a_gpu_and_gpus_that_agree():
    assert random_effects([[0.1], [0.2], [0.3]]).interval() == pytest.approx((0.2 - 0.2484, 0.2 + 0.2484), abs=1e-3)
    assert random_effects([[0.1, 0.1], [0.1], [0.1]]).interval() == pytest.approx((0.1, 0.1))


def test_lead_within_what_runs_differ_by_is_no_claim():
    assert claim({gpu: [math.log(1.03)] for gpu in "abc"})[1] == "same"
    assert claim({gpu: [math.log(1.05)] for gpu in "abc"})[1] == "faster"
    assert claim({"a": [0.02], "b": [0.10], "c": [0.30]})[1] == "same"  # these GPUs differ


def test_three_gpus_speak_for_their_model_and_one_for_itself():
    runs = [results_on(gpu, speed) for gpu, speed in (("a", 1.50), ("b", 1.51), ("c", 1.49))]
    page = reports.render(runs, "gpus")
    assert "3 runs on 3 GPUs: what they say holds on NVIDIA H200." in page
    assert "| triton-inhouse |" in page
    assert "Two runs of a cell differ by ±0.67 % in half" in page
    again = reports.render([runs[0], runs[0], results_on(None, 1.5)], "gpus")
    assert "holds on these alone: a claim that names NVIDIA H200 rests on 3 GPUs" in again
    assert "verdict" not in again


def test_other_models_are_refused():
    other = results_on("d", 1.5, model="NVIDIA H100")
    with pytest.raises(UsageError, match="one model of GPU, not NVIDIA H200, NVIDIA H100"):
        reports.render([results_on("a", 1.5), other], "gpus")


def test_place_is_a_tie_within_the_floor_either_way():
    said = {}
    for own, other in ((1.0, 1.10), (1.0, 1.02), (1.02, 1.0), (1.10, 1.0)):
        (case,) = compare(fast_pair(own, other)).cases
        said[own, other] = place(case)
    assert [each.said for each in said.values()] == ["ahead", "tied", "tied", "behind"]
    assert [each.lead for each in said.values()] == pytest.approx([1.10, 1.02, 1 / 1.02, 1 / 1.10], rel=0.005)


def test_gpus_of_files_that_do_not_name_them_count_as_one():
    over = OverGpus([compare(results_on(None, 1.5)), compare(results_on(None, 1.4))])
    assert over.gpus == {"unnamed"}
    assert Counter(len(logs) for logs in over.by_run.values()) == {2: 1}


def test_runs_of_another_flush_or_stack_are_no_two_runs_of_a_cell():
    one, settings = results_on("a", 1.5), results_on("b", 1.5).run.settings
    others = [{"settings": settings.changed(flush="dirty")}, {"libraries": {"torch": "2.15.0"}}, {"engine_version": 9}]
    runs = [one, *(replace(one, run=one.run.model_copy(update=each)) for each in others)]
    assert OverGpus([compare(run) for run in runs]).by_run == {}
