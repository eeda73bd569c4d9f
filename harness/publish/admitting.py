"""Whether what is published may stand in results/, in lines of text: one a file, and one a reason against it."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from harness.errors import UsageError
from harness.publish.admission import Judged, judge, too_large
from harness.records.published_plan import PACKED_SUFFIX, PUBLISHED, published_files, read_plan

EARLIER = "older than these rules, to be measured again"


def judge_published(only: str | None, published: Path = PUBLISHED) -> list[Judged]:
    """Judge all published files and each device's folder, or only the files of these names or patterns.

    Raises UsageError where there is no such file.
    """
    plan = read_plan()
    patterns = [pattern.strip() for pattern in (only or "*").split(",")]
    files = [path for _, name, path in published_files(published) if any(map(partial(fnmatchcase, name), patterns))]
    if not files:
        raise UsageError(
            f"--only {only}: no file in {published} has such a name" if only else f"nothing in {published}"
        )
    folders = () if only else dict.fromkeys(path.parent for path in files)
    return [*(judge(path, plan) for path in files), *filter(None, map(too_large, folders))]


def lines(judged: Iterable[Judged]) -> str:
    """A line a file, a line for each reason why it may not be published, and how many may be."""
    counts = {"may be published": 0, EARLIER: 0, "may not be published": 0}
    texts: list[str] = []
    for file in judged:
        verdict = "may not be published" if not file.admitted else EARLIER if file.faults else "may be published"
        counts[verdict] += 1
        texts.append(f"{file.path.parent.name}/{file.path.name.removesuffix(PACKED_SUFFIX)}: {verdict}")
        texts += [f"  {fault}" for fault in file.faults if not file.admitted]
    texts.append("; ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    return "\n".join(texts) + "\n"
