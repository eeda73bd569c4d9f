from harness.run.plan import Job
from harness.run.sitting_time import SittingTime
from tests.results_factory import CASE, LAYER

JOBS = [Job(case, ("a",), process) for process in (0, 1) for case in (CASE, LAYER)]


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_as_many_jobs_fit_as_their_estimates_say():
    def fitting(ends_s):
        return len(SittingTime(ends_s, lambda job: 10.0, 5.0, Clock()).fitting(JOBS))

    assert [fitting(ends_s) for ends_s in (14.9, 15.0, 25.0, 39.9, 40.0, 50.0)] == [0, 1, 2, 2, 3, 4]


def test_clock_has_the_last_word():
    clock = Clock()
    time = SittingTime(60.0, lambda job: 10.0, 5.0, clock)
    done = []
    for job in time.jobs_in_time(JOBS):
        done.append(job)
        clock.now_s += 25.0  # each takes longer than was thought
    assert (done, time.not_begun) == (JOBS[:2], JOBS[2:])
    assert not time.is_up
    clock.now_s = 60.0
    assert time.is_up


def test_what_is_done_in_time_leaves_nothing():
    time = SittingTime(60.0, lambda job: 10.0, 5.0, Clock())
    assert list(time.jobs_in_time(JOBS)) == JOBS
    assert time.not_begun == []


def test_no_more_than_the_first_processes_are_begun():
    for processes, begun in ((None, 4), (2, 4), (1, 2), (0, 0)):
        assert len(SittingTime(1000.0, lambda job: 10.0, 5.0, Clock(), processes).fitting(JOBS)) == begun
