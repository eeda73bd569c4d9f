import pytest

from harness.run.deadline import Deadline
from harness.run.plan import Job
from tests.results_factory import CASE, LAYER

JOBS = [Job(case, ("a",), process) for process in (0, 1) for case in (CASE, LAYER)]


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.mark.parametrize(("left_s", "fit"), [(-1.0, 0), (9.9, 0), (10.0, 1), (39.9, 3), (40.0, 4), (float("inf"), 4)])
def test_as_many_jobs_fit_as_their_estimates_say(left_s, fit):
    assert len(Deadline(left_s, 10.0, Clock()).fitting(JOBS)) == fit


def test_no_job_is_begun_that_would_end_too_late_if_it_took_as_long_as_the_longest():
    clock = Clock()
    deadline = Deadline(60.0, 10.0, clock)
    done = []
    for job in deadline.jobs_in_time(JOBS):
        done.append(job)
        clock.now_s += 25.0  # each takes longer than was thought
    assert (done, deadline.not_begun) == (JOBS[:2], JOBS[2:])
    assert not deadline.has_come
    clock.now_s = 60.0
    assert deadline.has_come


def test_what_is_done_in_time_leaves_nothing():
    deadline = Deadline(60.0, 10.0, Clock())
    assert list(deadline.jobs_in_time(JOBS)) == JOBS
    assert deadline.not_begun == []
