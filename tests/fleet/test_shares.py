"""Which GPU measures what: stretches of the plan, what is handed over, and what is lost."""

import math
import threading

import pytest

from harness.cases import NormCase
from harness.fleet.shares import MOST_TRIES, Shares, slices
from harness.run.plan import Job

CASES = [NormCase("rms", rows, 1024) for rows in range(1, 13)]


def jobs(processes=1, cases=CASES):
    return [Job(case, ("a", "b"), process) for process in range(processes) for case in cases]


def second(job):
    return 1.0


def shares(of, lanes, cost_s=second, process_s=0.0):
    return Shares(of, range(lanes), cost_s, process_s)


def taken(of, lane):
    """All that a lane takes, one after the other."""
    found = []
    while (job := of.take(lane)) is not None:
        found.append(job)
        of.finish()
    return found


def test_one_lane_measures_the_plan_in_its_order():
    assert taken(shares(jobs(5), 1), 0) == jobs(5)


@pytest.mark.parametrize("lanes", [2, 3, 5, 8, 64])
def test_stretches_are_the_plan_and_about_equal(lanes):
    stretches = slices(jobs(5), lanes, second, 0.0)
    assert [job for stretch in stretches for job in stretch] == jobs(5)
    assert len(stretches) == lanes
    assert max(map(len, stretches)) == -(-60 // lanes)


@pytest.mark.parametrize("lanes", [5, 6, 8, 13])
def test_as_many_lanes_as_processes_measure_no_case_twice(lanes):
    for stretch in slices(jobs(5), lanes, second, 3.0):
        assert len({job.case for job in stretch}) == len(stretch)


def test_what_starts_a_process_is_counted():
    """Two processes on two lanes: the border is between them, although it splits no job evenly otherwise."""
    uneven = [*jobs(1, CASES[:7]), *(Job(case, ("a",), 1) for case in CASES[:5])]
    assert [len(stretch) for stretch in slices(uneven, 2, second, 10.0)] == [7, 5]
    assert [len(stretch) for stretch in slices(uneven, 2, second, 0.0)] == [6, 6]


def test_one_lane_has_one_stretch_however_costs_are_rounded(monkeypatch):
    """The sum of Python 3.12 is the nearest to the exact one, and can be below what adding one by one gives."""
    monkeypatch.setattr("harness.fleet.shares.sum", math.fsum, raising=False)
    for number in range(2, 13):
        for tenths in range(1, 30):
            few = jobs(1, CASES[:number])
            assert slices(few, 1, lambda _, cost_s=tenths / 10: cost_s, 0.0) == [few]


def test_a_long_job_has_a_stretch_of_its_own():
    long = {CASES[3]: 100.0}
    stretches = slices(jobs(), 3, lambda job: long.get(job.case, 1.0), 0.0)
    assert [job.case for job in stretches[1]][-1:] == [CASES[3]] or stretches[0][-1].case == CASES[3]


def test_a_lane_that_is_done_takes_from_the_end_of_another():
    of = shares(jobs(), 2)
    first = of.take(1)
    assert taken(of, 0) == [*jobs()[:6], *reversed(jobs()[8:])]  # one is left: its own lane has it done as soon
    assert [first, of.take(1), of.take(1)] == [*jobs()[6:8], None]


def test_another_process_is_not_started_for_what_is_done_sooner_without():
    of = Shares(jobs(2), range(2), second, 100.0)
    of.take(1)
    assert taken(of, 0) == jobs(1)


def test_no_lane_takes_a_case_that_it_has_measured():
    of = shares(jobs(2), 2)
    of.take(1)
    assert {job.case for job in taken(of, 0)} == set(CASES)


def test_a_lost_job_goes_elsewhere_first():
    of = shares(jobs(), 2)
    job = of.take(0)
    of.take(1)
    assert of.lose(0, job, job)
    assert taken(of, 1)[:6] == [*jobs()[7:], job]  # its own first, then the lost one, then what nobody owns
    assert of.unfinished == 1


def test_a_lost_job_comes_back_where_there_is_no_other_lane():
    of = shares(jobs(), 1)
    job = of.take(0)
    left = Job(job.case, ("b",), job.process)
    assert of.lose(0, job, left)
    of.arrive(0)
    assert taken(of, 0) == [left, *jobs()[1:]]
    assert of.over


def test_the_lane_that_lost_a_job_does_not_take_it_again_beside_others():
    of = shares(jobs(cases=CASES[:2]), 2)
    job = of.take(0)
    of.take(1)
    of.lose(0, job, job)
    of.arrive(0)
    assert of.take(0) is None
    of.depart(1)
    assert of.take(0) == job


def test_a_job_is_tried_so_often_and_no_more():
    of = shares(jobs(cases=CASES[:1]), 1)
    for trial in range(1, MOST_TRIES + 1):
        of.arrive(0)
        job = of.take(0)
        assert of.lose(0, job, job) == (trial < MOST_TRIES)
    assert of.over


def test_a_job_that_had_all_its_rows_is_not_lost():
    of = shares(jobs(cases=CASES[:1]), 1)
    assert of.lose(0, of.take(0), None)
    assert of.over


def test_a_lane_waits_for_what_another_may_lose():
    of = shares(jobs(cases=CASES[:2]), 2)
    first = of.take(0)
    of.take(1)
    of.finish()
    heard = []
    waiting = threading.Thread(target=lambda: heard.append(of.wait(1)))
    waiting.start()
    of.lose(0, first, first)
    waiting.join(10)
    assert heard == [True]
    assert of.take(1) == first


def test_nobody_waits_once_all_is_done_or_stopped():
    of = shares(jobs(cases=CASES[:1]), 2)
    lane = 0 if of.of(0) else 1
    of.take(lane)
    of.finish()
    assert not of.wait(1 - lane)
    of = shares(jobs(), 2)
    of.stop()
    assert not of.wait(0)
    assert of.take(0) is None
