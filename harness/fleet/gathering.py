"""Chooses the GPUs of a run on a fleet, and waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from harness.errors import UnavailableError
from harness.fleet.cluster import GpuLostError
from harness.fleet.lane import Lane
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
    given_up = threading.Event()
    with ThreadPoolExecutor(sum(len(team.lanes) for team in teams)) as pool:
        try:
            waits = {
                team.kind: {lane: pool.submit(lane.get_gpu, lambda: not given_up.is_set()) for lane in team.lanes}
                for team in teams
            }
            _wait([list(futures.values()) for futures in waits.values()], teams, display)
            given_up.set()
            for team in teams:
                team.lanes = list(_done(team.kind, waits[team.kind]))
            starts = [(team, {lane: pool.submit(lane.start_worker) for lane in team.lanes}) for team in teams]
            until_done([future for _, futures in starts for future in futures.values()])
            for team, futures in starts:
                ready = _done(team.kind, futures)
                team.lanes = list(ready)
                team.gpus = {lane.number: gpu for lane, gpu in ready.items()}
        except BaseException:
            given_up.set()  # otherwise the pool would wait for its threads
            for team in teams:
                team.end()
            raise


def _wait(futures_by_kind: Sequence[Sequence[Future[None]]], teams: Sequence[Team], display: Display) -> None:
    """Wait until all have a GPU, or for PATIENCE_S after each kind has one."""
    message_s = all_kinds_since_s = time.monotonic()
    while not all(future.done() for futures in futures_by_kind for future in futures):
        now_s = time.monotonic()
        if not all(any(future.done() for future in futures) for futures in futures_by_kind):
            all_kinds_since_s = now_s
        if now_s - all_kinds_since_s > PATIENCE_S:
            return
        if now_s - message_s > SAY_EVERY_S:
            message_s = now_s
            counts = [sum(future.done() for future in futures) for futures in futures_by_kind]
            free = ", ".join(
                f"{count} of {len(team.lanes)} {team.kind}" for count, team in zip(counts, teams, strict=True)
            )
            display.say(f"waiting for GPUs, which others use; free are {free}")
        waiting = [future for futures in futures_by_kind for future in futures if not future.done()]
        wait(waiting, POLL_S, FIRST_COMPLETED)


def until_done(futures: Sequence[Future[T]]) -> None:
    """Wait for all, in steps, because a wait without a limit would not let Ctrl-C through."""
    while wait(futures, POLL_S).not_done:
        pass


def _done(kind: str, futures: Mapping[Lane, Future[T]]) -> dict[Lane, T]:
    """The results of the lanes that still have their GPU; raises UnavailableError where none has."""
    done: dict[Lane, T] = {}
    reasons: dict[str, None] = {}
    for lane, future in futures.items():
        try:
            done[lane] = future.result()
        except GpuLostError as lost:
            lane.end()
            reasons[str(lost)] = None
    if not done:
        raise UnavailableError(f"no {kind} can be used: {'; '.join(reasons)}")
    return done
