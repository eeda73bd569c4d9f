"""Chooses the GPUs of a run on a fleet, and waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from harness.errors import UnavailableError
from harness.fleet.cluster import GpuLostError
from harness.fleet.lane import Lane, ReadyGpu
from harness.fleet.team import Team
from harness.run.invocation import Invocation
from harness.run.progress import Display

T = TypeVar("T")
PATIENCE_S = 15.0  # for the other GPUs, once there is one of each kind
SAY_EVERY_S = 30.0  # between messages while waiting
POLL_S = 0.2


def choose_gpus(available: dict[str, int], invocation: Invocation) -> dict[str, int]:
    """How many GPUs of each kind the run takes, of those `available`; raises UnavailableError for an absent kind."""
    listed = ", ".join(f"{count} {kind}" for kind, count in available.items()) or "no GPU"
    kinds = [kind.strip().lower() for kind in (invocation.kinds or ",".join(available)).split(",")]
    if absent := [kind for kind in kinds if kind not in available]:
        subject = f"--kinds {', '.join(absent)}: not in this cluster, which" if invocation.kinds else "this cluster"
        raise UnavailableError(f"--fleet {invocation.fleet}: {subject} has {listed}")
    return {kind: min(available[kind], invocation.gpus or available[kind]) for kind in dict.fromkeys(kinds)}


def gather(teams: Sequence[Team], display: Display) -> None:
    """Give each lane a GPU and a worker; lanes whose GPU is used by others for too long are dropped.

    It waits for one GPU of each kind without a limit. Raises what a worker raises as it starts.
    """
    display.say(f"looking for {', '.join(f'{len(team.lanes)} {team.kind}' for team in teams)}")
    try:
        _wait_for_gpus(teams, display)
        lanes = [lane for team in teams for lane in team.lanes]
        started = dict(zip(lanes, at_once([partial(_start, lane) for lane in lanes], teams), strict=True))
        for team in teams:
            ready = {lane: gpu for lane in team.lanes if isinstance(gpu := started[lane], ReadyGpu)}
            _keep(team, ready, [str(started[lane]) for lane in team.lanes if lane not in ready])
            team.gpus = {lane.number: gpu for lane, gpu in ready.items()}
    except BaseException:
        for team in teams:
            team.end()
        raise


def _start(lane: Lane) -> ReadyGpu | GpuLostError:
    try:
        return lane.start_worker()
    except GpuLostError as lost:
        return lost


def at_once(calls: Sequence[Callable[[], T]], teams: Sequence[Team]) -> list[T]:
    """Make these calls in threads, and return their results; where one fails, all actors of the teams are ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        try:
            return [future.result() for future in [pool.submit(call) for call in calls]]
        except BaseException:
            for team in teams:
                team.end()  # otherwise the pool would wait for its threads
            raise


def _wait_for_gpus(teams: Sequence[Team], display: Display) -> None:
    """Wait until all lanes have a GPU, or for PATIENCE_S after each kind has one; lanes without one are dropped."""
    for lane in (lane for team in teams for lane in team.lanes):
        lane.request_gpu()
    said_s = time.monotonic()
    every_kind_s: float | None = None  # since when each kind has one
    while True:
        states = [_states(team) for team in teams]
        now_s = time.monotonic()
        if all(ready or not waiting for ready, waiting, _ in states):
            every_kind_s = now_s if every_kind_s is None else every_kind_s
            if not any(waiting for _, waiting, _ in states) or now_s - every_kind_s > PATIENCE_S:
                break
        if now_s - said_s > SAY_EVERY_S:
            said_s = now_s
            free = ", ".join(
                f"{len(ready)} of {len(team.lanes)} {team.kind}"
                for team, (ready, *_) in zip(teams, states, strict=True)
            )
            display.say(f"waiting for GPUs, which others use; free are {free}")
        time.sleep(POLL_S)
    for team, (ready, _, reasons) in zip(teams, states, strict=True):
        _keep(team, ready, reasons)


def _states(team: Team) -> tuple[list[Lane], list[Lane], list[str]]:
    """The lanes that have a GPU, those that wait for one, and why others have lost theirs."""
    ready, waiting, reasons = list[Lane](), list[Lane](), list[str]()
    for lane in team.lanes:
        try:
            (ready if lane.has_gpu() else waiting).append(lane)
        except GpuLostError as lost:
            reasons.append(str(lost))
    return ready, waiting, reasons


def _keep(team: Team, lanes: Collection[Lane], reasons: Sequence[str]) -> None:
    """End the other lanes of a kind; raises UnavailableError where no lane is left."""
    for lane in team.lanes:
        if lane not in lanes:
            lane.end()
    team.lanes = list(lanes)
    if not lanes:
        raise UnavailableError(f"no {team.kind} can be used: {'; '.join(dict.fromkeys(reasons))}")
