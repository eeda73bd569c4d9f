"""Which GPUs a run takes, and the wait for them."""

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
SAY_EVERY_S = 30.0  # that it is still waited
LOOK_S = 0.2


def chosen(there: dict[str, int], invocation: Invocation) -> dict[str, int]:
    """How many GPUs of which kinds the run takes; raises UnavailableError where one that was asked for is not there."""
    known = ", ".join(f"{count} {kind}" for kind, count in there.items()) or "no GPU"
    asked = [kind.strip().lower() for kind in (invocation.kinds or ",".join(there)).split(",")]
    if absent := [kind for kind in asked if kind not in there]:
        what = f"--kinds {', '.join(absent)}: not in this cluster, which" if invocation.kinds else "this cluster"
        raise UnavailableError(f"--fleet {invocation.fleet}: {what} has {known}")
    return {kind: min(there[kind], invocation.gpus or there[kind]) for kind in dict.fromkeys(asked)}


def gather(teams: Sequence[Team], display: Display) -> None:
    """Give each lane a GPU and a worker; where others use some of the GPUs, so many lanes as have one after a while.

    It waits for one of each kind as long as it takes, and says so. Raises what a worker raises as it starts.
    """
    display.say(f"looking for {', '.join(f'{len(team.lanes)} {team.kind}' for team in teams)}")
    given_up = threading.Event()
    with ThreadPoolExecutor(sum(len(team.lanes) for team in teams)) as pool:
        try:
            got = {
                team.kind: {lane: pool.submit(lane.get_gpu, lambda: not given_up.is_set()) for lane in team.lanes}
                for team in teams
            }
            _wait([list(of_kind.values()) for of_kind in got.values()], teams, display)
            given_up.set()
            for team in teams:
                team.lanes = list(_done(team.kind, got[team.kind]))
            started = [(team, {lane: pool.submit(lane.start_worker) for lane in team.lanes}) for team in teams]
            until_done([future for _, of_kind in started for future in of_kind.values()])
            for team, of_kind in started:
                ready = _done(team.kind, of_kind)
                team.lanes = list(ready)
                team.gpus = {lane.number: gpu for lane, gpu in ready.items()}
        except BaseException:
            given_up.set()  # or the pool would wait for its threads
            for team in teams:
                team.end()
            raise


def _wait(got: Sequence[Sequence[Future[None]]], teams: Sequence[Team], display: Display) -> None:
    """Wait until all have a GPU, or for a while after each kind has one."""
    said_s = patient_since_s = time.monotonic()
    while not all(future.done() for of_kind in got for future in of_kind):
        now_s = time.monotonic()
        if not all(any(future.done() for future in of_kind) for of_kind in got):
            patient_since_s = now_s
        if now_s - patient_since_s > PATIENCE_S:
            return
        if now_s - said_s > SAY_EVERY_S:
            said_s = now_s
            ready = [sum(future.done() for future in of_kind) for of_kind in got]
            told = ", ".join(f"{has} of {len(team.lanes)} {team.kind}" for has, team in zip(ready, teams, strict=True))
            display.say(f"waiting for GPUs, which others use; free are {told}")
        wait([future for of_kind in got for future in of_kind if not future.done()], LOOK_S, FIRST_COMPLETED)


def until_done(futures: Sequence[Future[T]]) -> None:
    """Wait for all; a wait without a limit would not let Ctrl-C through."""
    while wait(futures, LOOK_S).not_done:
        pass


def _done(kind: str, futures: Mapping[Lane, Future[T]]) -> dict[Lane, T]:
    """What the lanes have that did not lose their GPU; raises UnavailableError where all did."""
    done: dict[Lane, T] = {}
    why: dict[str, None] = {}
    for lane, future in futures.items():
        try:
            done[lane] = future.result()
        except GpuLostError as lost:
            lane.end()
            why[str(lost)] = None
    if not done:
        raise UnavailableError(f"no {kind} can be used: {'; '.join(why)}")
    return done
