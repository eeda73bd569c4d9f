"""`bench` on a fleet: this process writes a results file for each kind of GPU, and has a thread for each GPU."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from harness.errors import UsageError
from harness.fleet.cluster import Cluster, connected
from harness.fleet.gathering import at_once, choose_gpus, gather
from harness.fleet.lane import Lane, Run
from harness.fleet.shares import Shares
from harness.fleet.team import Team, numbering, refuse
from harness.records.file import ResultsFile, load
from harness.run.compile_ahead import Task, tasks_of
from harness.run.invocation import Invocation
from harness.run.opening import RUNS, claimed
from harness.run.progress import Display
from harness.run.resolve import check
from harness.run.session import InterruptedRun, Planned, closing_with_end_record, open_results, plan_run

ENDS_S = 10.0  # a thread's time to notice that its actor is gone


def bench(invocation: Invocation, display: Display) -> list[Path]:
    """Make the run that `invocation` describes on all GPUs, and return the results files, one for each kind.

    An interrupt raises InterruptedRun after they are closed. Raises UsageError and UnavailableError before anything is
    written.
    """
    check(invocation)
    assert invocation.fleet is not None, "only called with --fleet"
    with connected(invocation.fleet) as cluster:
        return bench_on(cluster, invocation, display)


def bench_on(cluster: Cluster, invocation: Invocation, display: Display) -> list[Path]:
    """The same on a connected cluster."""
    teams = [
        Team(kind, [Lane(number, invocation, lambda kind=kind: cluster.actor(kind)) for number in range(count)])
        for kind, count in choose_gpus(cluster.gpus(), invocation).items()
    ]
    invocation = _with_a_folder_for_several(invocation, len(teams))
    try:
        gather(teams, display)
        for team in teams:
            for gpu in team.gpus.values():
                refuse(team, gpu, invocation)
        plans = [plan_run(invocation, team.first.hello) for team in teams]
        with tempfile.TemporaryDirectory(prefix="normbwd-") as folder, ExitStack() as files:
            paths: list[Path] = []
            together = invocation.out if len(teams) > 1 else None
            for team, planned in zip(teams, plans, strict=True):
                own = invocation.changed(out=together / team.kind) if together else invocation
                paths.append(_open(team, planned, own, Path(folder) / team.kind, files))
            try:
                _measure(teams, display)
            except KeyboardInterrupt as interrupt:
                raise InterruptedRun(*paths) from interrupt
        return paths
    finally:
        for team in teams:
            team.end()


def _with_a_folder_for_several(invocation: Invocation, kinds: int) -> Invocation:
    """The invocation with a folder in which each kind has its own, where there are several."""
    if kinds == 1 or invocation.out:
        return invocation
    if invocation.resume:
        raise UsageError("--resume: a run on several kinds of GPU is found by --out")
    return invocation.changed(out=RUNS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-fleet")


def _open(team: Team, planned: Planned, invocation: Invocation, log: Path, files: ExitStack) -> Path:
    """Open the results file of a kind of GPU, and make the run that its lanes share; `files` closes the file."""
    path, jobs = open_results(invocation, planned, team.first.hello, team.first.place.device)
    files.enter_context(claimed(path))
    results = ResultsFile(path)
    stages_s: defaultdict[str, float] = defaultdict(float)
    files.enter_context(closing_with_end_record(results, stages_s, log))
    files.callback(_gather_logs, team, stages_s, log)
    gpus = {record.number: record for record in load(path).gpus}
    team.run = Run(
        planned,
        Shares(jobs, sorted(team.gpus)),
        results,
        numbering(team, invocation, results, gpus),
    )
    for gpu in team.in_order:
        team.run.number_of(gpu)
    return path


def _gather_logs(team: Team, stages_s: dict[str, float], log: Path) -> None:
    for lane in team.lanes:
        for stage, seconds in lane.stages_s.items():
            stages_s[stage] += seconds
    log.write_text("".join(text for lane in team.lanes for text in lane.logs), encoding="utf-8")


def _measure(teams: Sequence[Team], display: Display) -> None:
    """Compile ahead on all hosts, then measure on all GPUs at once."""
    faults: list[BaseException] = []
    threads = [
        threading.Thread(target=_work, args=(team, lane, display, faults), daemon=True)
        for team in teams
        for lane in team.lanes
    ]
    with display.cases(sum(team.shared.shares.unfinished for team in teams)):
        try:
            begun_s = time.monotonic()
            _compile_ahead(teams, display)
            for team in teams:
                team.lanes[0].stages_s["compile ahead"] = time.monotonic() - begun_s
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            for team in teams:
                team.end()
            for thread in threads:
                if thread.ident is not None:
                    thread.join(ENDS_S)
            raise
    if faults:
        raise faults[0]
    for team in teams:
        team.refuse_to_end_early()


def _work(team: Team, lane: Lane, display: Display, faults: list[BaseException]) -> None:
    try:
        with display.part(f"{team.kind} {lane.number}") as progress:
            lane.work(team.shared, team.gpus[lane.number], progress)
    except BaseException as fault:  # `_measure` raises it again
        faults.append(fault)
        team.shared.shares.stop()


def _compile_ahead(teams: Sequence[Team], display: Display) -> None:
    """Let each host compile what its GPUs will measure, before any of them measures."""
    parts = [(team, *part) for team in teams for part in _parts(team)]
    if not any(tasks for _, _, _, tasks in parts):
        return
    display.say("compiling ahead")
    calls = [
        partial(lane.compile, team.gpus[lane.number], tasks, team.shared.planned.settings.seed, actors)
        for team, lane, actors, tasks in parts
    ]
    at_once(calls, teams)


def _parts(team: Team) -> list[tuple[Lane, int, list[Task]]]:
    """The lanes of a kind, each with the number of lanes on its host and its part of the host's tasks."""
    parts: list[tuple[Lane, int, list[Task]]] = []
    for host in {gpu.place.host for gpu in team.gpus.values()}:
        lanes = [lane for lane in team.lanes if team.gpus[lane.number].place.host == host]
        jobs = [job for lane in lanes for job in team.shared.shares.of(lane.number)]
        tasks = tasks_of(jobs, team.shared.planned.impls)
        parts += [(lane, len(lanes), tasks[part :: len(lanes)]) for part, lane in enumerate(lanes)]
    return parts
