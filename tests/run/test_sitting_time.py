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
        return len(SittingTime(ends_s, lambda job: 10.0, 5.0, now_s=Clock()).fitting(JOBS))

    assert [fitting(ends_s) for ends_s in (14.9, 15.0, 25.0, 39.9, 40.0, 50.0)] == [0, 1, 2, 2, 3, 4]


def test_what_has_to_be_compiled_first_takes_its_time():
    """Each job takes 10 s, and 3 s before them all; of the last two jobs nothing is left to compile."""
    time = SittingTime(46.0, lambda job: 10.0, 5.0, lambda jobs: 3.0 * min(len(jobs), 2), Clock())
    assert len(time.fitting(JOBS)) == 3
    time.ends_s = 45.9
    assert len(time.fitting(JOBS)) == 2


def test_clock_has_the_last_word():
    clock = Clock()
    time = SittingTime(60.0, lambda job: 10.0, 5.0, now_s=clock)
    done = []
    for job in time.jobs_in_time(JOBS):
        done.append(job)
        clock.now_s += 25.0  # each takes longer than was thought
    assert (done, time.not_begun) == (JOBS[:2], JOBS[2:])
    assert not time.is_up
    clock.now_s = 60.0
    assert time.is_up


def test_what_is_done_in_time_leaves_nothing():
    time = SittingTime(60.0, lambda job: 10.0, 5.0, now_s=Clock())
    assert list(time.jobs_in_time(JOBS)) == JOBS
    assert time.not_begun == []


def test_no_more_than_the_first_processes_are_begun():
    for processes, begun in ((None, 4), (2, 4), (1, 2), (0, 0)):
        sitting = SittingTime(1000.0, lambda job: 10.0, 5.0, now_s=Clock(), processes=processes)
        assert len(sitting.fitting(JOBS)) == begun
