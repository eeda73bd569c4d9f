"""The GPUs of one kind that measure together: who they are, and whether they may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from harness import devices
from harness.errors import UnavailableError
from harness.fleet.estimate import Durations
from harness.fleet.lane import Lane, ReadyGpu, Run
from harness.results.file import ResultsFile
from harness.results.run_records import GpuRecord
from harness.run.invocation import Invocation
from harness.run.provenance import own_revision
from harness.run.session import library_versions


@dataclass
class Team:
    """The lanes of one kind of GPU, where each that has a GPU sits, and what published runs on such GPUs took."""

    kind: str
    lanes: list[Lane]
    gpus: dict[int, ReadyGpu] = field(default_factory=dict[int, ReadyGpu])
    took: Durations = field(default_factory=Durations)
    run: Run | None = None

    def end(self) -> None:
        """Hand out no more jobs, and end what the lanes have on other hosts."""
        if self.run is not None:
            self.run.shares.stop()
        for lane in self.lanes:
            lane.end()

    @property
    def shared(self) -> Run:
        """What the lanes share, once their file is open."""
        assert self.run is not None, "a file is opened before anything is measured"
        return self.run

    def refuse_to_end_early(self) -> None:
        """Raise UnavailableError where no lane is left, and jobs are."""
        if left := self.shared.shares.unfinished:
            why = "; ".join(dict.fromkeys(lane.fault for lane in self.lanes if lane.fault))
            raise UnavailableError(f"no {self.kind} is left for {left} cases ({why}); what is done is kept")

    @property
    def first(self) -> ReadyGpu:
        """The GPU whose versions are the run's: of the first host by name."""
        return self.in_order[0]

    @property
    def in_order(self) -> list[ReadyGpu]:
        """The GPUs by host."""
        return sorted(self.gpus.values(), key=lambda gpu: (gpu.place.host, gpu.place.visible))


def differing(team: Team, gpu: ReadyGpu) -> dict[str, str]:
    """The versions on a host that are not those of the run: libraries, the driver, and this project's revision."""
    run, here = _versions(team.first), _versions(gpu)
    versions = {
        name: here.get(name, "none") for name in sorted(run.keys() | here.keys()) if here.get(name) != run.get(name)
    }
    if (revision := gpu.place.revision) != own_revision():
        versions["revision"] = revision or "unknown"
    return versions


def _versions(gpu: ReadyGpu) -> dict[str, str]:
    versions = library_versions(gpu.hello, gpu.hello.implementations)
    return versions | ({"driver": driver} if (driver := gpu.place.device.driver) else {})


def refuse(team: Team, gpu: ReadyGpu, invocation: Invocation) -> None:
    """Raise UnavailableError where a GPU is not like the others of its kind, or others use it."""
    first, place = team.first.place, gpu.place
    if place.device.name != first.device.name:
        raise UnavailableError(
            f"{place.host} has {place.device.name} and {first.host} {first.device.name}, and both count as {team.kind}"
        )
    if not invocation.allow_others:
        devices.refuse_shared(place.facts)
    if (versions := differing(team, gpu)) and not invocation.mixed:
        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise UnavailableError(
            f"{place.host} has other versions than {first.host} ({told}); install the same, or let them differ: --mixed"
        )


def numbering(
    team: Team, invocation: Invocation, results: ResultsFile, known: dict[int, GpuRecord]
) -> Callable[[ReadyGpu], int]:
    """What gives each GPU a number, and the file a line of it, once."""
    lock = threading.Lock()

    def number_of(gpu: ReadyGpu) -> int:
        refuse(team, gpu, invocation)
        with lock:
            place = gpu.place
            record = GpuRecord(
                number=len(known),
                host=place.host,
                visible=place.visible,
                uuid=place.facts.uuid,
                versions=differing(team, gpu),
            )
            for number, other in known.items():
                if other.model_copy(update={"number": record.number}) == record:
                    return number
            known[record.number] = record
            results.append(record)
            return record.number

    return number_of
