import numpy as np
import pytest

from harness.analysis.comparison import compare
from harness.analysis.history import change_points, histories, steps
from tests.results_factory import CASE, history


def noise(rng, count=40):
    """Medians of runs of the same code: 0.5 % apart, and one in twenty on a disturbed machine."""
    disturbed = np.where(rng.random(count) < 0.05, 1 + abs(rng.normal(0, 0.03, count)), 1.0)
    return rng.normal(1, 0.005, count) * disturbed


def test_noise_alone_has_no_change():
    rng = np.random.default_rng(61)
    assert not any(change_points([noise(rng) for _ in range(20)]))


@pytest.mark.parametrize("place", [5, 20, 36])
def test_a_step_of_3_percent_among_20_series_is_found(place):
    rng = np.random.default_rng(62)
    series = [noise(rng) for _ in range(20)]
    series[7][place:] *= 1.03
    found = change_points(series)
    assert [bool(points) for points in found] == [number == 7 for number in range(20)]
    (at,) = found[7]
    (size,) = steps(series[7], [at])
    assert abs(at - place) <= 1
    assert 0.02 < size < 0.04


def test_a_change_that_was_taken_back_is_two_changes():
    values = noise(np.random.default_rng(63))
    values[15:25] *= 1.05
    ((begun, ended),) = change_points([values])
    assert (begun, ended) == pytest.approx((15, 25), abs=1)


def test_half_a_percent_and_two_runs_are_no_change():
    assert change_points([[1.0] * 20 + [1.005] * 20, [1.0, 1.5], [1.0] * 30]) == [[], [], []]


def compared(**made):
    return [compare(run) for run in history(**made)]


def test_a_change_is_told_with_its_run_whatever_order_the_files_come_in():
    (found,) = histories(compared(runs=16, step=1.05, at=8)[::-1])
    (series,) = [series for series in found.series if series.changes]
    ((run, relative),) = [(change.run, change.relative) for change in series.changes]
    assert (series.case, series.impl, run) == (CASE, "quack", 8)
    assert relative == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(
    "changed",
    [
        {"engine_version": 2},
        {"libraries": {"torch": "2.12.0", "triton": "3.6.0"}},
        {"driver": "600.1"},
        {"flush": "dirty"},
    ],
)
def test_runs_of_another_environment_are_another_stretch(changed):
    (found,) = histories(compared(runs=16, step=1.05, at=8, changed=changed))
    assert list(found.breaks) == [8]
    for before, after in map(found.stretches, found.series):
        assert max(before) < 8 <= min(after)
    assert not any(series.changes for series in found.series)


def test_other_devices_are_other_histories_and_own_libraries_are_none():
    one, other = compared(runs=4), compared(runs=4, changed={"name": "NVIDIA B200"}, at=0)
    assert [len(each.runs) for each in histories([*one, *other])] == [4, 4]
    (found,) = histories(compared(runs=4, changed={"own": "my.py sha256:2"}, at=2))
    assert found.breaks == {}
