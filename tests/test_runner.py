"""The parent against a worker that plays a script: no process, no device."""

import pytest

from harness.cases import NormCase
from harness.messages import Asked, Began, Done, Hello, Row
from harness.plan import Job
from harness.process import WorkerDiedError
from harness.results import RowRecord
from harness.runner import QUARANTINE_AFTER, Runner

CASE = NormCase("rms", 16, 64, device="cpu")
OTHER = NormCase("rms", 32, 64, device="cpu")
DEATH = WorkerDiedError("the worker process was killed by SIGSEGV")
HANG = None


def done(impl, case=CASE, **more):
    """The event of a finished row."""
    return Row(RowRecord(case=case, impl=impl, **({"status": "ok"} | more)))


def at_work(impl, stage="verify"):
    return Began(impl, stage)


class FakeWorker:
    """Answers with its script, an event, an exception or None (silence) at a time."""

    def __init__(self, script):
        self.script = list(script)
        self.requests = []
        self.timeouts_s = []
        self.killed = 0

    def send(self, request):
        self.requests.append(request)

    def receive(self, timeout_s):
        self.timeouts_s.append(timeout_s)
        event = self.script.pop(0)
        if isinstance(event, BaseException):
            raise event
        return event

    def kill(self):
        self.killed += 1


class DeafWorker(FakeWorker):
    """Is dead before it is asked."""

    def send(self, request):
        raise DEATH


class Log:
    """Results and progress in the order in which they came."""

    def __init__(self):
        self.rows = []
        self.events = []

    def append(self, row):
        self.rows.append(row)
        self.events.append(f"write {row.impl}")

    def case(self, case):
        self.events.append(f"case {case.key}")

    def step(self, impl, stage):
        self.events.append(f"step {impl} {stage}")

    def row(self, row):
        self.events.append(f"row {row.impl} {row.status}")

    def case_done(self):
        self.events.append("case done")


class Played:
    """A run over scripted workers, launched one after the other."""

    def __init__(self, jobs, *workers, missing=None, ready=False, time_limit_s=3.0):
        self.workers = [worker if isinstance(worker, FakeWorker) else FakeWorker(worker) for worker in workers]
        self.log = Log()
        waiting = list(self.workers)
        self.runner = Runner(
            launch=lambda: waiting.pop(0),
            results=self.log,
            asked=Asked(seed=5),
            progress=self.log,
            missing=missing or {},
            time_limit_s=time_limit_s,
            worker=waiting.pop(0) if ready else None,
        )
        self._jobs = jobs

    def run(self):
        self.runner.run(self._jobs)
        assert all(worker.killed for worker in self.workers), "a worker was left behind or never needed"
        assert not any(worker.script for worker in self.workers), "not all of a script was heard"
        return self

    def outcomes(self):
        return [(row.impl, row.status, row.reason) for row in self.log.rows]

    def asked_for(self):
        return [request.impls for worker in self.workers for request in worker.requests]


def test_rows_are_written_in_the_order_in_which_they_come_and_told_after():
    script = [
        Began(None, "inputs"),
        at_work("a"),
        done("a"),
        at_work("b"),
        done("b", status="wrong", reason="off"),
        Done(),
    ]
    played = Played([Job(CASE, ("a", "b"))], script).run()
    assert played.log.events == [
        "case rms-16x64-bf16",
        "step None inputs",
        "step a verify",
        "write a",
        "row a ok",
        "step b verify",
        "write b",
        "row b wrong",
        "case done",
    ]


def test_one_worker_serves_all_cases_and_each_request_has_a_group_of_its_own():
    script = [done("a"), Done(), done("a", OTHER), Done()]
    played = Played([Job(CASE, ("a",)), Job(OTHER, ("a",))], script).run()
    (worker,) = played.workers
    assert [request.case for request in worker.requests] == [CASE, OTHER]
    assert len({request.group for request in worker.requests}) == 2
    assert {request.asked for request in worker.requests} == {Asked(seed=5)}
    assert set(worker.timeouts_s) == {3.0}


def test_a_worker_that_is_ready_is_used_first():
    played = Played([Job(CASE, ("a",))], [done("a"), Done()], ready=True).run()
    assert played.asked_for() == [("a",)]


@pytest.mark.parametrize("stage", ["prepare", "verify", "time"])
def test_a_death_costs_who_was_at_work_and_the_rest_is_tried_again(stage):
    first = [at_work("a"), done("a"), at_work("b", stage), DEATH]
    second = [at_work("c"), done("c"), Done()]
    played = Played([Job(CASE, ("a", "b", "c"))], first, second).run()
    assert played.outcomes() == [
        ("a", "ok", None),
        ("b", "crashed", f"the worker process was killed by SIGSEGV in stage {stage!r}"),
        ("c", "ok", None),
    ]
    assert played.asked_for() == [("a", "b", "c"), ("c",)]


def test_verified_but_unwritten_contenders_are_tried_again_together():
    first = [at_work("a"), at_work("b"), at_work("c"), at_work("b", "time"), DEATH]
    second = [done("a"), done("c"), Done()]
    played = Played([Job(CASE, ("a", "b", "c"))], first, second).run()
    assert [outcome[:2] for outcome in played.outcomes()] == [("b", "crashed"), ("a", "ok"), ("c", "ok")]
    assert played.asked_for() == [("a", "b", "c"), ("a", "c")]
    groups = [worker.requests[0].group for worker in played.workers]
    assert groups[0] != groups[1]


def test_a_row_that_is_written_is_not_blamed_again_for_the_device_it_took_along():
    first = [at_work("a"), done("a", status="crashed", reason="illegal memory access"), DEATH]
    second = [at_work("b"), done("b"), Done()]
    played = Played([Job(CASE, ("a", "b"))], first, second).run()
    assert played.outcomes() == [("a", "crashed", "illegal memory access"), ("b", "ok", None)]
    assert played.asked_for() == [("a", "b"), ("b",)]


def test_a_death_after_the_last_row_needs_no_other_worker():
    played = Played([Job(CASE, ("a",))], [at_work("a"), done("a"), DEATH]).run()
    assert played.outcomes() == [("a", "ok", None)]


def test_silence_is_a_timeout_and_the_worker_is_replaced():
    first = [at_work("a", "time"), HANG]
    played = Played([Job(CASE, ("a", "b"))], first, [done("b"), Done()], time_limit_s=2.5).run()
    assert played.outcomes() == [
        ("a", "timeout", "no sign of life for 2.5 s in stage 'time'"),
        ("b", "ok", None),
    ]


def test_a_death_with_nobody_at_work_costs_all_that_were_left_and_ends():
    played = Played([Job(CASE, ("a", "b"))], [Began(None, "inputs"), DEATH]).run()
    reason = "the worker process was killed by SIGSEGV in stage 'inputs'"
    assert played.outcomes() == [("a", "crashed", reason), ("b", "crashed", reason)]
    assert played.runner.hard_failures["a"] == 0  # nobody knows whose fault it was


def test_a_worker_that_is_dead_when_it_is_asked_ends_the_case_not_the_run():
    played = Played([Job(CASE, ("a",)), Job(OTHER, ("a",))], DeafWorker([]), [done("a", OTHER), Done()]).run()
    assert played.outcomes() == [
        ("a", "crashed", "the worker process was killed by SIGSEGV in stage 'start'"),
        ("a", "ok", None),
    ]


def test_an_event_out_of_turn_is_a_death():
    played = Played([Job(CASE, ("a",))], [at_work("a"), Hello([], [], {})]).run()
    ((impl, status, reason),) = played.outcomes()
    assert (impl, status) == ("a", "crashed")
    assert reason.startswith("the worker spoke out of turn: Hello(")


def test_who_fails_hard_three_times_is_not_tried_again():
    cases = [NormCase("rms", rows, 64, device="cpu") for rows in range(1, QUARANTINE_AFTER + 3)]
    failing = [[at_work("a"), DEATH if number % 2 else HANG] for number in range(QUARANTINE_AFTER)]
    passing = [[done("b", case), Done()] for case in cases]
    # A worker that finished a case goes on with the next one.
    workers = [
        failing[0],
        passing[0] + failing[1],
        passing[1] + failing[2],
        [event for p in passing[2:] for event in p],
    ]
    played = Played([Job(case, ("a", "b")) for case in cases], *workers).run()
    of_a = [(row.status, row.reason) for row in played.log.rows if row.impl == "a"]
    assert [status for status, _ in of_a] == ["timeout", "crashed", "timeout", "crashed", "crashed"]
    assert {reason for _, reason in of_a[3:]} == {"not tried: in quarantine after 3 crashes or hangs"}
    assert [row.status for row in played.log.rows if row.impl == "b"] == ["ok"] * len(cases)


def test_what_is_missing_gets_its_row_without_a_worker():
    played = Played([Job(CASE, ("a", "b"))], missing={"a": "not installed: a", "b": "no driver"}).run()
    assert played.outcomes() == [("a", "missing", "not installed: a"), ("b", "missing", "no driver")]
    assert played.log.events[-1] == "case done"


def test_only_what_is_here_is_asked_for():
    played = Played([Job(CASE, ("a", "b"))], [done("b"), Done()], missing={"a": "not installed: a"}).run()
    assert played.asked_for() == [("b",)]
    assert [outcome[:2] for outcome in played.outcomes()] == [("a", "missing"), ("b", "ok")]


def test_an_interrupt_ends_the_worker_and_keeps_what_is_written():
    played = Played([Job(CASE, ("a", "b"))], [done("a"), at_work("b"), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        played.run()
    assert played.workers[0].killed == 1
    assert played.outcomes() == [("a", "ok", None)]


def test_no_jobs_end_the_worker_that_is_ready():
    played = Played([], [], ready=True).run()
    assert played.outcomes() == []


def test_a_helper_row_is_not_the_row_of_the_baseline():
    first = [at_work("a", "time"), done("a", role="again"), done("same-traffic add", role="floor"), DEATH]
    played = Played([Job(CASE, ("a",))], first).run()
    assert [(row.impl, row.status) for row in played.log.rows if row.role == "impl"] == [("a", "crashed")]


def test_who_loses_the_device_three_times_is_not_tried_again():
    cases = [NormCase("rms", rows, 64, device="cpu") for rows in range(1, QUARANTINE_AFTER + 2)]
    lost = [[at_work("a"), done("a", case, status="crashed", reason="illegal access"), DEATH] for case in cases]
    played = Played([Job(case, ("a",)) for case in cases], *lost[:QUARANTINE_AFTER]).run()
    assert played.outcomes()[-1][2] == "not tried: in quarantine after 3 crashes or hangs"
