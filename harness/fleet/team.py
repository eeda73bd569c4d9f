"""What the GPUs of a run share as they measure together, and the check that they are alike."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from harness.devices import profiles
from harness.errors import UnavailableError
from harness.fleet.cluster import RemoteActor
from harness.fleet.gpu_actor import GpuLocation
from harness.fleet.shares import Shares
from harness.records.file import ResultsFile
from harness.records.run_records import GpuRecord
from harness.records.schema import RowRecord
from harness.run.invocation import Invocation
from harness.run.provenance import gpu_hash, own_revision
from harness.run.session import Planned, library_versions
from harness.worker.messages import Hello


@dataclass(frozen=True)
class ReadyGpu:
    """An actor with a worker that is ready, the worker's Hello, and its GPU."""

    actor: RemoteActor
    hello: Hello
    place: GpuLocation


@dataclass(frozen=True)
class Team:
    """The run of one kind of GPU. The versions of its `first` GPU are the run's; `gpus` has the records of all."""

    kind: str
    invocation: Invocation
    first: ReadyGpu
    planned: Planned
    shares: Shares
    results: ResultsFile
    gpus: dict[int, GpuRecord]
    hard_failures: Counter[str] = field(default_factory=Counter)
    untimed: list[RowRecord] = field(default_factory=list[RowRecord])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def number_of(self, gpu: ReadyGpu) -> int:
        """The number of a GPU, whose record is written the first time; raises UnavailableError as `refuse` does."""
        refuse(self.kind, self.first, gpu, self.invocation)
        place = gpu.place
        with self._lock:
            new = GpuRecord(
                number=len(self.gpus),
                host=place.host,
                visible=place.visible,
                uuid=place.facts.uuid,
                gpu=gpu_hash(place.facts),
            )
            for number, other in self.gpus.items():
                if other.model_copy(update={"number": new.number}) == new:
                    return number
            self.gpus[new.number] = new
            self.results.append(new)
            return new.number


def refuse(kind: str, first: ReadyGpu, gpu: ReadyGpu, invocation: Invocation) -> None:
    """Raise UnavailableError where a GPU has another name or other versions than the first one, or is in use."""
    here, place = first.place, gpu.place
    if place.device.name != here.device.name:
        raise UnavailableError(
            f"{place.host} has {place.device.name} and {here.host} {here.device.name}, and both count as {kind}"
        )
    if not invocation.allow_others:
        profiles.refuse_shared(place.facts)
    if versions := differing(first, gpu):
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise UnavailableError(f"{place.host} has other versions than {here.host} ({text}); install the same")


def differing(first: ReadyGpu, gpu: ReadyGpu) -> dict[str, str]:
    """The versions on a host that differ from the first one's: libraries, the driver, and the revision of normbwd."""
    run, here = _versions(first), _versions(gpu)
    versions = {
        name: here.get(name, "none") for name in sorted(run.keys() | here.keys()) if here.get(name) != run.get(name)
    }
    if (revision := gpu.place.revision) != own_revision():
        versions["revision"] = revision or "unknown"
    return versions


def _versions(gpu: ReadyGpu) -> dict[str, str]:
    versions = library_versions(gpu.hello, gpu.hello.implementations)
    return versions | ({"driver": driver} if (driver := gpu.place.device.driver) else {})
