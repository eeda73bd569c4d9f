"""`bench` on a fleet: this process writes the results file, and has a thread for each GPU."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from harness.errors import UnavailableError
from harness.fleet.cluster import Cluster, GpuLostError, choose_gpus, connected
from harness.fleet.lane import Lane
from harness.fleet.shares import Shares
from harness.fleet.team import ReadyGpu, Team, refuse
from harness.records.file import ResultsFile, load
from harness.run.compile_ahead import Task, tasks_of
from harness.run.draw import with_seed
from harness.run.invocation import Invocation
from harness.run.opening import claimed
from harness.run.progress import Display
from harness.run.provenance import own_revision
from harness.run.session import InterruptedRun, Planned, closing_with_end_record, open_results, plan_run

PATIENCE_S = 15.0  # for the other GPUs, once there is one
SAY_EVERY_S = 30.0  # between messages while waiting
POLL_S = 0.2
ENDS_S = 10.0  # a thread's time to notice that its actor is gone


def bench(invocation: Invocation, display: Display) -> Path:
    """Make the run that `invocation` describes on all GPUs of a kind, and return the results file.

    An interrupt raises InterruptedRun after it is closed. Raises UsageError and UnavailableError before anything is
    written.
    """
    invocation = with_seed(invocation)
    assert invocation.fleet is not None, "only called with --fleet"
    with connected(invocation.fleet) as cluster:
        return bench_on(cluster, invocation, display)


def bench_on(cluster: Cluster, invocation: Invocation, display: Display) -> Path:
    """The same on a connected cluster."""
    kind, count = choose_gpus(cluster.gpus(), invocation)
    lanes = [Lane(number, invocation, partial(cluster.actor, kind)) for number in range(count)]
    revision = own_revision(display.say)
    try:
        _gather(kind, lanes, display)
        gpus = _by_host(lanes)
        for gpu in gpus:
            refuse(kind, gpus[0], gpu, invocation)
        planned = plan_run(invocation, gpus[0].hello)
        with tempfile.TemporaryDirectory(prefix="normbwd-") as folder, ExitStack() as files:
            team = _open(kind, lanes, planned, invocation, revision, Path(folder) / kind, files)
            try:
                _measure(team, lanes, display)
            except KeyboardInterrupt as interrupt:
                raise InterruptedRun(team.results.path) from interrupt
        return team.results.path
    finally:
        _end(lanes)


def _end(lanes: Sequence[Lane]) -> None:
    for lane in lanes:
        lane.end()


def _by_host(lanes: Sequence[Lane]) -> list[ReadyGpu]:
    return sorted((lane.gpu for lane in lanes), key=lambda gpu: (gpu.place.host, gpu.place.visible))


def _gather(kind: str, lanes: list[Lane], display: Display) -> None:
    """Give each lane a GPU and a worker; lanes whose GPU is used by others for too long are dropped.

    It waits for the first GPU without a limit. Raises what a worker raises as it starts.
    """
    display.say(f"looking for {len(lanes)} {kind}")
    _keep(kind, lanes, _with_gpus(kind, lanes, display))
    _at_once([partial(_start, lane) for lane in lanes], lanes)
    _keep(kind, lanes, [lane for lane in lanes if lane.fault is None])


def _start(lane: Lane) -> None:
    try:
        lane.start_worker()
    except GpuLostError as lost:
        lane.fault = str(lost)


def _has_gpu(lane: Lane) -> bool:
    """Whether a lane has a GPU; where it is lost the lane has a fault."""
    try:
        return lane.fault is None and lane.has_gpu()
    except GpuLostError as lost:
        lane.fault = str(lost)
        return False


def _with_gpus(kind: str, lanes: Sequence[Lane], display: Display) -> list[Lane]:
    """Wait until all lanes have a GPU, or for PATIENCE_S after the first; return those that have one."""
    for lane in lanes:
        lane.request_gpu()
    said_s = time.monotonic()
    first_s: float | None = None
    while True:
        ready = [lane for lane in lanes if _has_gpu(lane)]
        waits = any(lane.fault is None and lane not in ready for lane in lanes)
        now_s = time.monotonic()
        if ready and first_s is None:
            first_s = now_s
        if not waits or (first_s is not None and now_s - first_s > PATIENCE_S):
            return ready
        if now_s - said_s > SAY_EVERY_S:
            said_s = now_s
            display.say(f"waiting for GPUs, which others use; free are {len(ready)} of {len(lanes)} {kind}")
        time.sleep(POLL_S)


def _keep(kind: str, lanes: list[Lane], usable: Sequence[Lane]) -> None:
    """End and remove the lanes of a kind that are not usable; raises UnavailableError where no lane is left."""
    for lane in lanes:
        if lane not in usable:
            lane.end()
    if not usable:
        raise UnavailableError(f"no {kind} can be used: {_faults(lanes)}")
    lanes[:] = usable


def _faults(lanes: Sequence[Lane]) -> str:
    return "; ".join(dict.fromkeys(lane.fault for lane in lanes if lane.fault))


def _at_once(calls: Sequence[Callable[[], None]], lanes: Sequence[Lane]) -> None:
    """Make these calls in threads; where one fails, all actors are ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        try:
            for future in [pool.submit(call) for call in calls]:
                future.result()
        except BaseException:
            _end(lanes)  # otherwise the pool would wait for its threads
            raise


def _open(
    kind: str,
    lanes: Sequence[Lane],
    planned: Planned,
    invocation: Invocation,
    revision: str | None,
    log: Path,
    files: ExitStack,
) -> Team:
    """Open the results file; `files` closes it."""
    gpus = _by_host(lanes)
    path, jobs, _ = open_results(invocation, planned, gpus[0].hello, gpus[0].place.device, revision)
    files.enter_context(claimed(path))
    results = ResultsFile(path)
    stages_s: defaultdict[str, float] = defaultdict(float)
    files.enter_context(closing_with_end_record(results, stages_s, log))
    files.callback(_gather_logs, lanes, stages_s, log)
    records = {record.number: record for record in load(path).gpus}
    shares = Shares(jobs, sorted(lane.number for lane in lanes))
    team = Team(kind, invocation, gpus[0], planned, shares, results, records)
    for gpu in gpus:
        team.number_of(gpu)
    return team


def _gather_logs(lanes: Sequence[Lane], stages_s: dict[str, float], log: Path) -> None:
    for lane in lanes:
        for stage, seconds in lane.stages_s.items():
            stages_s[stage] += seconds
    log.write_text("".join(text for lane in lanes for text in lane.logs), encoding="utf-8")


def _measure(team: Team, lanes: Sequence[Lane], display: Display) -> None:
    """Compile ahead on all hosts, then measure on all GPUs at once."""
    faults: list[BaseException] = []
    threads = [threading.Thread(target=_work, args=(team, lane, display, faults), daemon=True) for lane in lanes]
    with display.cases(team.shares.unfinished):
        try:
            begun_s = time.monotonic()
            _compile_ahead(team, lanes, display)
            lanes[0].stages_s["compile ahead"] = time.monotonic() - begun_s
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            team.shares.stop()
            _end(lanes)
            for thread in threads:
                if thread.ident is not None:
                    thread.join(ENDS_S)
            raise
    if faults:
        raise faults[0]
    if unfinished := team.shares.unfinished:
        raise UnavailableError(
            f"no {team.kind} is left for {unfinished} cases ({_faults(lanes)}); what is done is kept"
        )


def _work(team: Team, lane: Lane, display: Display, faults: list[BaseException]) -> None:
    try:
        with display.part(f"{team.kind} {lane.number}") as progress:
            lane.work(team, progress)
    except BaseException as fault:  # `_measure` raises it again
        faults.append(fault)
        team.shares.stop()


def _compile_ahead(team: Team, lanes: Sequence[Lane], display: Display) -> None:
    """Let each host compile what its GPUs will measure, before any of them measures."""
    parts = _parts(team, lanes)
    if any(tasks for _, _, tasks in parts):
        display.say("compiling ahead")
        seed = team.planned.settings.seed
        _at_once([partial(lane.compile, tasks, seed, count) for lane, count, tasks in parts], lanes)


def _parts(team: Team, lanes: Sequence[Lane]) -> list[tuple[Lane, int, list[Task]]]:
    """The lanes, each with the number of lanes on its host and its part of the host's tasks."""
    parts: list[tuple[Lane, int, list[Task]]] = []
    for host in {lane.gpu.place.host for lane in lanes}:
        here = [lane for lane in lanes if lane.gpu.place.host == host]
        jobs = [job for lane in here for job in team.shares.of(lane.number)]
        tasks = tasks_of(jobs, team.planned.impls)
        parts += [(lane, len(here), tasks[part :: len(here)]) for part, lane in enumerate(here)]
    return parts
