"""Ray as far as a fleet needs it: a cluster's GPUs by kind, and an actor on each. The only module that imports Ray."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import UnavailableError, UsageError
from harness.fleet.gpu_actor import SET_BY_RAY, GpuActor
from harness.run.invocation import Invocation
from harness.run.process import Worker, WorkerDiedError
from harness.worker.messages import Start

LOCAL = "local"
ANY = "auto"  # the cluster that Ray finds by itself
CLIENT = "ray://"  # before an address that Ray's client is to reach
LAST_PORT = 65535
TRIES = "RAY_NUM_REDIS_GET_RETRIES"  # each takes 45 s if the address is no cluster; Ray's default is 20
UNNAMED = "gpu"  # the kind of a GPU for which Ray reports no type
TYPE = "accelerator_type:"  # the prefix of a node's resource that names the type of its GPUs
# Of a local cluster. Ray starts a Python process for each CPU that it may use, and the actors need none. The object
# store holds only rows.
LOCAL_OPTIONS = {"include_dashboard": False, "num_cpus": 1, "object_store_memory": 80 << 20}
# Without it `ray.init` starts Ray's older autoscaler, whose end takes a second: it asks a server that is gone.
NEWER_AUTOSCALER = "RAY_enable_autoscaler_v2"
# Off, a node's address is 127.0.0.1 and its servers listen there alone. Read as Ray is imported, on every platform.
BEYOND_THIS_HOST = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
TOKEN_FILE = Path(".ray", "auth_token")  # in the home folder; Ray makes it readable by everybody
ACTOR_ERRORS = (UsageError, UnavailableError, WorkerDiedError)  # raised by a GpuActor itself


class GpuLostError(Exception):
    """The actor or its host is gone, and with it the job at work; the message says how."""


class RemoteActor:
    """The handle of a `GpuActor` on a cluster, which may still wait for its GPU."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._host = actor.host.remote()  # an actor that answers has its GPU

    def has_gpu(self, timeout_s: float) -> bool:
        """Whether the actor has its GPU within so many seconds; raises GpuLostError where it is gone."""
        ready, _ = _ray().wait([self._host], timeout=timeout_s)
        return bool(ready) and self._get(self._host, None) is not None

    def ask(self, method: str, *arguments: Any, limit_s: float | None = None, **named: Any) -> Any:
        """Call a method of the actor and return its answer or raise its error.

        Raises GpuLostError where the actor is gone, or does not answer within `limit_s`.
        """
        return self._get(getattr(self.actor, method).remote(*arguments, **named), limit_s)

    def _get(self, answer: Any, limit_s: float | None) -> Any:
        ray, exceptions = _ray(), _ray().exceptions
        try:
            return ray.get(answer, timeout=limit_s)
        except exceptions.GetTimeoutError as error:
            raise GpuLostError(f"its host did not answer for {limit_s:g} s") from error
        except exceptions.RayTaskError as error:
            if isinstance(cause := getattr(error, "cause", None), ACTOR_ERRORS):
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

    def gpus(self) -> dict[str, int]:
        """How many GPUs of each kind there are, free or not."""
        by_kind: Counter[str] = Counter()
        for node in _ray().nodes():
            if node["Alive"] and (gpus := int(node["Resources"].get("GPU", 0))):
                by_kind[_kind_of(node["Resources"])] += gpus
        return dict(sorted(by_kind.items()))

    def actor(self, kind: str) -> RemoteActor:
        """An actor on a GPU of a kind; it waits where none is free."""
        ray = _ray()
        types = [name for node in ray.nodes() for name in node["Resources"] if name.startswith(TYPE)]
        matching = [name for name in types if name.removeprefix(TYPE).lower() == kind]
        options = {"num_gpus": 1, "num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}
        resources = {matching[0]: 0.001} if matching else {}
        actor: Any = ray.remote(GpuActor).options(**options, resources=resources).remote(self.process)
        actor.forget_ray.remote([name for name in SET_BY_RAY if name in os.environ])
        return RemoteActor(actor)


def choose_gpus(available: dict[str, int], invocation: Invocation, option: str = "--kinds") -> tuple[str, int]:
    """The kind of GPU that the run is on, and how many it takes of those `available`.

    Raises UnavailableError for an absent kind, UsageError where none of several is named by `option`.
    """
    listed = ", ".join(f"{count} {kind}" for kind, count in available.items()) or "no GPU"
    if invocation.kinds is None and len(available) > 1:
        raise UsageError(f"--fleet {invocation.fleet}: this cluster has {listed}; name one of them with {option}")
    kind = (invocation.kinds or next(iter(available), "")).strip().lower()
    if kind not in available:
        subject = f"{option} {kind}: not in this cluster, which" if invocation.kinds else "this cluster"
        raise UnavailableError(f"--fleet {invocation.fleet}: {subject} has {listed}")
    return kind, min(available[kind], invocation.gpus or available[kind])


@contextmanager
def connected(address: str) -> Generator[Cluster]:
    """Connect to a cluster, or for `local` start one of this host's GPUs until the context ends.

    Raises UnavailableError without Ray or without a cluster, and UsageError for a malformed address.
    """
    _refuse_where_nobody_listens(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        os.environ.setdefault(NEWER_AUTOSCALER, "1")
        os.environ.setdefault(BEYOND_THIS_HOST, "0")
        keep_token_private(Path.home() / TOKEN_FILE)
    else:
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # the default of a local cluster; read as Ray is imported
        os.environ.setdefault(TRIES, "2")
    try:
        ray = _ray()
    except ImportError as error:
        raise UnavailableError(f"--fleet needs Ray ({error}); pip install 'ray>=2.59'") from error
    options = LOCAL_OPTIONS if address == LOCAL else {}
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", configure_logging=True, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        why = str(error).strip().splitlines()[0]
        raise UnavailableError(
            f"--fleet {address}: no cluster ({why}); `ray start` begins one, --fleet local uses this host's GPUs"
        ) from error
    try:
        signal.signal(signal.SIGTERM, before)  # Ray has replaced the handler
        yield Cluster()
    finally:
        ray.shutdown()


def keep_token_private(file: Path) -> None:
    """Make the file of the token that a local cluster needs, or take it from others: who reads it may run code."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(secrets.token_hex(32))
        file.chmod(0o600)
    except OSError as error:
        raise UnavailableError(
            f"--fleet local: cannot keep {file} from others ({error.strerror}); mend its rights"
        ) from error


def _ray() -> Any:
    """Ray, imported only where it is used, and untyped."""
    return import_module("ray")


def _refuse_where_nobody_listens(address: str) -> None:
    """Raise UsageError for a malformed address, and UnavailableError where nothing listens: Ray would take minutes."""
    if address in (LOCAL, ANY):
        return
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > LAST_PORT:
        raise UsageError(f"--fleet {address}: give local, {ANY}, or a cluster's HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise UnavailableError(
            f"--fleet {address}: nobody listens there ({error.strerror or error}); `ray start --head` begins a cluster"
        ) from error


def _kind_of(resources: dict[str, float]) -> str:
    names = sorted(name.removeprefix(TYPE).lower() for name in resources if name.startswith(TYPE))
    return min(names, key=len) if names else UNNAMED
