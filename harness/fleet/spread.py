"""`bench` on a fleet: this process writes a results file for each kind of GPU, and has a thread for each GPU."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

from harness.errors import UnavailableError, UsageError
from harness.fleet.cluster import Cluster, GpuLostError, choose_gpus, connected
from harness.fleet.lane import Lane
from harness.fleet.shares import Shares
from harness.fleet.team import ReadyGpu, Team, refuse
from harness.records.file import ResultsFile, load
from harness.run.compile_ahead import Task, tasks_of
from harness.run.draw import with_seed
from harness.run.invocation import Invocation
from harness.run.opening import RUNS, claimed
from harness.run.progress import Display
from harness.run.provenance import own_revision
from harness.run.session import InterruptedRun, Planned, closing_with_end_record, open_results, plan_run

PATIENCE_S = 15.0  # for the other GPUs, once there is one of each kind
SAY_EVERY_S = 30.0  # between messages while waiting
POLL_S = 0.2
ENDS_S = 10.0  # a thread's time to notice that its actor is gone

Lanes = Mapping[str, list[Lane]]  # by kind of GPU


def bench(invocation: Invocation, display: Display) -> list[Path]:
    """Make the run that `invocation` describes on all GPUs, and return the results files, one for each kind.

    An interrupt raises InterruptedRun after they are closed. Raises UsageError and UnavailableError before anything is
    written.
    """
    invocation = with_seed(invocation)
    assert invocation.fleet is not None, "only called with --fleet"
    with connected(invocation.fleet) as cluster:
        return bench_on(cluster, invocation, display)


def bench_on(cluster: Cluster, invocation: Invocation, display: Display) -> list[Path]:
    """The same on a connected cluster."""
    lanes = {
        kind: [Lane(number, invocation, partial(cluster.actor, kind)) for number in range(count)]
        for kind, count in choose_gpus(cluster.gpus(), invocation).items()
    }
    invocation, revision = _with_a_folder_for_several(invocation, len(lanes)), own_revision(display.say)
    try:
        _gather(lanes, display)
        firsts = {kind: _by_host(of_kind)[0] for kind, of_kind in lanes.items()}
        for kind, lane in ((kind, lane) for kind, of_kind in lanes.items() for lane in of_kind):
            refuse(kind, firsts[kind], lane.gpu, invocation)
        plans = {kind: plan_run(invocation, first.hello) for kind, first in firsts.items()}
        with tempfile.TemporaryDirectory(prefix="normbwd-") as folder, ExitStack() as files:
            together = invocation.out if len(lanes) > 1 else None
            teams: list[Team] = []
            for kind, planned in plans.items():
                own = invocation.changed(out=together / kind) if together else invocation
                log = Path(folder) / kind
                teams.append(_open(kind, lanes[kind], planned, own, revision, log, files))
            paths = [team.results.path for team in teams]
            try:
                _measure(teams, lanes, display)
            except KeyboardInterrupt as interrupt:
                raise InterruptedRun(*paths) from interrupt
        return paths
    finally:
        _end(lanes)


def _end(lanes: Lanes) -> None:
    for lane in chain.from_iterable(lanes.values()):
        lane.end()


def _by_host(lanes: Sequence[Lane]) -> list[ReadyGpu]:
    return sorted((lane.gpu for lane in lanes), key=lambda gpu: (gpu.place.host, gpu.place.visible))


def _with_a_folder_for_several(invocation: Invocation, kinds: int) -> Invocation:
    """The invocation with a folder in which each kind has its own, where there are several."""
    if kinds == 1 or invocation.out:
        return invocation
    if invocation.resume:
        raise UsageError("--resume: a run on several kinds of GPU is found by --out")
    return invocation.changed(out=RUNS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-fleet")


def _gather(lanes: Lanes, display: Display) -> None:
    """Give each lane a GPU and a worker; lanes whose GPU is used by others for too long are dropped.

    It waits for one GPU of each kind without a limit. Raises what a worker raises as it starts.
    """
    display.say(f"looking for {', '.join(f'{len(of_kind)} {kind}' for kind, of_kind in lanes.items())}")
    _wait_for_gpus(lanes, display)
    _at_once([partial(_start, lane) for lane in chain.from_iterable(lanes.values())], lanes)
    for kind, of_kind in lanes.items():
        _keep(kind, of_kind, [lane for lane in of_kind if lane.fault is None])


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


def _wait_for_gpus(lanes: Lanes, display: Display) -> None:
    """Wait until all lanes have a GPU, or for PATIENCE_S after each kind has one; lanes without one are dropped."""
    for lane in chain.from_iterable(lanes.values()):
        lane.request_gpu()
    said_s = time.monotonic()
    every_kind_s: float | None = None  # since when each kind has one
    while True:
        ready = {kind: [lane for lane in of_kind if _has_gpu(lane)] for kind, of_kind in lanes.items()}
        waits = {
            kind: any(lane.fault is None and lane not in ready[kind] for lane in of_kind)
            for kind, of_kind in lanes.items()
        }
        now_s = time.monotonic()
        if all(ready[kind] or not waits[kind] for kind in lanes):
            every_kind_s = now_s if every_kind_s is None else every_kind_s
            if not any(waits.values()) or now_s - every_kind_s > PATIENCE_S:
                break
        if now_s - said_s > SAY_EVERY_S:
            said_s = now_s
            free = ", ".join(f"{len(ready[kind])} of {len(of_kind)} {kind}" for kind, of_kind in lanes.items())
            display.say(f"waiting for GPUs, which others use; free are {free}")
        time.sleep(POLL_S)
    for kind, of_kind in lanes.items():
        _keep(kind, of_kind, ready[kind])


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


def _at_once(calls: Sequence[Callable[[], None]], lanes: Lanes) -> None:
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
    """Open the results file of a kind of GPU; `files` closes it."""
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


def _measure(teams: Sequence[Team], lanes: Lanes, display: Display) -> None:
    """Compile ahead on all hosts, then measure on all GPUs at once."""
    faults: list[BaseException] = []
    threads = [
        threading.Thread(target=_work, args=(team, lane, display, faults), daemon=True)
        for team in teams
        for lane in lanes[team.kind]
    ]
    with display.cases(sum(team.shares.unfinished for team in teams)):
        try:
            begun_s = time.monotonic()
            _compile_ahead(teams, lanes, display)
            for of_kind in lanes.values():
                of_kind[0].stages_s["compile ahead"] = time.monotonic() - begun_s
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            for team in teams:
                team.shares.stop()
            _end(lanes)
            for thread in threads:
                if thread.ident is not None:
                    thread.join(ENDS_S)
            raise
    if faults:
        raise faults[0]
    for team in teams:
        _refuse_to_end_early(team, lanes[team.kind])


def _refuse_to_end_early(team: Team, lanes: Sequence[Lane]) -> None:
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


def _compile_ahead(teams: Sequence[Team], lanes: Lanes, display: Display) -> None:
    """Let each host compile what its GPUs will measure, before any of them measures."""
    parts = [part for team in teams for part in _parts(team, lanes[team.kind])]
    if any(tasks for _, _, tasks in parts):
        display.say("compiling ahead")
        seed = teams[0].planned.settings.seed
        _at_once([partial(lane.compile, tasks, seed, count) for lane, count, tasks in parts], lanes)


def _parts(team: Team, lanes: Sequence[Lane]) -> list[tuple[Lane, int, list[Task]]]:
    """The lanes of a kind, each with the number of lanes on its host and its part of the host's tasks."""
    parts: list[tuple[Lane, int, list[Task]]] = []
    for host in {lane.gpu.place.host for lane in lanes}:
        here = [lane for lane in lanes if lane.gpu.place.host == host]
        jobs = [job for lane in here for job in team.shares.of(lane.number)]
        tasks = tasks_of(jobs, team.planned.impls)
        parts += [(lane, len(here), tasks[part :: len(here)]) for part, lane in enumerate(here)]
    return parts
