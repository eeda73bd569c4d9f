"""Multiprocessors that a launch leaves to other kernels: the choice without them, what says so, and what is refused."""

from dataclasses import replace
from itertools import product

import pytest

from harness.cases import NormCase, make_inputs
from impls import triton_inhouse
from impls.inhouse import backward
from impls.inhouse.model.in_torch import as_torchs_backward
from impls.inhouse.problem import LAUNCHES, SM_MARGIN, GpuLimits
from impls.inhouse.regimes.choice import choose
from tests.impls.inhouse_cases import gradients
from tests.impls.problems import H200, problem

CASE = NormCase("rms", 4, 64, device="cpu")


@pytest.fixture
def asked(monkeypatch):
    """What launches are chosen for."""
    gpus = []
    monkeypatch.setattr(backward, "choose", lambda problem, gpu: gpus.append(gpu) or choose(problem, gpu))
    return gpus


def test_the_launch_is_chosen_for_what_is_left(asked):
    inputs = make_inputs(CASE, seed=1)
    for margin in (None, 0, 1, 3):
        gradients(inputs, sm_margin=margin)
    whole = GpuLimits()
    assert asked == [
        whole,
        whole,
        replace(whole, multiprocessors=3, sm_margin=1),
        replace(whole, multiprocessors=1, sm_margin=3),
    ]


def test_the_environment_says_it_where_the_caller_does_not(asked, monkeypatch):
    inputs = make_inputs(CASE, seed=1)
    monkeypatch.setenv(SM_MARGIN, "2")
    gradients(inputs)
    gradients(inputs, sm_margin=1)
    assert [gpu.multiprocessors for gpu in asked] == [2, 3]
    for text in ("two", "-1", "1.5"):
        monkeypatch.setenv(SM_MARGIN, text)
        with pytest.raises(ValueError, match=f"{SM_MARGIN} must be a number of multiprocessors, not '{text}'"):
            gradients(inputs)
        with pytest.raises(ValueError, match=SM_MARGIN):
            as_torchs_backward("cpu")


@pytest.mark.parametrize("margin", [-1, 4, 132])
def test_one_multiprocessor_at_least_is_left(margin):
    with pytest.raises(ValueError, match=f"sm_margin must be 0 to 3 on this device, not {margin}"):
        gradients(make_inputs(CASE, seed=1), sm_margin=margin)


def test_a_tuned_launch_is_for_the_whole_device(asked, monkeypatch):
    """The file that is named here is not there, and would be missed."""
    monkeypatch.setenv(LAUNCHES, "absent.json")
    inputs = make_inputs(CASE, seed=1)
    gradients(inputs, sm_margin=1)
    assert asked
    with pytest.raises(ValueError, match=r"absent\.json"):
        gradients(inputs, sm_margin=0)


def test_programs_that_wait_for_each_other_fit_beside_what_is_held():
    for norm, cols, margin in product(("rms", "layer"), (256, 768, 2048, 4096, 8192, 16384), (8, 32)):
        asked, left = problem(cols, norm=norm), replace(H200, multiprocessors=132 - margin)
        launch, alone = choose(asked, left), choose(asked, H200)
        assert launch.violation(asked, left) is None
        most = -(-alone.programs // H200.multiprocessors) * left.multiprocessors
        assert most // 2 < launch.programs <= most


def test_programs_of_a_tile_each_would_leave_nothing():
    """Without a weight they fill the device, and so take tiles in turn where a part of it is left to others."""
    for cols in (128, 768, 4096, 12288):
        bare = problem(cols, weight_dtype=None, rows=100_000)
        assert choose(bare, H200).programs * choose(bare, H200).rows >= 100_000
        assert choose(bare, replace(H200, multiprocessors=124, sm_margin=8)).programs <= 2 * 124


def test_a_margin_of_the_environment_is_noted_and_checked_before_anything_runs(monkeypatch):
    assert triton_inhouse.misconfigured("cpu") is None
    monkeypatch.setenv(SM_MARGIN, "2")
    assert triton_inhouse.misconfigured("cpu") is None
    assert triton_inhouse.notes(CASE) == [f"leaves 2 multiprocessors to others, by {SM_MARGIN}"]
    monkeypatch.setenv(SM_MARGIN, "many")
    assert triton_inhouse.misconfigured("cpu") == f"{SM_MARGIN} must be a number of multiprocessors, not 'many'"
    monkeypatch.setenv(SM_MARGIN, "4")
    assert triton_inhouse.misconfigured("cpu") == "sm_margin must be 0 to 3 on this device, not 4"
