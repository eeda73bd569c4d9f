"""The parent against a worker that plays a script: no process, no device."""

import pytest

from harness.cases import NormCase
from harness.cases.traffic import shortest_possible_us
from harness.devices.profiles import PROFILES
from harness.records.schema import Budget, ConditionsRecord, RowRecord, SelfTestRecord
from harness.records.settings import Settings
from harness.run.plan import Job, remaining
from harness.run.process import WorkerDiedError
from harness.run.resolve import for_later_process
from harness.run.runner import QUARANTINE_AFTER, Runner
from harness.worker.messages import Aside, Began, Done, Hello, Load, Row, SelfTest, Try
from tests.results_factory import timing
from tests.wording import worded

CASE = NormCase("rms", 16, 64, device="cpu")
OTHER = NormCase("rms", 32, 64, device="cpu")
SETTINGS = Settings(seed=5, repeats=50)
PROFILE = PROFILES[0]
DEATH = WorkerDiedError("the worker process was killed by SIGSEGV")
HANG = None


def done(impl, case=CASE, **more):
    """The event of a finished row."""
    return Row(RowRecord(case=case, impl=impl, **({"status": "ok"} | more)))


def at_work(impl, stage="verify"):
    return Began(impl, stage)


def self_tested(when, process=0):
    """The events of a self-test."""
    budget = Budget(t0_us=1.0, fixed_us=1.0, relative=0.01, ratio=0.01)
    record = SelfTestRecord(when=when, process=process, budget=budget, checks=[])
    return [Began(None, "self-test"), Aside(record), Done()]


class FakeWorker:
    """Answers with its script, an event, an exception or None (silence) at a time.

    A number in the script is how many seconds the next event takes, on the clock of the run.
    """

    clock = None

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
        while isinstance(event, (int, float)):
            self.clock.now_s += event
            event = self.script.pop(0)
        if isinstance(event, BaseException):
            raise event
        return event

    def kill(self):
        self.killed += 1


class Clock:
    """A clock that its owners set."""

    now_s = 1000.0


class Log:
    """Results and progress in the order in which they came."""

    def __init__(self):
        self.rows = []
        self.asides = []
        self.events = []

    def append(self, record):
        if isinstance(record, RowRecord):
            self.rows.append(record)
            self.events.append(f"write {record.impl}")
        else:
            self.asides.append(record)
            self.events.append(f"write {record.record}")

    def say(self, text):
        self.events.append(f"say {text}")

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

    def __init__(self, jobs, *workers, missing=None, ready=False, time_limit_s=3.0, settings=SETTINGS, selftests=()):
        self.workers = [worker if isinstance(worker, FakeWorker) else FakeWorker(worker) for worker in workers]
        self.log = Log()
        self.clock = Clock()
        for worker in self.workers:
            worker.clock = self.clock
        self.launched = []  # the process that each worker was launched for
        self._waiting = list(self.workers)
        self.runner = Runner(
            launch=self._launch,
            results=self.log,
            settings=settings,
            profile=PROFILE,
            progress=self.log,
            missing=missing or {},
            time_limit_s=time_limit_s,
            worker=self._waiting.pop(0) if ready else None,
            selftests=selftests,
            now_s=lambda: self.clock.now_s,
        )
        self._jobs = jobs

    def _launch(self, process):
        self.launched.append(process)
        return self._waiting.pop(0)

    def run(self):
        self.runner.run(self._jobs)
        assert all(worker.killed for worker in self.workers), "a worker was left behind or never needed"
        assert not any(worker.script for worker in self.workers), "not all of a script was heard"
        return self

    def outcomes(self):
        return [(row.impl, row.status, worded(row.reason)) for row in self.log.rows]

    def asked_for(self):
        return [request.impls for worker in self.workers for request in worker.requests]

    def requests(self):
        """What each worker was asked, in a few words."""
        return [[self._words(request) for request in worker.requests] for worker in self.workers]

    def _words(self, request):
        if isinstance(request, SelfTest):
            return f"self-test {request.when} {request.process}"
        return f"try {request.case.rows} {','.join(request.impls)} {request.process}"


def test_rows_are_written_before_they_are_shown():
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


def test_one_worker_serves_all_cases():
    """Each request has a timing group of its own."""
    script = [done("a"), Done(), done("a", OTHER), Done()]
    played = Played([Job(CASE, ("a",)), Job(OTHER, ("a",))], script).run()
    (worker,) = played.workers
    assert [request.case for request in worker.requests] == [CASE, OTHER]
    assert len({request.group for request in worker.requests}) == 2
    assert {request.settings for request in worker.requests} == {SETTINGS}
    assert set(worker.timeouts_s) == {3.0}


@pytest.mark.parametrize("stage", ["prepare", "verify", "time"])
def test_worker_death_costs_only_the_running_one(stage):
    """The other implementations are tried again."""
    first = [at_work("a"), done("a"), at_work("b", stage), DEATH]
    second = [at_work("c"), done("c"), Done()]
    played = Played([Job(CASE, ("a", "b", "c"))], first, second).run()
    assert played.outcomes() == [
        ("a", "ok", None),
        ("b", "crashed", f"the worker process was killed by SIGSEGV in stage {stage!r}"),
        ("c", "ok", None),
    ]
    assert played.asked_for() == [("a", "b", "c"), ("c",)]


@pytest.mark.parametrize(("kills", "status"), [(1, "ok"), (2, "crashed")])
def test_who_is_killed_from_outside_is_tried_once_more(kills, status):
    """The kernel's OOM killer and limits of CPU time end innocent workers; who is killed each time has crashed."""
    killed = [at_work("a"), WorkerDiedError("the worker process was killed by SIGKILL", "SIGKILL")]
    rest = [at_work("a"), done("a")] if status == "ok" else []
    last = [*rest, at_work("b"), done("b"), Done()]
    played = Played([Job(CASE, ("a", "b"))], *[killed] * kills, last).run()
    how = None if status == "ok" else "the worker process was killed by SIGKILL in stage 'verify'"
    tried_again = how and f"{how}, from outside; --resume tries it again"
    assert played.outcomes() == [("a", status, tried_again), ("b", "ok", None)]
    assert [job.impls for job in remaining([Job(CASE, ("a", "b"))], played.log.rows)] == ([("a", "b")] if how else [])


def test_unwritten_contenders_are_retried_together():
    first = [at_work("a"), at_work("b"), at_work("c"), at_work("b", "time"), DEATH]
    second = [done("a"), done("c"), Done()]
    played = Played([Job(CASE, ("a", "b", "c"))], first, second).run()
    assert [outcome[:2] for outcome in played.outcomes()] == [("b", "crashed"), ("a", "ok"), ("c", "ok")]
    assert played.asked_for() == [("a", "b", "c"), ("a", "c")]
    groups = [worker.requests[0].group for worker in played.workers]
    assert groups[0] != groups[1]


def test_an_event_out_of_turn_is_a_death():
    played = Played([Job(CASE, ("a",))], [at_work("a"), Hello([], [], {})]).run()
    ((impl, status, reason),) = played.outcomes()
    assert (impl, status) == ("a", "crashed")
    assert reason.startswith("the worker sent an unexpected event: Hello(")


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
    of_a = [(row.status, worded(row.reason)) for row in played.log.rows if row.impl == "a"]
    assert [status for status, _ in of_a] == ["timeout", "crashed", "timeout", "crashed", "crashed"]
    assert {reason for _, reason in of_a[3:]} == {"not tried: in quarantine after 3 crashes or hangs"}
    assert [row.status for row in played.log.rows if row.impl == "b"] == ["ok"] * len(cases)


def test_interrupt_ends_worker_and_keeps_the_rows():
    played = Played([Job(CASE, ("a", "b"))], [done("a"), at_work("b"), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        played.run()
    assert played.workers[0].killed == 1
    assert played.outcomes() == [("a", "ok", None)]


@pytest.mark.parametrize("status", ["wrong", "unsupported", "oom"])
def test_what_fails_and_leaves_something_behind_is_tried_again(status):
    """It costs a worker each time, and is no crash."""
    cases = [NormCase("rms", rows, 64, device="cpu") for rows in range(1, QUARANTINE_AFTER + 3)]
    failing = [[at_work("a"), done("a", case, status=status, reason="dx is off"), DEATH] for case in cases]
    played = Played([Job(case, ("a",)) for case in cases], *failing).run()
    assert played.outcomes() == [("a", status, "dx is off")] * len(cases)


BOTH = ("before", "after")


def jobs(*processes, impls=("a",), cases=(CASE,)):
    return [Job(case, impls, process) for process in processes for case in cases]


def test_each_process_is_a_fresh_worker():
    script = [done("a"), Done(), done("a", OTHER), Done()]
    played = Played(jobs(0, 1, 2, cases=(CASE, OTHER)), script, script, script, ready=True).run()
    assert played.requests() == [
        ["try 16 a 0", "try 32 a 0"],
        ["try 16 a 1", "try 32 a 1"],
        ["try 16 a 2", "try 32 a 2"],
    ]
    assert [worker.killed for worker in played.workers] == [1, 1, 1]
    groups = {request.group for worker in played.workers for request in worker.requests}
    assert len(groups) == 6


def test_replacement_worker_keeps_process_number():
    first, dying, second = [done("a"), Done()], [at_work("a"), DEATH], [done("b"), Done()]
    played = Played([*jobs(0), *jobs(1, impls=("a", "b"))], first, dying, second)
    assert played.run().launched == [0, 1, 1]
    tested = Played(jobs(2), [*self_tested("before", 2), done("a"), Done()], selftests=("before",))
    assert tested.run().launched == [2]


def test_only_first_process_runs_all_checks():
    settings = SETTINGS.changed(twice=True)
    script = [done("a"), Done()]
    played = Played(jobs(0, 1, 2), script, script, script, settings=settings).run()
    later = for_later_process(settings)
    assert [worker.requests[0].settings for worker in played.workers] == [settings, later, later]
    assert later == settings.changed(repeats=2, seeds=1, profiled=False)


def test_rows_that_the_parent_writes_carry_the_process():
    script = [at_work("b"), DEATH]
    played = Played(jobs(0, 3, impls=("a", "b")), script, [at_work("b"), HANG], missing={"a": "not installed: a"}).run()
    assert [(row.impl, row.status, row.process) for row in played.log.rows] == [
        ("a", "missing", 0),
        ("b", "crashed", 0),
        ("a", "missing", 3),
        ("b", "timeout", 3),
    ]


def test_selftest_runs_before_and_after_the_cases():
    def process(number):
        case = [at_work("a"), done("a", process=number), Done()]
        return [*self_tested("before", number), *case, *self_tested("after", number)]

    played = Played(jobs(0, 1), process(0), process(1), selftests=BOTH).run()
    assert played.requests() == [
        [f"self-test before {number}", f"try 16 a {number}", f"self-test after {number}"] for number in (0, 1)
    ]
    once = [
        "step None self-test",
        "write selftest",
        "case rms-16x64-bf16",
        "step a verify",
        "write a",
        "row a ok",
        "case done",
        "step None self-test",
        "write selftest",
    ]
    assert played.log.events == once * 2
    assert [(record.when, record.process) for record in played.log.asides] == [
        ("before", 0),
        ("after", 0),
        ("before", 1),
        ("after", 1),
    ]


def test_the_time_is_added_up_by_the_stage_that_was_at_work():
    script = [
        1,
        Began(None, "self-test"),
        20,
        *self_tested("before")[1:],
        0.5,
        Began(None, "inputs"),
        2,
        at_work("a", "prepare"),
        4,
        at_work("a", "verify"),
        8,
        at_work("b", "prepare"),
        16,
        at_work("b", "verify"),
        32,
        at_work("a", "time"),
        at_work("b", "time"),
        64,
        done("a"),
        done("b"),
        128,
        Done(),
    ]
    played = Played(jobs(0, impls=("a", "b")), script, selftests=("before",)).run()
    assert {stage: seconds for stage, seconds in played.runner.stages_s.items() if seconds} == {
        "start": 1.5,
        "self-test": 20.0,
        "inputs": 2.0,
        "prepare": 20.0,
        "verify": 40.0,
        "time": 192.0,
    }


INTERPRETED = "verified in the Triton interpreter, which is never timed"


def test_later_processes_take_what_was_timed_beside_it():
    first, second = [done("a"), done("b", untimed=INTERPRETED), Done()], [done("a", process=1), Done()]
    played = Played(jobs(0, 1, impls=("a", "b")), first, second).run()
    assert played.requests() == [["try 16 a,b 0"], ["try 16 a 1"]]


def test_a_time_below_the_reading_of_x_and_dy_is_impossible():
    """The parent says so, whatever the worker sent; the case goes on."""
    case = NormCase("rms", 8192, 4096)
    fast = timing(case_us := 0.9 * shortest_possible_us(case, PROFILE.datasheet_gbps), drift=0.0)
    script = [done("a", case, timing=fast), done("b", case, timing=timing(2 * case_us)), Done()]
    played = Played([Job(case, ("a", "b"))], script).run()
    assert [(impl, status) for impl, status, _ in played.outcomes()] == [("a", "impossible"), ("b", "ok")]
    assert "to read x and dy alone takes" in played.outcomes()[0][2]


class Compilers:
    """Compile `a`, and tell the log of a run what they are told."""

    impls = frozenset({"a"})
    processes = 3

    def __init__(self, log):
        self.log = log

    def wait_for(self, tasks):
        self.log.events.append(f"wait for {','.join(impl for _, impl in tasks)}")

    def pause(self):
        self.log.events.append("pause")

    def go_on(self):
        self.log.events.append("go on")


def test_a_library_whose_import_ends_the_worker_is_blamed_for_it():
    imports = [Began("a", "asking"), Began("b", "asking"), WorkerDiedError("killed by SIGSEGV")]
    played = Played([Job(CASE, ("a", "b"))], imports, [done("a"), Done()], ready=True)
    played.runner.background = Compilers(played.log)
    assert [(impl, status) for impl, status, _ in played.run().outcomes()] == [("b", "crashed"), ("a", "ok")]
    assert [type(request) for worker in played.workers for request in worker.requests] == [Load, Try]


def test_compilers_stand_still_whenever_the_device_has_to_be_quiet():
    """They go on beside the drawing of inputs, and beside an implementation of which nothing is compiled ahead."""
    script = [
        Began("a", "asking"),
        Began(None, "inputs"),
        at_work("a", "prepare"),
        at_work("a", "first call"),
        at_work("b", "prepare"),
        at_work("b", "verify"),
        Began(None, "time"),
        Aside(ConditionsRecord(case=CASE, group="g", other_processes=5)),
        done("a"),
        done("b"),
        Done(),
    ]
    played = Played([Job(CASE, ("a", "b"))], [Done(), *script], ready=True)

    played.runner.background = Compilers(played.log)
    events = played.run().log.events
    paused = {
        event.removeprefix("step "): events[place - 1] for place, event in enumerate(events) if event.startswith("step")
    }
    assert events[:2] == ["case rms-16x64-bf16", "wait for a,b"]
    assert [type(request) for request in played.workers[0].requests] == [Load, Try]
    assert [record.other_processes for record in played.log.asides] == [2]
    assert paused == {
        "a asking": "go on",
        "None inputs": "go on",
        "a prepare": "pause",
        "a first call": "pause",
        "b prepare": "go on",
        "b verify": "pause",
        "None time": "pause",
    }
