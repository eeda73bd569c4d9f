"""Ray as far as a fleet needs it: a cluster's GPUs by kind, and an actor on each. The only module that imports Ray."""

from __future__ import annotations

import os
import signal
import socket
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import UnavailableError, UsageError
from harness.fleet.gpu_actor import RAYS_OWN, GpuActor
from harness.run.process import Worker, WorkerDiedError
from harness.worker.messages import Start

LOCAL = "local"
FOUND = "auto"  # the cluster that Ray finds by itself
CLIENT = "ray://"  # before an address that Ray's client is to reach
LAST_PORT = 65535
TRIES = "RAY_NUM_REDIS_GET_RETRIES"  # each takes 45 s where who listens is no cluster; Ray itself makes 20
UNNAMED = "gpu"  # the kind of a GPU of which Ray does not say what it is
TYPE = "accelerator_type:"  # a node's resource of this name says what its GPUs are
LOOK_S = 0.5  # how often it is looked whether an answer is still wanted
# Of a local cluster. Ray starts a process of Python for each CPU that it may use, and actors here ask for none; what
# goes through the object store are rows.
HERE = {"include_dashboard": False, "num_cpus": 1, "object_store_memory": 80 << 20}
# Ray's older autoscaler, which `ray.init` starts too, takes a second to end: it asks a server that is gone.
NEWER_AUTOSCALER = "RAY_enable_autoscaler_v2"
OURS = (UsageError, UnavailableError, WorkerDiedError)  # what an actor raises


class GpuLostError(Exception):
    """The actor or its host is gone, and with it whatever it did; the message says how."""


class RemoteActor:
    """A `GpuActor` in an actor, which may still wait for its GPU."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def ask(
        self,
        method: str,
        *arguments: Any,
        limit_s: float | None = None,
        wanted: Callable[[], bool] = lambda: True,
        **named: Any,
    ) -> Any:
        """What a method of the actor returns or raises; GpuLostError where it cannot answer, or not within `limit_s`.

        As soon as the answer is not `wanted` any more, that is a GpuLostError too.
        """
        ray, exceptions = _ray(), _ray().exceptions
        try:
            answer = getattr(self.actor, method).remote(*arguments, **named)
            waited_s = 0.0
            while not ray.wait([answer], timeout=LOOK_S)[0]:
                waited_s += LOOK_S
                if not wanted():
                    raise GpuLostError("it was not waited for")
                if limit_s is not None and waited_s > limit_s:
                    raise GpuLostError(f"its host did not answer for {limit_s:g} s")
            return ray.get(answer)
        except exceptions.RayTaskError as error:
            if isinstance(cause := getattr(error, "cause", None), OURS):
                raise cause from None
            raise
        except exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            raise GpuLostError(lines[-1] if "creation task" in lines[0] else lines[0]) from error

    def end(self) -> None:
        """End the actor at once, and with it its worker."""
        with suppress(Exception):  # it may be gone, and the cluster with it
            _ray().kill(self.actor)


class Cluster:
    """A cluster that this process is connected to; `process` starts a worker where WorkerProcess is not to."""

    def __init__(self, process: Callable[[Start, Path], Worker] | None = None) -> None:
        self.process = process

    def hosts(self) -> dict[str, list[int]]:
        """How many GPUs each host has, free or not, by their kind."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for node in _ray().nodes():
            if node["Alive"] and (gpus := int(node["Resources"].get("GPU", 0))):
                found[_kind_of(node["Resources"])].append(gpus)
        return dict(sorted(found.items()))

    def gpus(self) -> dict[str, int]:
        """How many GPUs of each kind there are."""
        return {kind: sum(of_hosts) for kind, of_hosts in self.hosts().items()}

    def actor(self, kind: str) -> RemoteActor:
        """An actor on a GPU of a kind, which is free or will be."""
        ray = _ray()
        types = [name for node in ray.nodes() for name in node["Resources"] if name.startswith(TYPE)]
        own = [name for name in types if name.removeprefix(TYPE).lower() == kind]
        options = {"num_gpus": 1, "num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}
        resources = {own[0]: 0.001} if own else {}
        actor: Any = ray.remote(GpuActor).options(**options, resources=resources).remote(self.process)
        actor.forget_ray.remote([name for name in RAYS_OWN if name in os.environ])
        return RemoteActor(actor)


@contextmanager
def connected(address: str) -> Generator[Cluster]:
    """Connect to a cluster, or start one of this host's GPUs for as long as it is needed (`local`).

    Raises UnavailableError where there is no Ray, or no cluster, and UsageError for what is no address.
    """
    _refuse_where_nobody_listens(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        os.environ.setdefault(NEWER_AUTOSCALER, "1")
    else:
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as a local cluster has by itself; read as Ray is imported
        os.environ.setdefault(TRIES, "2")
    try:
        ray = _ray()
    except ImportError as error:
        raise UnavailableError(f"--fleet needs Ray ({error}); pip install 'normbwd[fleet]'") from error
    here = HERE if address == LOCAL else {}
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", configure_logging=True, **here)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        why = str(error).strip().splitlines()[0]
        raise UnavailableError(
            f"--fleet {address}: no cluster ({why}); `ray start` begins one, --fleet local uses this host's GPUs"
        ) from error
    try:
        signal.signal(signal.SIGTERM, before)  # Ray takes it for itself
        yield Cluster()
    finally:
        ray.shutdown()


def _ray() -> Any:
    """Ray, which is imported where it is used, and whose own types say little."""
    return import_module("ray")


def _refuse_where_nobody_listens(address: str) -> None:
    """Raise UsageError for what is no address, and UnavailableError at once where Ray would try for two minutes."""
    if address in (LOCAL, FOUND):
        return
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > LAST_PORT:
        raise UsageError(f"--fleet {address}: give local, {FOUND}, or a cluster's HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise UnavailableError(
            f"--fleet {address}: nobody listens there ({error.strerror or error}); `ray start --head` begins a cluster"
        ) from error


def _kind_of(resources: dict[str, float]) -> str:
    names = sorted(name.removeprefix(TYPE).lower() for name in resources if name.startswith(TYPE))
    return min(names, key=len) if names else UNNAMED
