"""Which GPU measures what: stretches of the plan, what is handed over, and what is lost."""

import threading

import pytest

from harness.cases import NormCase
from harness.fleet.shares import MOST_TRIES, Shares
from harness.run.plan import Job

CASES = [NormCase("rms", rows, 1024) for rows in range(1, 13)]


def jobs(processes=1, cases=CASES):
    return [Job(case, ("a", "b"), process) for process in range(processes) for case in cases]


def shares(of, lanes):
    return Shares(of, range(lanes))


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
def test_shares_are_the_plan_and_about_equal(lanes):
    of = shares(jobs(5), lanes)
    parts = [of.of(lane) for lane in range(lanes)]
    assert [job for part in parts for job in part] == jobs(5)
    assert max(map(len, parts)) == -(-60 // lanes)
    if lanes >= 5:  # no GPU measures a case twice
        assert all(len({job.case for job in part}) == len(part) for part in parts)


def test_a_lane_that_is_done_takes_from_the_end_of_another():
    of = shares(jobs(), 2)
    first = of.take(1)
    assert taken(of, 0) == [*jobs()[:6], *reversed(jobs()[8:])]  # one is left: its own lane has it done as soon
    assert [first, of.take(1), of.take(1)] == [*jobs()[6:8], None]


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
