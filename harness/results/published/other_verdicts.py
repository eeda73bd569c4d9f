"""Changes of code that decide otherwise of rows with certain reasons alone: results/other_verdicts.toml."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from harness.results.file import Results
from harness.results.published.planned import CHECKOUT, PUBLISHED, Entry
from harness.results.toml_file import read_toml

OTHER_VERDICTS = "other_verdicts.toml"


class OtherVerdicts(Entry):
    """A change of a `path`, as in a run's `sources`, from one of the hashes `was` to the hash `now`.

    It is one of the definitions `only`: `rest` is the hash without them, before and after. What it decides otherwise
    are rows whose reason holds one of `reasons`; no other row, and no time.
    """

    path: str
    was: tuple[str, ...]
    now: str
    only: tuple[str, ...]
    rest: str
    reasons: tuple[str, ...]
    because: str

    def covers(self, results: Results, path: str, now: str | None) -> bool:
        """Whether the code of `now` would have decided the same of each row that was measured with this path."""
        if (path, now) != (self.path, self.now) or (results.run.sources or {}).get(path) not in self.was:
            return False
        return not any(reason in (row.reason or "") for row in results.rows for reason in self.reasons)


class _File(Entry):
    change: tuple[OtherVerdicts, ...] = ()


def read_other_verdicts(checkout: Path = CHECKOUT) -> tuple[OtherVerdicts, ...]:
    """All of a checkout; none where it has no such file, or an installed package has no checkout.

    Raises UsageError that says what is wrong and where.
    """
    path = checkout / PUBLISHED.name / OTHER_VERDICTS
    return _read(path, path.stat().st_mtime_ns) if path.exists() else ()


@cache
def _read(path: Path, _changed_ns: int) -> tuple[OtherVerdicts, ...]:
    return read_toml(path, _File, "a checkout of normbwd has it").change
