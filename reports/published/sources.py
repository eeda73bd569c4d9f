"""The published files, current ones first and then in the order of the plan; each is loaded and compared once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.analysis.comparison import Comparison, compare
from harness.analysis.currency import mark, out_of_date
from harness.grouping import grouped
from harness.records.file import Results, load
from harness.records.published_plan import PACKED_SUFFIX, PUBLISHED, Page, Plan, file_of, published_files


@dataclass(frozen=True)
class Source:
    """A published file: the profile of its device, its name in the plan, and what the plan says that it is about."""

    device: str
    name: str
    about: str
    path: Path
    plan: Plan

    @cached_property
    def results(self) -> Results:
        """The file, read on first use."""
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
    def date(self) -> str:
        """The day on which the run was started."""
        return self.results.run.started_at[:10]

    @property
    def command(self) -> str:
        """The command line that measures the run again."""
        planned = self.plan.runs.get(self.name)
        return planned.command_line(self.device) if planned else self.results.run.command

    @property
    def pages(self) -> list[str]:
        """The reports that show the file, where the device has enough files of the report."""

        def there(page: Page) -> int:
            return sum(self.path.with_name(f"{name}{PACKED_SUFFIX}").exists() for name in page.of)

        pages = self.plan.pages.items()
        return [name for name, page in pages if self.name in page.of and there(page) >= page.fewest]

    @property
    def is_ranking(self) -> bool:
        """Whether it compares implementations: it was timed, and does not compare two revisions."""
        return self.results.run.settings.timed and not self.results.run.sides

    @property
    def stale(self) -> bool:
        """Whether the engine, an adapter or the plan has changed since it was measured."""
        return bool(self._reasons)

    @property
    def mark(self) -> str:
        """The revision that measured, and why the file is stale."""
        return mark(self.results, self._reasons)

    @cached_property
    def _reasons(self) -> tuple[str, ...]:
        planned = self.plan.runs.get(self.name)
        return out_of_date(self.results, planned.settings if planned else None)


def sources(plan: Plan, folder: Path = PUBLISHED) -> list[Source]:
    """Every published file of the plan, by devices: those with the plan's first run, and of them that with the most.

    Of a device those that are current come first, so that they count where a stale one has the same case.
    """
    planned = Counter(device for device, name, _ in published_files(folder) if name in plan.runs)
    first = next(iter(plan.runs))
    found: list[Source] = []
    for device in sorted(planned, key=lambda key: (not file_of(key, first, folder).exists(), -planned[key], key)):
        paths = ((name, entry.about, file_of(device, name, folder)) for name, entry in plan.runs.items())
        of_device = [Source(device, name, about, path, plan) for name, about, path in paths if path.exists()]
        found += sorted(of_device, key=lambda source: source.stale)
    return found


def by_device(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """The files of each device."""
    return grouped((source.device, source) for source in sources)
