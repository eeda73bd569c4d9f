"""Decides whether a run may be published, and lists the faults that speak against it.

The outcomes of implementations play no part: a wrong, crashed or missing implementation is a finding.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from harness.analysis import evidence
from harness.analysis.currency import is_own
from harness.analysis.joining import last_rows, untested
from harness.errors import UsageError
from harness.publish.packing import traces_of
from harness.records.contexts import COLD
from harness.records.file import Results, lines_of, load
from harness.records.published_plan import CHECKOUT, PACKED_SUFFIX, PUBLISHED, published_files
from harness.records.schema import RANKED

MOST_BYTES = 3_000_000  # of a device's results files; the pages beside them are written from these
COMMIT = re.compile(r"(?:\S+-\d+-g)?[0-9a-f]{7,40}")  # as `git describe --always` prints it
NEEDED = ("python", "torch")  # versions that every run states


@dataclass(frozen=True)
class Judged:
    """A published file, or the folder of a device, and the `faults` that speak against it."""

    path: Path
    faults: tuple[str, ...]


def judge_published(only: str | None, published: Path = PUBLISHED) -> list[Judged]:
    """Judge all published files and each device's folder, or only the files of these names or patterns.

    Raises UsageError where there is no such file.
    """
    patterns = [pattern.strip() for pattern in (only or "*").split(",")]
    files = [path for _, name, path in published_files(published) if any(map(partial(fnmatchcase, name), patterns))]
    if not files:
        raise UsageError(
            f"--only {only}: no file in {published} has such a name" if only else f"nothing in {published}"
        )
    folders = () if only else dict.fromkeys(path.parent for path in files)
    return [*map(judge, files), *filter(None, map(too_large, folders))]


def lines(judged: Sequence[Judged]) -> str:
    """A line a file, a line for each reason why it may not be published, and how many may be."""
    texts: list[str] = []
    for file in judged:
        verdict = "may not be published" if file.faults else "may be published"
        texts.append(f"{file.path.parent.name}/{file.path.name.removesuffix(PACKED_SUFFIX)}: {verdict}")
        texts += [f"  {fault}" for fault in file.faults]
    refused = sum(bool(file.faults) for file in judged)
    counts = {"may be published": len(judged) - refused, "may not be published": refused}
    texts.append("; ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    return "\n".join(texts) + "\n"


def judge(path: Path, checkout: Path = CHECKOUT) -> Judged:
    """Read a file and find all faults that speak against publishing it."""
    try:
        results = load(path)
        found_traces = dict.fromkeys(trace for line in lines_of(path) for trace in traces_of(json.loads(line)))
    except UsageError as error:
        return Judged(path, (str(error),))
    of_file = [] if path.name.endswith(PACKED_SUFFIX) else [f"not packed: a published file ends in {PACKED_SUFFIX}"]
    if path.parent.name != results.run.device.profile:
        of_file.append(f"not in the folder of its device, {results.run.device.profile}")
    of_file += [f"{each} tells of the machine or of its user; `normbwd publish` leaves it out" for each in found_traces]
    unknown = [revision for revision in results.revisions if is_unknown(revision, checkout)]
    of_file += [f"{each} is no commit of this repository; measure a commit that main has" for each in unknown]
    return Judged(path, (*of_file, *faults(results)))


def too_large(folder: Path) -> Judged | None:
    """The fault of a device's folder whose results files have too many bytes; None where they are small enough."""
    megabytes = sum(path.stat().st_size for path in folder.glob(f"*{PACKED_SUFFIX}")) / 1e6
    fault = f"{megabytes:.1f} MB of results, of at most {MOST_BYTES / 1e6:g}; delete what is stale"
    return Judged(folder, (fault,)) if megabytes > MOST_BYTES / 1e6 else None


def is_unknown(revision: str | None, checkout: Path) -> bool:
    """Whether a revision is no commit of this repository; False in a shallow clone, which cannot tell."""

    def git(*arguments: str) -> str:
        asked = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False)
        return asked.stdout.strip()

    if revision is None or not COMMIT.fullmatch(revision) or not shutil.which("git"):
        return False  # `faults` reports it
    return git("rev-parse", "--is-shallow-repository") == "false" and git("cat-file", "-t", revision) != "commit"


def faults(results: Results) -> tuple[str, ...]:
    """The faults that speak against publishing a run, and what to do; empty where there are none."""
    rules = (_of_run, _of_revisions, _of_provenance, _of_timing)
    return tuple(fault for rule in rules for fault in rule(results))


def _of_run(results: Results) -> Iterator[str]:
    if results.end is None or results.end.interrupted:
        yield "not finished; go on with it by --resume"
    if not any(row.status in RANKED for row in results.rows):
        yield "nothing in it passed"
    if results.run.device.profile == "cpu":
        yield "measured on a CPU, whose times are not ranked"
    if results.run.settings.quick:
        yield "measured with --quick, which is a look and no claim"
    if most := max((record.other_processes for record in results.conditions), default=0):
        yield f"others used the device as well ({most} at a time); measure it alone"
    if "cuda" in results.run.libraries and any(not record.sm_clock_mhz for record in results.conditions):
        yield "no clocks were read, so that a throttled block went unseen; install nvidia-ml-py"


def _of_revisions(results: Results) -> Iterator[str]:
    for revision in results.revisions:
        if revision is None:
            yield "no revision; measure it from a git checkout, or state it in NORMBWD_REVISION"
        elif revision.endswith("-dirty"):
            yield f"measured with uncommitted changes ({revision}); commit them and measure it again"
        elif not COMMIT.fullmatch(revision):
            yield f"{revision} is no commit; measure it from a git checkout"


def _of_provenance(results: Results) -> Iterator[str]:
    run = results.run
    absent = [name for name in NEEDED if name not in run.libraries]
    if run.device.profile != "cpu" and not run.libraries.keys() & {"cuda", "rocm"}:
        absent.append("cuda or rocm")
    if "cuda" in run.libraries and run.device.driver is None:
        absent.append("driver (install nvidia-ml-py)")
    if absent:
        yield f"no version of {', '.join(absent)}"
    used = {row.impl for row in results.rows}
    unknown = [
        impl.source
        for impl in run.implementations
        if impl.name in used and not impl.missing and not _is_stated(impl.source, impl.libraries)
    ]
    if unknown:
        yield f"no hash of {', '.join(dict.fromkeys(unknown))}; measure it with this version of normbwd"


def _is_stated(source: str, libraries: dict[str, str]) -> bool:
    """Whether a run says which adapter it had: an own one or one of a package by its version, another by a hash."""
    return is_own(source) or not source.endswith(".py") or Path(source).name in libraries


def _of_timing(results: Results) -> Iterator[str]:
    settings = results.run.settings
    if not settings.timed:
        return
    measured: dict[str, set[int]] = {}
    for row in results.rows:
        measured.setdefault(row.case.key, set()).add(row.process)
    if keys := [key for key, processes in measured.items() if processes != set(range(settings.processes))]:
        yield f"not all of the {settings.processes} processes measured {_some(keys)}; go on with it by --resume"
    for when, rows in untested(results).items():
        if rows:
            numbers = ", ".join(map(str, sorted({row.process for row in rows})))
            yield f"no self-test {when} the cases of process {numbers}; measure it again"
    if failed := evidence.failed_checks(results.selftests):
        yield f"the self-test failed ({', '.join(failed)}); see docs/method.md"
    void = [
        (share, row.case.key if context == COLD else f"{row.case.key} {context}")
        for row in last_rows(results.rows)
        for context, share in evidence.void_shares(row).items()
        if share > evidence.MOST_VOIDED
    ]
    if void:
        names = _some([*dict.fromkeys(name for _, name in void)])
        yield (
            f"up to {100 * max(void)[0]:.0f} % of the blocks of {names} are void, "
            f"of at most {100 * evidence.MOST_VOIDED:.0f} %; `normbwd publish` measures such a case again"
        )


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
