"""Decides whether a run may be published, and lists the faults that speak against it.

The outcomes of implementations play no part: a wrong, crashed or missing implementation is a finding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from harness.analysis import evidence
from harness.analysis.currency import is_own
from harness.analysis.joining import untested
from harness.errors import UsageError
from harness.git import GitError, git
from harness.grouping import grouped
from harness.publish.packing import without_traces
from harness.records.contexts import COLD
from harness.records.file import Results, lines_of, load
from harness.records.published_plan import CHECKOUT, PACKED_SUFFIX, PUBLISHED, published_files
from harness.records.run_records import ImplRecord
from harness.records.schema import RANKED

MOST_BYTES = 3_000_000  # of a device's results files; the pages beside them are written from these
COMMIT = re.compile(r"(?:\S+-\d+-g)?[0-9a-f]{7,40}")  # as `git describe --always` prints it
NEEDED = ("python", "torch")  # versions that every run states

Faults = Sequence[str]


def judge_published(only: str | None, published: Path = PUBLISHED) -> dict[Path, Faults]:
    """The faults of all published files and of each device's folder, or only of the files of these names or patterns.

    Raises UsageError where there is no such file.
    """
    patterns = [pattern.strip() for pattern in (only or "*").split(",")]
    named = [(name, path) for _, name, path in published_files(published)]
    files = [path for name, path in named if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not files:
        raise UsageError(
            f"--only {only}: no file in {published} has such a name" if only else f"nothing in {published}"
        )
    folders = {folder: too_large(folder) for folder in dict.fromkeys(path.parent for path in files) if not only}
    return {path: judge(path) for path in files} | {folder: fault for folder, fault in folders.items() if fault}


def lines(judged: Mapping[Path, Faults]) -> str:
    """A line a file, a line for each reason why it may not be published, and how many may be."""
    texts: list[str] = []
    for path, faults_of_file in judged.items():
        verdict = "may not be published" if faults_of_file else "may be published"
        texts.append(f"{path.parent.name}/{path.name.removesuffix(PACKED_SUFFIX)}: {verdict}")
        texts += [f"  {fault}" for fault in faults_of_file]
    refused = sum(map(bool, judged.values()))
    counts = {"may be published": len(judged) - refused, "may not be published": refused}
    texts.append("; ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    return "\n".join(texts) + "\n"


def judge(path: Path, checkout: Path = CHECKOUT) -> Faults:
    """Read a file and find all faults that speak against publishing it."""
    try:
        results = load(path)
    except UsageError as error:
        return [str(error)]
    profile = results.run.device.profile
    traces = dict.fromkeys(trace for line in lines_of(path) for trace in without_traces(json.loads(line), [])[1])
    unknown = [revision for revision in results.revisions if is_unknown(revision, checkout)]
    return [
        *[f"not packed: a published file ends in {PACKED_SUFFIX}"] * (not path.name.endswith(PACKED_SUFFIX)),
        *[f"not in the folder of its device, {profile}"] * (path.parent.name != profile),
        *(f"{trace} tells of the machine or of its user; `normbwd publish` leaves it out" for trace in traces),
        *(f"{revision} is no commit of this repository; measure a commit that main has" for revision in unknown),
        *faults(results),
    ]


def too_large(folder: Path) -> Faults:
    """The fault of a device's folder whose results files have too many bytes; none where they are small enough."""
    megabytes = sum(path.stat().st_size for path in folder.glob(f"*{PACKED_SUFFIX}")) / 1e6
    most = MOST_BYTES / 1e6
    return [f"{megabytes:.1f} MB of results, of at most {most:g}; delete what is stale"] * (megabytes > most)


def is_unknown(revision: str | None, checkout: Path) -> bool:
    """Whether a revision is no commit of this repository; False in a shallow clone, which cannot tell."""
    if revision is None or not COMMIT.fullmatch(revision):
        return False  # `faults` reports it
    try:
        if git(checkout, "rev-parse", "--is-shallow-repository") != "false":
            return False
    except GitError:
        return False
    try:
        return git(checkout, "cat-file", "-t", revision) != "commit"
    except GitError:
        return True


def faults(results: Results) -> Faults:
    """The faults that speak against publishing a run, and what to do; empty where there are none."""
    rules = [*_of_run(results), *map(_of_revision, results.revisions)]
    return [text for text in (*rules, *(_of_timing(results) if results.run.settings.timed else ())) if text]


def _of_run(results: Results) -> Iterator[str | None]:
    run, end = results.run, results.end
    cuda = "cuda" in run.libraries
    shared = max((record.other_processes for record in results.conditions), default=0)
    absent = [name for name in NEEDED if name not in run.libraries]
    absent += ["cuda or rocm"] * (run.device.profile != "cpu" and not run.libraries.keys() & {"cuda", "rocm"})
    absent += ["driver (install nvidia-ml-py)"] * (cuda and run.device.driver is None)
    used = {row.impl for row in results.rows}
    unstated = dict.fromkeys(impl.source for impl in run.implementations if impl.name in used and not _is_stated(impl))
    for is_so, fault in (
        (end is None or end.interrupted, "not finished; go on with it by --resume"),
        (not any(row.status in RANKED for row in results.rows), "nothing in it passed"),
        (run.device.profile == "cpu", "measured on a CPU, whose times are not ranked"),
        (run.settings.quick, "measured with --quick, which is a look and no claim"),
        (shared, f"others used the device as well ({shared} at a time); measure it alone"),
        (
            cuda and any(not record.sm_clock_mhz for record in results.conditions),
            "no clocks were read, so that a throttled block went unseen; install nvidia-ml-py",
        ),
        (absent, f"no version of {', '.join(absent)}"),
        (unstated, f"no hash of {', '.join(unstated)}; measure it with this version of normbwd"),
    ):
        yield fault if is_so else None


def _of_revision(revision: str | None) -> str | None:
    if revision is None:
        return "no revision; measure it from a git checkout, or state it in NORMBWD_REVISION"
    if revision.endswith("-dirty"):
        return f"measured with uncommitted changes ({revision}); commit them and measure it again"
    return None if COMMIT.fullmatch(revision) else f"{revision} is no commit; measure it from a git checkout"


def _is_stated(impl: ImplRecord) -> bool:
    """Whether a run says which adapter it had: an own one or one of a package by its version, another by a hash."""
    source = impl.source
    return bool(impl.missing) or is_own(source) or not source.endswith(".py") or Path(source).name in impl.libraries


def _of_timing(results: Results) -> Iterator[str]:
    processes = results.run.settings.processes
    measured = grouped((row.case.key, row.process) for row in results.rows)
    if keys := [key for key, numbers in measured.items() if set(numbers) != set(range(processes))]:
        yield f"not all of the {processes} processes measured {_some(keys)}; go on with it by --resume"
    for when, rows in untested(results).items():
        if rows:
            numbers = ", ".join(map(str, sorted({row.process for row in rows})))
            yield f"no self-test {when} the cases of process {numbers}; measure it again"
    if failed := evidence.failed_checks(results.selftests):
        yield f"the self-test failed ({', '.join(failed)}); see docs/method.md"
    void = [
        (share, row.case.key + (f" {context}" if context != COLD else ""))
        for row in results.rows
        for context, share in evidence.void_shares(row).items()
        if share > evidence.MOST_VOIDED
    ]
    if void:
        yield (
            f"up to {100 * max(void)[0]:.0f} % of the blocks of {_some([name for _, name in void])} are void, "
            f"of at most {100 * evidence.MOST_VOIDED:.0f} %; `normbwd publish` measures such a case again"
        )


def _some(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
