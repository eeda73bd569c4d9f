"""Changes of code that decide otherwise of rows with certain reasons alone: results/other_verdicts.toml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.records.published_plan import CHECKOUT, PUBLISHED, Entry
from harness.records.schema import RowRecord
from harness.records.toml_file import read_toml

OTHER_VERDICTS = "other_verdicts.toml"


class OtherVerdicts(Entry):
    """A change of a `path`, as in a run's `sources`, from one of the hashes `was` to the hash `now`.

    The definitions in `only` alone differ: `rest` is the hash of all else, before and after. Rows that say one of
    `reasons` may be decided otherwise; no other row, and no time.
    """

    path: str
    was: list[str]
    now: str
    only: list[str]
    rest: str
    reasons: list[Annotated[str, Field(min_length=1)]]
    because: str

    def covers(self, path: str, was: str, now: str | None, rows: Iterable[RowRecord]) -> bool:
        """Whether the code of `now` would have decided the same of these rows, which were measured with that of `was`.

        What they say is looked through in every context.
        """
        if path != self.path or now != self.now or was not in self.was:
            return False
        return not any(reason in text for row in rows for text in _texts(row) for reason in self.reasons)


def _texts(row: RowRecord) -> Iterator[str]:
    for record in (row, *(row.contexts or {}).values()):
        yield from filter(None, (record.reason, record.untimed, *record.notes))
    yield row.kernels_note or ""


class _File(Entry):
    change: tuple[OtherVerdicts, ...] = ()


def read_other_verdicts(checkout: Path = CHECKOUT) -> Sequence[OtherVerdicts]:
    """All of a checkout; none where it has no such file, or an installed package has no checkout.

    Raises UsageError that says what is wrong and where.
    """
    path = checkout / PUBLISHED.name / OTHER_VERDICTS
    return _read(path, path.stat().st_mtime_ns) if path.exists() else ()


@cache
def _read(path: Path, _changed_ns: int) -> Sequence[OtherVerdicts]:
    return read_toml(path, _File, "a checkout of normbwd has it").change
