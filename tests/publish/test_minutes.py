from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.publish.minutes import UNKNOWN_ROW_S, run_times
from harness.records.run_records import ImplRecord
from harness.records.schema import SanitizerRecord
from harness.records.settings import Settings
from harness.run.plan import Job
from tests.results_factory import CASE, LAYER, in_contexts, results, row, selftest

STAGES = {"compile ahead": 24.0, "self-test": 6.0, "start": 1.0, "time": 8.0}
ROW_S = 4.0 + 1.5  # a half of `time`, and its own preparation
TIMED = results(row("quack", 10.0), row("liger", 10.0), stages_s=STAGES, selftests=[selftest()])
IMPLS = [ImplRecord(name=name, family=name, source="", missing=None) for name in ("quack", "liger")]
JOB = Job(CASE, ("quack", "liger"))


def planned(impls=IMPLS, **settings):
    return SimpleNamespace(impls=impls, settings=Settings(**settings), jobs=[JOB])


def test_what_is_missing_here_takes_no_time():
    times = run_times([TIMED])
    away = [IMPLS[0], IMPLS[1].model_copy(update={"missing": "not here"})]
    assert times.job_s(planned())(JOB) == 2 * ROW_S
    assert times.job_s(planned(away))(JOB) == ROW_S
    assert times.job_s(planned(away), here=False)(JOB) == 2 * ROW_S


def test_what_lacks_a_variant_takes_no_time():
    times, has = run_times([TIMED]), IMPLS[0].model_copy(update={"handles": {"rms": ["residual"]}})
    job = Job(replace(CASE, features=("residual",)), JOB.impls)
    able = planned([has, IMPLS[1]])
    assert times.job_s(able)(job) == ROW_S
    assert times.run_s(able, [job], False) == pytest.approx(times.timed.process_s + ROW_S)
    assert times.run_s(able, [Job(job.case, ("liger",))], False) == 0.0


def test_what_torch_completes_takes_its_time():
    """`NAME + torch` handles what NAME does, and is tried on the rest."""
    times, helped = run_times([TIMED]), IMPLS[0].model_copy(update={"name": "quack + torch"})
    job = Job(replace(CASE, features=("residual",)), ("quack", "quack + torch"))
    assert times.job_s(planned([IMPLS[0], helped]))(job) == ROW_S


def test_a_case_that_was_not_measured_takes_as_long_as_others_of_its_variant():
    """Preparation took 1.5 s for a plain norm, and 7.5 s with a residual."""
    residual = replace(CASE, features=("residual",))
    rows = [row("quack", 10.0), row("quack", 10.0, case=residual, prepare_s=7.5)]
    times = run_times([results(*rows, stages_s=STAGES, selftests=[selftest()])])
    has = planned([IMPLS[0].model_copy(update={"handles": {"rms": ["residual", "gated"]}})])
    wider = replace(residual, cols=8192)
    assert times.job_s(has)(Job(wider, ("quack",))) == 4.0 + 7.5
    assert times.job_s(has)(Job(replace(wider, features=("gated",)), ("quack",))) == 4.0 + (1.5 + 7.5) / 2


def test_what_is_compiled_ahead_takes_its_share_of_the_processes():
    """24 s for one backward by 12 processes; what is compiled already, or in the process itself, takes none."""
    impls = [IMPLS[0].model_copy(update={"compiles_ahead": True}), IMPLS[1]]
    run = results(row("quack", 10.0), stages_s=STAGES, selftests=[selftest()])
    run = replace(run, run=run.run.model_copy(update={"implementations": impls}))
    times, jobs = run_times([run]), [JOB, Job(LAYER, JOB.impls), Job(CASE, JOB.impls, 1)]
    assert times.ahead_s(planned(impls), 6, set())(jobs) == 2 * 24.0 * 12 / 6
    assert times.ahead_s(planned(impls), 6, {(CASE, "quack")})(jobs) == 24.0 * 12 / 6
    assert times.ahead_s(planned(impls), 0, set())(jobs) == 0.0


def test_each_context_is_timed_too():
    assert run_times([TIMED]).job_s(planned(context="graph,host"))(JOB) == 2 * ROW_S + 2 * 8.0


def test_a_context_takes_as_long_as_one_that_was_timed():
    rows = in_contexts([row("quack", 10.0), row("liger", 10.0)], beside_8=1.1, host=1.0)
    run = results(*rows, stages_s=STAGES | {"time in context": 12.0}, selftests=[selftest()])
    assert run_times([run]).job_s(planned(context="graph,host"))(JOB) == 2 * ROW_S + 2 * 2 * 3.0


def test_verification_takes_as_long_as_one_of_as_many_runs():
    runs = [
        results(row("quack"), timed=False, repeats=300, stages_s={"sanitizer": 70.0, "compile ahead": 30.0}),
        results(row("quack"), row("liger"), row("apex", status="missing"), timed=False, repeats=3000),
    ]
    times = run_times(runs)
    assert times.job_s(planned(timed=False, repeats=300))(JOB) == 2 * 500.0
    assert times.job_s(planned(timed=False, repeats=3000))(JOB) == 2 * 300.0
    assert times.job_s(planned(timed=False, repeats=12))(JOB) == 2 * 400.0
    assert run_times([]).job_s(planned(timed=False))(JOB) == 2 * UNKNOWN_ROW_S
    assert times.run_s(planned(timed=False, repeats=300), [JOB], False) == pytest.approx(2 * 500.0)


def test_run_takes_as_long_as_its_jobs_and_processes():
    times = run_times([TIMED])
    process_s = times.timed.process_s
    assert times.run_s(planned(), [JOB, Job(LAYER, JOB.impls)], False) == pytest.approx(process_s + 4 * ROW_S)
    assert times.run_s(planned(context="host"), [JOB], False) == pytest.approx(process_s + 2 * ROW_S + 8.0)
    assert times.run_s(planned(context="host"), [JOB], False, gpus=2) == pytest.approx(process_s + 2 * ROW_S + 4.0)


def test_sanitizer_takes_as_long_for_each_implementation():
    clean = SanitizerRecord(case=CASE, impl="quack", tool="memcheck", errors=0)
    run = results(row("quack"), timed=False, sanitized=[clean], stages_s={"sanitizer": 100.0})
    times = run_times([TIMED, run])
    assert times.run_s(planned(), [JOB], True) - times.run_s(planned(), [JOB], False) == pytest.approx(200.0)
