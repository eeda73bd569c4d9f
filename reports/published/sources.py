"""The published files in memory, in the order of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.analysis.comparison import Comparison, compare
from harness.analysis.currency import out_of_date, part_so_far
from harness.records.file import Results, load
from harness.records.published_plan import PUBLISHED, Plan, file_of, published_files
from harness.records.settings import Settings
from reports.published.held import contents, planned_instead

NOT_MEASURED = "not measured"  # said of a run that a device does not have


@dataclass(frozen=True)
class Source:
    """A published file: the profile of its device, its name in the plan, and its description there.

    The file is read on first use.
    """

    device: str
    name: str
    about_in_plan: str
    path: Path
    plan: Plan

    @cached_property
    def results(self) -> Results:
        """The file."""
        return load(self.path)

    @cached_property
    def comparison(self) -> Comparison:
        """Its results compared, which may take seconds."""
        return compare(self.results)

    @property
    def device_name(self) -> str:
        """The device's own name."""
        return self.results.run.device.name

    @property
    def about(self) -> str:
        """What was measured: in the words of the plan if the file holds what it asks, otherwise by the file."""
        return contents(self.results) if self.planned_now else self.about_in_plan

    @cached_property
    def planned_now(self) -> str | None:
        """What the plan asks now, if the file holds something else."""
        planned = self.plan.runs.get(self.name)
        return planned_instead(self.results, planned) if planned else None

    @property
    def pages(self) -> list[str]:
        """The reports that show the file, as far as the device has all files of them."""
        folder = self.path.parents[1]
        return [
            page
            for page in self.plan.pages_of(self.name)
            if all(file_of(self.device, name, folder).exists() for name in self.plan.pages[page].of)
        ]

    @property
    def is_ranking(self) -> bool:
        """Whether it compares implementations: it was timed, and does not compare two revisions."""
        return self.results.run.settings.timed and not self.results.run.sides

    @property
    def stale(self) -> bool:
        """Whether the code or the plan has changed since it was measured."""
        return bool(self._reasons)

    @property
    def age(self) -> str:
        """A sentence: when it was measured, what has changed, and whether it is stale or a part of what is planned."""
        run, reasons = self.results.run, self._reasons
        measured = f"Measured on {run.started_at[:10]} at revision {self.results.revisions_in_words}"
        measured = "; ".join(filter(None, [measured, self._part]))
        if not reasons:
            return f"{measured}."
        (why,) = reasons if len(reasons) == 1 else ("not of the code and the plan as they are now",)
        return f"{measured}; **stale**: {why}."

    @property
    def revision(self) -> str:
        """The revision that measured, and whether the file is stale or a part, for a cell of a table."""
        return ", ".join(filter(None, [self.results.revisions_in_words, self._part, "stale" * self.stale]))

    @property
    def why_not_current(self) -> str:
        """Which part of what is planned it is, and the reasons why it is stale; empty where it is current."""
        return "; ".join(filter(None, [self._part, *self._reasons]))

    @cached_property
    def _reasons(self) -> tuple[str, ...]:
        return out_of_date(self.results, self._planned)

    @property
    def _part(self) -> str | None:
        return part_so_far(self.results, self.plan.runs.get(self.name))

    @property
    def _planned(self) -> Settings | None:
        planned = self.plan.runs.get(self.name)
        return planned.settings if planned else None

    @property
    def mark(self) -> str:
        """The revision that measured, and the reasons why it is stale."""
        measured = f"measured at revision {self.results.revisions_in_words}"
        stale = f"stale: {'; '.join(self._reasons)}" if self._reasons else None
        return "; ".join(filter(None, [measured, self._part, stale]))


def sources(plan: Plan, folder: Path = PUBLISHED) -> list[Source]:
    """Every published file of the plan, the most important first, by devices: that with the most runs first."""
    planned = Counter(device for device, name, _ in published_files(folder) if name in plan.runs)
    devices = dict.fromkeys(device for device, _, _ in published_files(folder))
    entries = (*plan.runs.items(), *plan.kept.items())
    return [
        Source(device, name, entry.about, path, plan)
        for device in sorted(devices, key=lambda device: (-planned[device], device))
        for name, entry in entries
        if (path := file_of(device, name, folder)).exists()
    ]


def pictured(sources: Sequence[Source], plan: Plan) -> Source | None:
    """The file of the README's picture and table: of the most important run, from the first device that has it."""
    return next((source for source in sources if source.name == next(iter(plan.runs))), None)


def usual_rankings(files: Sequence[Source], plan: Plan) -> list[Source]:
    """The files that compare implementations with the usual flush: of the plan's runs, and current others."""
    runs = [source for source in files if source.is_ranking and (source.name in plan.runs or not source.stale)]
    return [source for source in runs if source.results.run.settings.flush == "clean"]


def by_device(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """The files of each device."""
    devices = dict.fromkeys(source.device for source in sources)
    return {device: [source for source in sources if source.device == device] for device in devices}
