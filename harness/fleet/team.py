"""The GPUs of one kind that measure together, and the checks that they are alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from harness import devices
from harness.errors import UnavailableError
from harness.fleet.lane import Lane, ReadyGpu, Run
from harness.records.file import ResultsFile
from harness.records.run_records import GpuRecord
from harness.run.invocation import Invocation
from harness.run.provenance import own_revision
from harness.run.session import library_versions


@dataclass
class Team:
    """The lanes of one kind of GPU, and their GPUs by lane number."""

    kind: str
    lanes: list[Lane]
    gpus: dict[int, ReadyGpu] = field(default_factory=dict[int, ReadyGpu])
    run: Run | None = None

    def end(self) -> None:
        """Give out no more jobs, and end the actors of all lanes."""
        if self.run is not None:
            self.run.shares.stop()
        for lane in self.lanes:
            lane.end()

    @property
    def shared(self) -> Run:
        """The run that the lanes share, once its results file is open."""
        assert self.run is not None, "the results file is opened first"
        return self.run

    def refuse_to_end_early(self) -> None:
        """Raise UnavailableError where jobs are unfinished, because all lanes ended early."""
        if unfinished := self.shared.shares.unfinished:
            why = "; ".join(dict.fromkeys(lane.fault for lane in self.lanes if lane.fault))
            raise UnavailableError(f"no {self.kind} is left for {unfinished} cases ({why}); what is done is kept")

    @property
    def first(self) -> ReadyGpu:
        """The GPU of the first host by name; its versions are the run's."""
        return self.in_order[0]

    @property
    def in_order(self) -> list[ReadyGpu]:
        """The GPUs, sorted by host."""
        return sorted(self.gpus.values(), key=lambda gpu: (gpu.place.host, gpu.place.visible))


def differing(team: Team, gpu: ReadyGpu) -> dict[str, str]:
    """The versions on a host that differ from the run's: libraries, the driver, and the revision of normbwd."""
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
    """Raise UnavailableError where a GPU has another name or other versions than its team, or is in use."""
    first, place = team.first.place, gpu.place
    if place.device.name != first.device.name:
        raise UnavailableError(
            f"{place.host} has {place.device.name} and {first.host} {first.device.name}, and both count as {team.kind}"
        )
    if not invocation.allow_others:
        devices.refuse_shared(place.facts)
    if (versions := differing(team, gpu)) and not invocation.mixed:
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise UnavailableError(
            f"{place.host} has other versions than {first.host} ({text}); install the same, or let them differ: --mixed"
        )


def numbering(
    team: Team, invocation: Invocation, results: ResultsFile, records: dict[int, GpuRecord]
) -> Callable[[ReadyGpu], int]:
    """The function that numbers a GPU, and writes its record the first time."""
    lock = threading.Lock()

    def number_of(gpu: ReadyGpu) -> int:
        refuse(team, gpu, invocation)
        with lock:
            place = gpu.place
            record = GpuRecord(
                number=len(records),
                host=place.host,
                visible=place.visible,
                uuid=place.facts.uuid,
                versions=differing(team, gpu),
            )
            for number, other in records.items():
                if other.model_copy(update={"number": record.number}) == record:
                    return number
            records[record.number] = record
            results.append(record)
            return record.number

    return number_of
