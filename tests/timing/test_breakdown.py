import pytest

from harness.results import Kernel
from harness.timing.breakdown import REPETITIONS, Activity, Breakdown, assign

MARK = Activity("void at::cuda::spin_kernel(long)", 1.0)
OUTSIDE = [Activity("restore dy", 3.0), Activity("fill (flush)", 200.0), Activity("sum (flush)", 190.0)]
LOST = Breakdown(None, "the profiler lost records")


def run(*kernels):
    """One repetition: a restore and a flush, then the kernels between two markers."""
    return [*OUTSIDE, MARK, *(Activity(name, us) for name, us in kernels), MARK]


def runs(*kernels):
    return [activity for _ in range(REPETITIONS) for activity in run(*kernels)]


def test_each_candidate_gets_what_ran_between_its_markers():
    found = assign(["one", "two"], runs(("backward", 10.0)) + runs(("rows", 20.0), ("columns", 5.0)))
    assert found == {
        "one": Breakdown([Kernel(name="backward", median_us=10.0)]),
        "two": Breakdown([Kernel(name="rows", median_us=20.0), Kernel(name="columns", median_us=5.0)]),
    }


def test_flush_and_restore_are_left_out_by_place_not_by_name():
    found = assign(["one"], runs(("fill (flush)", 4.0)))
    assert found["one"].kernels == [Kernel(name="fill (flush)", median_us=4.0)]


def test_the_time_of_a_kernel_is_its_median_over_the_repetitions():
    activities = [activity for us in (9.0, 100.0, 10.0) for activity in run(("backward", us))]
    assert assign(["one"], activities)["one"].kernels == [Kernel(name="backward", median_us=10.0)]


def test_the_same_kernel_launched_twice_stands_twice_in_order():
    found = assign(["one"], runs(("k", 1.0), ("memset", 0.5), ("k", 2.0)))["one"]
    assert [(kernel.name, kernel.median_us) for kernel in found.kernels] == [("k", 1.0), ("memset", 0.5), ("k", 2.0)]


@pytest.mark.parametrize("lost", range(2 * 2 * REPETITIONS))
def test_a_lost_marker_leaves_every_candidate_unknown(lost):
    activities = runs(("a", 1.0)) + runs(("b", 2.0))
    marks = [place for place, activity in enumerate(activities) if activity is MARK]
    del activities[marks[lost]]
    assert assign(["one", "two"], activities) == {"one": LOST, "two": LOST}


def test_two_lost_markers_are_seen_though_the_rest_pairs_up():
    activities = runs(("a", 1.0)) + runs(("b", 2.0))
    marks = [place for place, activity in enumerate(activities) if activity is MARK]
    del activities[marks[6]], activities[marks[5]]  # the end of the first candidate and the start of the second
    assert assign(["one", "two"], activities) == {"one": LOST, "two": LOST}


def test_no_records_at_all():
    assert assign(["one"], []) == {"one": LOST}


def test_kernels_that_differ_between_repetitions_are_not_reported():
    activities = [*run(("a", 1.0)), *run(("a", 1.0), ("b", 1.0)), *run(("a", 1.0))]
    found = assign(["one", "two"], activities + runs(("c", 3.0)))
    assert found["one"] == Breakdown(None, "the kernels differ between repetitions (1, 2, 1 launched)")
    assert found["two"].kernels == [Kernel(name="c", median_us=3.0)]


def test_as_many_kernels_of_another_name_differ_too():
    activities = [*run(("a", 1.0)), *run(("a", 1.0)), *run(("b", 1.0))]
    assert assign(["one"], activities)["one"].kernels is None


def test_a_backward_that_launches_nothing_has_no_kernels():
    assert assign(["one"], runs())["one"] == Breakdown([])
