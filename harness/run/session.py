"""A run from its first worker to the end of its results file: plan, open, compile ahead, measure, sanitize."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from harness import __version__
from harness.cases.suites import Shape, parse_norms
from harness.cases.tuned import read_tuned
from harness.defaults import BASELINE
from harness.devices import nvml, profiles
from harness.devices.facts import DeviceFacts, has_driver
from harness.engine_version import ENGINE_VERSION
from harness.errors import UnavailableError, UsageError
from harness.records.cases_asked import asked_for, cases_on
from harness.records.file import ResultsFile, load
from harness.records.reason_texts import sentence
from harness.records.run_records import DeviceRecord, EndRecord, ImplRecord, RunRecord, SideRecord
from harness.records.schema import Tool
from harness.records.settings import Settings
from harness.run import opening
from harness.run.compile_ahead import CompilingAhead, end, processes_ahead, rounds, tasks_of
from harness.run.deadline import Deadline, OutOfTimeError
from harness.run.draw import drawn_record, with_seed
from harness.run.invocation import Invocation
from harness.run.plan import Job, cells, one_a_library, plan, plan_verification, select, with_torch
from harness.run.process import Worker, WorkerProcess, begin_worker, start_worker
from harness.run.progress import Display
from harness.run.provenance import device_record, own_revision
from harness.run.resolve import contexts_left_out, resolved, selftests_on
from harness.run.runner import Runner
from harness.sanitizer import check as sanitizer
from harness.worker.messages import Hello, Start


@dataclass(frozen=True)
class Planned:
    """What a run will do: its settings resolved for the device, the device, the implementations and the jobs.

    `left_out` says which contexts that were asked for the device cannot have; None where it has all of them. `slow` has
    the installed implementations that compile for minutes, which a default run leaves out.
    """

    settings: Settings
    profile: profiles.DeviceProfile
    facts: DeviceFacts
    impls: list[ImplRecord]
    jobs: list[Job]
    left_out: str | None = None
    slow: list[str] = field(default_factory=list[str])


class InterruptedRun(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a run; `path` is its results file, which is closed and can be resumed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


def bench(
    invocation: Invocation, display: Display, deadline: Deadline | None = None, known: Hello | None = None
) -> Path:
    """Make the run that `invocation`, which is checked, describes and return its results file.

    `known` is what a worker said at an earlier start: to ask every library again would take its seconds again.
    Raises InterruptedRun after an interrupt, and OutOfTimeError after the `deadline`; the file is
    closed then. Raises UsageError and UnavailableError before anything is written.
    """
    opening.refuse_folder(invocation.out, invocation.resume)
    invocation = with_seed(invocation)
    if invocation.sanitizer:
        sanitizer.find()  # raises where it is absent
    revision = own_revision(display.say)
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        log = Path(folder) / "worker.log"
        display.say("starting a worker")
        known = known and _with_others_of_now(known)
        early: list[WorkerProcess] = []
        path = None
        try:
            with ExitStack() as stack:
                stack.callback(lambda: end(early))
                start = replace(invocation.start(), asked=known is None)
                first = start_worker(
                    start, log, invocation.time_limit_s, begun=lambda _: early.extend(_begun_early(invocation, log))
                )
                stack.callback(first.worker.kill)
                hello = known or first.hello
                planned = plan_run(invocation, hello)
                if planned.left_out:
                    display.say(planned.left_out)
                if planned.slow:
                    display.say(f"left out, as they compile for minutes: {', '.join(planned.slow)} (--impls all)")
                if missing := sum(impl.missing is not None for impl in planned.impls):
                    display.say(f"{missing} of {len(planned.impls)} implementations missing: see `normbwd list impls`")
                device = device_record(planned.profile, planned.facts)
                path, jobs, gpu = open_results(invocation, planned, hello, device, revision)
                with opening.claimed(path):
                    _run(invocation, planned, jobs, ResultsFile(path, gpu), first.worker, early, log, display, deadline)
        except KeyboardInterrupt as interrupt:
            if path is None:
                raise
            raise InterruptedRun(path) from interrupt
    return path


def inventory(invocation: Invocation, measures: bool = True) -> Hello:
    """Start a worker to ask which implementations and devices are here; see `Start` for one that does not measure."""
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        start = replace(invocation.start(), measures=measures)
        started = start_worker(start, Path(folder) / "worker.log", invocation.time_limit_s)
        started.worker.kill()
        return started.hello


def _with_others_of_now(hello: Hello) -> Hello:
    """The same with the processes that hold a context on each GPU now, before a worker of this run does."""

    def with_others(facts: DeviceFacts) -> DeviceFacts:
        gpu = nvml.find(facts.uuid) if facts.kind == "cuda" else None
        return replace(facts, others=tuple(gpu.process_ids())) if gpu else facts

    return replace(hello, available=[with_others(facts) for facts in hello.available])


def plan_run(
    invocation: Invocation, hello: Hello, device: tuple[profiles.DeviceProfile, DeviceFacts] | None = None
) -> Planned:
    """Choose the device and the implementations, resolve the settings, and make the list of jobs.

    `device` is one of another host; by default the device is chosen among those that the worker has.
    """
    profile, facts = device or profiles.choose(invocation.device, hello.available)
    if invocation.settings.timed and not invocation.allow_others:
        profiles.refuse_shared(facts)
    if invocation.sanitizer:
        sanitizer.refuse_other_devices(facts)
    if invocation.selftest_alone and facts.kind == "cpu":
        raise UnavailableError("the self-test needs a GPU; on a CPU nothing is ranked (docs/method.md)")
    settings = resolved(invocation.settings, profile)
    left_out = contexts_left_out(settings, facts.kind, facts.sm_count)
    files = tuple(map(str, (*invocation.impl_files, *invocation.tuned_files)))
    impls = select(hello.implementations, settings.impls, settings.baseline or None, BASELINE, files)
    for path in invocation.tuned_files:
        if fault := read_tuned(str(path)).other_device(facts.name, facts.sm_count):
            raise UsageError(f"--tuned {path} {fault}")
    for impl in impls:
        if invocation.sides and impl.missing:
            raise UnavailableError(f"{impl.name} cannot be compared here: {sentence(impl.missing)}")
        if fault := hello.misconfigured.get(impl.name):
            raise UsageError(fault)
    cases = list(invocation.cases)
    if not cases and not invocation.selftest_alone:
        cases = cases_on(facts.kind, settings, facts.memory_bytes)
    impls = with_torch(impls, hello.implementations, asked_for(cases, settings))
    jobs = plan(cases, impls, settings.processes) if settings.timed else plan_verification(cases, impls)
    settings = settings.changed(baseline=impls[0].name, cells=max(1, cells(jobs)))
    here = [] if invocation.settings.impls else one_a_library(hello.implementations)
    slow = [item.name for item in here if item.slow_to_compile and not item.missing and item not in impls]
    return Planned(settings, profile, facts, impls, jobs, left_out, slow)


def open_results(
    invocation: Invocation, planned: Planned, hello: Hello, device: DeviceRecord, revision: str | None
) -> tuple[Path, Sequence[Job], int | None]:
    """The results file to append to, the jobs that it has no rows for, and what `opening.resume` says of the GPU."""
    run = RunRecord(
        normbwd_version=__version__,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=invocation.command,
        device=device,
        settings=planned.settings,
        libraries=library_versions(hello, planned.impls),
        revision=revision,
        engine_version=ENGINE_VERSION,
        implementations=planned.impls,
        left_out=planned.slow,
        sides=[SideRecord(word=side.word, commit=side.commit, file=side.named) for side in invocation.sides],
        drawn=drawn_record(invocation, planned.impls),
        jobs=len({job.case for job in planned.jobs}),
    )
    if invocation.resume:
        return opening.resume(invocation.out, run, planned.jobs, fleet=invocation.fleet is not None)
    return opening.create(invocation.out, run), planned.jobs, None


def library_versions(hello: Hello, impls: Sequence[ImplRecord]) -> dict[str, str]:
    """The versions of the libraries on a host: those that every run states, and those that `impls` require."""
    return hello.libraries | {name: version for impl in impls for name, version in impl.libraries.items()}


def _run(
    invocation: Invocation,
    planned: Planned,
    jobs: Sequence[Job],
    results: ResultsFile,
    first: Worker,
    early: list[WorkerProcess],
    log: Path,
    display: Display,
    deadline: Deadline | None,
) -> None:
    """Compile ahead, measure, run the sanitizer; however that ends, close the file and keep the worker's log."""
    fitting = deadline.fitting(jobs) if deadline else jobs

    def launch_anew(process: int) -> Worker:
        start = replace(invocation.start(process), asked=False)  # the Hello of the first worker is enough
        return start_worker(start, log, invocation.time_limit_s).worker

    runner = Runner(
        launch=launch_anew,
        results=results,
        settings=planned.settings,
        profile=planned.profile,
        progress=display,
        missing={item.name: item.missing for item in planned.impls if item.missing},
        time_limit_s=invocation.time_limit_s,
        worker=first,
        selftests=selftests_on(planned.facts.kind, invocation),
    )
    with closing_with_end_record(results, runner.stages_s, log), display.cases(len(fitting)):
        with _compiling_ahead(invocation, planned, fitting, early, log, display) as runner.background:
            runner.run(deadline.jobs_in_time(fitting) if deadline else fitting)
        if deadline and (deadline.not_begun or len(fitting) < len(jobs)):
            raise OutOfTimeError(results.path)
        if invocation.sanitizer:
            begun_s = time.monotonic()
            _sanitize(invocation, planned.impls, results, display, deadline)
            runner.stages_s["sanitizer"] = time.monotonic() - begun_s


@contextmanager
def closing_with_end_record(results: ResultsFile, stages_s: dict[str, float], log: Path | None) -> Generator[None]:
    """On leaving, also by an exception, write the end record, close the file and copy the log beside it."""
    begun_s, interrupted = time.monotonic(), True
    try:
        yield
        interrupted = False
    finally:
        end = EndRecord(
            ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
            wall_s=round(time.monotonic() - begun_s, 1),
            interrupted=interrupted,
            stages_s={stage: round(seconds, 1) for stage, seconds in stages_s.items()},
        )
        with closing(results), suppress(OSError):  # a run does not fail because its log cannot be copied
            results.append(end)
            if log is not None:
                shutil.copy(log, results.path.parent / "worker.log")


def _begun_early(invocation: Invocation, log: Path) -> Generator[WorkerProcess]:
    """Workers that import torch while the first one asks the libraries, to compile as soon as it is known what."""
    names = invocation.settings.impls or "all"
    is_cpu = invocation.device == "cpu" or invocation.selftest_alone or not has_driver()
    processes = processes_ahead(invocation.compile_ahead, "cpu" if is_cpu else "cuda")
    for _ in range(processes if names == "all" else min(processes, len(names.split(",")))):
        yield begin_worker(replace(invocation.start(), asked=False), log)


@contextmanager
def _compiling_ahead(
    invocation: Invocation,
    planned: Planned,
    jobs: Sequence[Job],
    early: list[WorkerProcess],
    log: Path,
    display: Display,
) -> Generator[CompilingAhead | None]:
    """Fill the compilers' caches by several processes at once, where there are cores to spare and a GPU."""
    for worker in early:
        worker.pause()  # the self-test comes first
    processes = processes_ahead(invocation.compile_ahead, planned.facts.kind)
    tasks_by_workers = rounds(tasks_of(jobs, planned.impls), processes, planned.facts.memory_bytes)
    if not tasks_by_workers:
        end(early)  # they would start beside what is timed
        yield None
        return

    def take(start: Start, log: Path) -> WorkerProcess:
        try:
            worker = early.pop()
        except IndexError:
            return begin_worker(start, log)
        worker.go_on()
        return worker

    def launch(begun: Callable[[WorkerProcess], None]) -> WorkerProcess:
        start = replace(invocation.start(), asked=False)
        return start_worker(start, log, invocation.time_limit_s, take, begun).worker

    with (
        display.compiling(sum(len(tasks) for _, tasks in tasks_by_workers)) as advance,
        CompilingAhead(tasks_by_workers, launch, planned.settings.seed, invocation.time_limit_s, advance) as compiling,
    ):
        yield compiling


def _sanitize(
    invocation: Invocation,
    impls: Sequence[ImplRecord],
    results: ResultsFile,
    display: Display,
    deadline: Deadline | None,
) -> None:
    """Append the findings of compute-sanitizer for each implementation; skip checks that the file has already."""
    earlier = load(results.path).sanitized
    checks = sanitizer.Sanitizer(
        path=sanitizer.find(),
        logs=results.path.parent / "sanitizer",
        time_limit_s=invocation.time_limit_s,
        say=display.say,
        step=display.step,
        impl_files=invocation.impl_files,
    )
    for norm in parse_norms(invocation.settings.norm):
        for impl in (item.name for item in impls if not item.missing):
            done: set[tuple[Shape, Tool]] = {
                ((record.case.rows, record.case.cols), record.tool)
                for record in earlier
                if (record.impl, record.case.norm) == (impl, norm)
            }
            if deadline and deadline.has_come:
                raise OutOfTimeError(results.path)
            for record in checks.check(impl, norm, done):
                results.append(record)
