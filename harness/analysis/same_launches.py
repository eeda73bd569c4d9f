"""Changes of adapters that launch the same kernels for what published files measured: results/same_launches.toml."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from harness.analysis.sources import is_own
from harness.errors import UsageError
from harness.records.published_plan import CHECKOUT, PUBLISHED, Entry, file_of
from harness.records.toml_file import read_toml

SAME_LAUNCHES = "same_launches.toml"


class Change(Entry):
    """A change of an `adapter`, a path as in a run's `sources`, from the hash `was` to the hash `now`.

    `files` are the published files for whose cases the adapter launches the same before and after, by device and name,
    each with a digest of what that is. tests/impls/test_same_launches.py computes it again from the code that is here.
    """

    adapter: str
    was: str
    now: str
    because: str
    files: dict[str, dict[str, str]]

    def names(self) -> Iterator[tuple[str, str]]:
        """Device and name of each file."""
        for device, digests in self.files.items():
            yield from ((device, name) for name in digests)

    def covers(self, device: str, name: str, was: str, now: str | None) -> bool:
        """Whether a file that recorded the hash `was` would be measured with the same kernels by the code of `now`."""
        return (was, now) == (self.was, self.now) and name in self.files.get(device, {})


class SameLaunches(Entry):
    """All changes, and the version of Triton that the digests are made with."""

    triton: str
    change: tuple[Change, ...] = ()


def read_same_launches(checkout: Path = CHECKOUT) -> SameLaunches:
    """Read the file of a checkout; raises UsageError that says what is wrong and where.

    That includes an adapter or a published file that is not there.
    """
    path = checkout / PUBLISHED.name / SAME_LAUNCHES
    return _read(path, checkout, path.stat().st_mtime_ns)


@cache
def _read(path: Path, checkout: Path, _changed_ns: int) -> SameLaunches:
    read = read_toml(path, SameLaunches, "a checkout of normbwd has it")
    for change in read.change:
        if not (is_own(change.adapter) and (checkout / change.adapter).is_file()):
            raise UsageError(f"{path}: there is no adapter {change.adapter}; name it as results files do")
        for device, name in change.names():
            if not file_of(device, name, path.parent).exists():
                raise UsageError(f"{path}: {device}/{name} is not published; delete its line")
    return read


def changes_of(adapter: str, checkout: Path = CHECKOUT) -> list[Change]:
    """The changes of one adapter; none where a checkout has no such file, or an installed package has no checkout."""
    if not (checkout / PUBLISHED.name / SAME_LAUNCHES).exists():
        return []
    return [change for change in read_same_launches(checkout).change if change.adapter == adapter]
