"""Whether what is published may stand in results/, in lines of text: one a file, and one a reason against it."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from harness.errors import UsageError
from harness.results.published.admission import Judged, judge, too_large
from harness.results.published.planned import PACKED_SUFFIX, PUBLISHED, published_files, read_plan

EARLIER = "older than these rules, to be measured again"


def look(only: str | None, published: Path = PUBLISHED) -> list[Judged]:
    """Judge what is published of each device, or the files of these names or patterns.

    Raises UsageError where there is none.
    """
    plan = read_plan()
    patterns = [pattern.strip() for pattern in (only or "*").split(",")]
    files = [path for _, name, path in published_files(published) if any(fnmatchcase(name, each) for each in patterns)]
    if not files:
        raise UsageError(
            f"--only {only}: no file in {published} has such a name" if only else f"nothing in {published}"
        )
    folders = () if only else dict.fromkeys(path.parent for path in files)
    return [*(judge(path, plan) for path in files), *filter(None, map(too_large, folders))]


def lines(judged: Iterable[Judged]) -> str:
    """A line a file, a line for each reason why it may not be published, and how many may be."""
    counts = {"may be published": 0, EARLIER: 0, "may not be published": 0}
    told: list[str] = []
    for each in judged:
        verdict = "may not be published" if not each.admitted else EARLIER if each.faults else "may be published"
        counts[verdict] += 1
        told.append(f"{each.path.parent.name}/{each.path.name.removesuffix(PACKED_SUFFIX)}: {verdict}")
        told += [f"  {fault}" for fault in each.faults if not each.admitted]
    told.append("; ".join(f"{count} {what}" for what, count in counts.items() if count))
    return "\n".join(told) + "\n"
