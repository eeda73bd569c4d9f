"""From options to a results file: start a worker, plan, open the file, run, close the file.

The stages of the main job, in order; each is somebody else's file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from harness import devices
from harness.cases.catalogue import compiled_alike
from harness.cases.suites import Shape, parse_norms
from harness.errors import UnavailableError, UsageError
from harness.results.file import ResultsFile, drop_torn_line, load
from harness.results.schema import EndRecord, ImplRecord, RunRecord, SettingsRecord, SideRecord, Tool
from harness.run.compile_ahead import compile_ahead, forget_tuning, rounds
from harness.run.plan import Job, cells, plan, plan_verification, remaining, select
from harness.run.process import Worker, WorkerDiedError, WorkerProcess
from harness.run.progress import Display
from harness.run.provenance import device_record, own_revision
from harness.run.runner import Runner
from harness.run.settings import DEFAULT_BASELINE, Choice
from harness.sanitizer import check
from harness.worker.messages import Asked, Hello, Refused
from harness.worker.serve import INDUCTOR_CACHE
from impls.inhouse.problem import LAUNCHES
from impls.triton_inhouse import name as INHOUSE  # noqa: N812  a constant here

START_LIMIT_S = 180.0  # importing torch on a cold, slow disk
RESULTS_NAME = "results.jsonl"
RUNS = Path("runs")


@dataclass(frozen=True)
class Inventory:
    """A worker that is ready, and what it says is here."""

    worker: Worker
    hello: Hello


def start_worker(asked: Asked, log: Path) -> Inventory:
    """Start a worker and hear what is here; raises UsageError or UnavailableError where it cannot serve."""
    worker = WorkerProcess(asked, log)
    try:
        event = worker.receive(START_LIMIT_S)
    except WorkerDiedError as death:
        worker.kill()
        raise UnavailableError(f"{death} while it started; its last words: {_last_line(log)}") from death
    except BaseException:
        worker.kill()
        raise
    if isinstance(event, Hello):
        return Inventory(worker, event)
    worker.kill()
    if isinstance(event, Refused):
        raise (UsageError if event.exit_code == UsageError.exit_code else UnavailableError)(event.message)
    raise UnavailableError(f"the worker did not start within {START_LIMIT_S:g} s; its last words: {_last_line(log)}")


def inventory(choice: Choice) -> Hello:
    """What is here, for `list`: implementations and devices."""
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        found = start_worker(choice.first_asked(), Path(folder) / "worker.log")
        found.worker.kill()
        return found.hello


def bench(choice: Choice, display: Display) -> Path:
    """Run what was chosen and return the results file; Ctrl-C raises KeyboardInterrupt after it is closed.

    Raises UsageError and UnavailableError before anything is written.
    """
    choice.check()
    if choice.sanitizer:
        check.find()  # raises where it is absent
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        log = Path(folder) / "worker.log"
        display.say("starting a worker")
        found = start_worker(choice.first_asked().in_process(0), log)
        try:
            return _run(choice, display, found, log)
        finally:
            found.worker.kill()


def _run(choice: Choice, display: Display, found: Inventory, log: Path) -> Path:
    profile, facts = devices.choose(choice.device, found.hello.available)
    if choice.timed and not choice.allow_others:
        devices.refuse_shared(facts)
    if choice.sanitizer:
        check.refuse_other_devices(facts)
    known = found.hello.implementations
    impls = select(known, choice.impls, choice.baseline, DEFAULT_BASELINE)
    _refuse_launches(impls, facts)
    cases = choice.runs(facts.kind)
    jobs = plan(cases, impls, choice.processes) if choice.timed else plan_verification(cases, impls)
    baseline = impls[0].name
    asked = replace(choice.asked(profile, baseline), cells=max(1, cells(jobs)))
    run = RunRecord(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=choice.command,
        device=device_record(profile, facts),
        settings=SettingsRecord(
            seed=choice.seed,
            flush=choice.flush,
            baseline=baseline,
            quick=choice.quick,
            timed=choice.timed,
            suite=choice.suite_name(facts.kind),
            processes=choice.processes,
            twice=choice.twice,
            cross_check=choice.cross_check,
            seeds=asked.seeds,
            repeats=asked.repeats,
        ),
        libraries=found.hello.libraries,
        revision=own_revision(),
        implementations=impls,
        sides=[SideRecord(word=side.word, commit=side.commit, file=side.named) for side in choice.sides],
        jobs=len({job.case for job in jobs}),
    )
    path, jobs = _open(choice, run, jobs)
    begun_s, interrupted = time.monotonic(), True
    results = ResultsFile(path)

    def launch(process: int) -> Worker:
        return start_worker(asked.in_process(process), log).worker

    runner = Runner(
        launch=launch,
        results=results,
        asked=asked,
        progress=display,
        missing={item.name: item.missing for item in impls if item.missing},
        time_limit_s=choice.time_limit_s,
        worker=found.worker,
        selftests=choice.selftests(facts.kind),
    )
    try:
        with display.cases(len(jobs)):
            _compile_ahead(choice, jobs, impls, facts, asked, log, display)
            runner.stages_s["compile ahead"] = time.monotonic() - begun_s
            runner.run(jobs)
            if choice.sanitizer:
                sanitized_s = time.monotonic()
                _sanitize(choice, impls, results, display)
                runner.stages_s["sanitizer"] = time.monotonic() - sanitized_s
        interrupted = False
    finally:
        results.append(
            EndRecord(
                ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
                wall_s=round(time.monotonic() - begun_s, 1),
                interrupted=interrupted,
                stages_s={stage: round(seconds, 1) for stage, seconds in runner.stages_s.items()},
            )
        )
        results.close()
        if log.exists():
            shutil.copy(log, path.parent / "worker.log")
    return path


def _refuse_launches(impls: Sequence[ImplRecord], facts: devices.DeviceFacts) -> None:
    """Raise UsageError for a file of tuned launches that cannot be read, or that is of another device."""
    path = os.environ.get(LAUNCHES)
    if path and any(item.family == INHOUSE for item in impls):
        from impls.inhouse.tuned import read_for

        try:
            read_for(path, "cpu" if facts.kind == "cpu" else facts.name, facts.sm_count)
        except ValueError as error:
            raise UsageError(str(error)) from error


def _compile_ahead(
    choice: Choice,
    jobs: Sequence[Job],
    impls: Sequence[ImplRecord],
    facts: devices.DeviceFacts,
    asked: Asked,
    log: Path,
    display: Display,
) -> None:
    """Fill the compilers' caches by several processes at once, where there are cores to spare and a GPU to feed."""
    compiled = {item.name for item in impls if item.compiles_ahead and not item.missing}
    pairs = [(compiled_alike(job.case), name) for job in jobs for name in job.impls if name in compiled]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    default = min(12, cores - 2) if asked.device == "gpu" and cores > 4 else 0
    processes = default if choice.compile_ahead is None else choice.compile_ahead
    tasks = dict.fromkeys(pairs)  # once for all processes
    at_once = rounds(tasks, processes, facts.memory_bytes) if processes > 0 else []
    if at_once:
        with display.compiling(sum(len(some) for _, some in at_once)) as advance:
            for workers, some in at_once:
                compile_ahead(
                    some,
                    lambda: start_worker(asked, log).worker,
                    asked,
                    workers,
                    choice.time_limit_s,
                    advance,
                )
        forget_tuning(INDUCTOR_CACHE)


def _sanitize(choice: Choice, impls: Sequence[ImplRecord], results: ResultsFile, display: Display) -> None:
    """Append what compute-sanitizer finds in each implementation that is here; what the file tells already stays."""
    earlier = load(results.path).sanitized
    checked = check.Sanitizer(
        path=check.find(),
        kept=results.path.parent / "sanitizer",
        time_limit_s=choice.time_limit_s,
        say=display.say,
        step=display.step,
        impl_files=choice.impl_files,
    )
    for norm in parse_norms(choice.norm):
        for impl in (item.name for item in impls if not item.missing):
            told: set[tuple[Shape, Tool]] = {
                ((record.case.rows, record.case.cols), record.tool)
                for record in earlier
                if (record.impl, record.case.norm) == (impl, norm)
            }
            for record in checked.check(impl, norm, told):
                results.append(record)


def _open(choice: Choice, run: RunRecord, jobs: list[Job]) -> tuple[Path, list[Job]]:
    """The results file to append to, and the jobs that it does not answer yet."""
    if choice.resume:
        path = _to_resume(choice)
        drop_torn_line(path)
        earlier = load(path)
        for what, was, now in (
            ("device", earlier.run.device.name, run.device.name),
            ("settings", earlier.run.settings, run.settings),
            ("libraries", earlier.run.libraries, run.libraries),
            ("revisions", earlier.run.sides, run.sides),
        ):
            if was != now:
                raise UsageError(f"--resume: {path} has other {what} ({was}) than this run ({now}); start a new run")
        return path, remaining(jobs, earlier.rows)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = choice.out or RUNS / f"{stamp}-{run.device.profile}"
    path = folder / RESULTS_NAME
    if path.exists():
        raise UsageError(f"{path} exists; --resume goes on with it, --out names another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; give a writable folder with --out") from error
    results = ResultsFile(path)
    results.append(run)
    results.close()
    return path, jobs


def _to_resume(choice: Choice) -> Path:
    if choice.out is not None:
        path = choice.out / RESULTS_NAME
        if not path.exists():
            raise UsageError(f"--resume: {path} does not exist; start without --resume")
        return path
    runs = sorted(RUNS.glob(f"*/{RESULTS_NAME}"))
    if not runs:
        raise UsageError("--resume: there is no earlier run in runs/; name its folder with --out")
    return runs[-1]


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "none"
