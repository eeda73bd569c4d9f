"""Opens the results file that a run writes to, which no other process may: a new one, or one to resume."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from harness.errors import UsageError
from harness.records.file import RESULTS_NAME, AnyRecord, Results, ResultsFile, load, set_torn_line_aside
from harness.records.run_records import GpuRecord, ResumedRecord, RunRecord
from harness.records.settings import OPTIONS, in_words
from harness.run.plan import Job, left_to_do

RUNS = Path("runs")
MOST_AT_ONCE = 100  # runs that begin in the same second


class OtherRunError(UsageError):
    """The results file to resume was written by a run with another device, other settings, libraries or code."""


class InUseError(UsageError):
    """Another process writes to what this one was to write to."""


@contextmanager
def claimed(path: Path) -> Generator[None]:
    """Keep other processes from writing to a file, which is made if it is not there; raises InUseError if one does.

    The claim ends with the process, however it ends. Where the file system has no locks, nothing is claimed. Raises
    UsageError where the file cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("ab")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; give a writable folder with --out") from error
    with stream:
        if not _locked(stream.fileno()):
            raise InUseError(f"another process writes to {path}; wait for its end, or begin a new run")
        yield


def _locked(file: int) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def create(out: Path | None, run: RunRecord) -> Path:
    """Start a results file in `out`, or in a new folder of runs/; raises UsageError where that cannot be."""
    refuse_taken(out)
    folder = out or _unused(RUNS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{run.device.profile}")
    path = folder / RESULTS_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; give a writable folder with --out") from error
    with closing(ResultsFile(path)) as results:
        results.append(run)
    return path


def refuse_taken(out: Path | None) -> None:
    """Raise UsageError where there are results in `out` already."""
    if out is None or not os.path.exists(path := out / RESULTS_NAME):  # that of a Path raises where a name is too long
        return
    what = "is a directory;" if path.is_dir() else "exists; --resume goes on with it,"
    raise UsageError(f"{path} {what} --out names another folder")


def refuse_folder(out: Path | None, resume: bool) -> None:
    """Raise UsageError where there are results in `out` already, or none to resume."""
    if resume:
        file_to_resume(out)
    else:
        refuse_taken(out)


def _unused(folder: Path) -> Path:
    """The folder itself, or one with a number behind its name: runs on several GPUs may begin in one second."""
    for made in chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in range(2, MOST_AT_ONCE))):
        try:
            made.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            break  # `create` says it
        return made
    return folder


def resume(
    out: Path | None, run: RunRecord, jobs: Sequence[Job], fleet: bool = False
) -> tuple[Path, list[Job], int | None]:
    """The results file of `out`, or the one of runs/ that was written to last, and the jobs that it has no rows for.

    Also the number of this GPU, where the run has had another; a `fleet` numbers its own. Raises UsageError where there
    is no such file, OtherRunError where it belongs to another run, and InUseError. A run may be resumed at another
    revision of normbwd with the same versions of the engine and of the adapters.
    """
    path = file_to_resume(out)
    earlier = load(path, torn=True)
    for part, was, now in (
        ("device", earlier.run.device.name, run.device.name),
        ("settings", *_differing_settings(earlier.run, run)),
        ("revisions", _sides(earlier.run), _sides(run)),
    ):
        if was != now:
            command = earlier.run.command if part == "settings" else None
            began = f", or add --resume to what began it: {command}" if command else ""
            raise OtherRunError(
                f"--resume: {path} has other {part} ({was}) than this run ({now}); start a new run{began}"
            )
    if changes := [*_changes(earlier.run.libraries, run.libraries), *_changed_versions(earlier.run, run)]:
        raise OtherRunError(
            f"--resume: since {path} began, {', '.join(changes)}; put it back as it was, or start a new run"
        )
    with claimed(path):  # its last line may be one that another process is writing
        set_torn_line_aside(path)  # not earlier: a file of another run must stay as it is
        number, records = (None, []) if fleet else _gpus(earlier, run.device.gpu)
        if earlier.revisions[-1] != run.revision:
            records.append(ResumedRecord(at=run.started_at, revision=run.revision))
        with closing(ResultsFile(path)) as results:
            for record in records:
                results.append(record)
    return path, left_to_do(jobs, earlier, run.settings.timed), number


def _gpus(earlier: Results, gpu: str | None) -> tuple[int | None, list[AnyRecord]]:
    """The number of a GPU that goes on with a run, and records of the GPUs that the file has none of yet."""
    known = [record.gpu for record in earlier.gpus] or [earlier.run.device.gpu]
    if gpu is None or [gpu] == known:
        return None, []
    known += [gpu] * (gpu not in known)
    missing = range(len(earlier.gpus), len(known))
    return known.index(gpu), [GpuRecord(number=at, host=f"host {at}", gpu=known[at]) for at in missing]


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What changed of the libraries, and of the adapters of --impl, which are known by the hash of their file."""
    changes: list[str] = []
    for name in sorted(before.keys() | now.keys()):
        was, is_ = before.get(name), now.get(name)
        if was != is_:
            hashed = was and is_ and was.startswith("sha256:")
            changes.append(f"{name} changed" if hashed else f"{name} went from {was or 'absent'} to {is_ or 'absent'}")
    return changes


def _changed_versions(earlier: RunRecord, run: RunRecord) -> list[str]:
    """What changed of the versions of the engine and of the adapters that both runs have."""
    before, now = ({impl.family: str(impl.version) for impl in each.implementations} for each in (earlier, run))
    both = before.keys() & now.keys()
    engine = ({"version of the engine": str(each.engine_version)} for each in (earlier, run))
    adapters = ({f"version of {name}": each[name] for name in both} for each in (before, now))
    return [*_changes(*engine), *_changes(*adapters)]


def _sides(run: RunRecord) -> str:
    return ", ".join(f"{side.word} {side.commit[:12]} of {side.file or 'normbwd'}" for side in run.sides)


def file_to_resume(out: Path | None) -> Path:
    """The results file of `out`, or the one of runs/ that was written to last; raises UsageError without one."""
    if out is not None:
        path = out / RESULTS_NAME
        if not os.path.exists(path):  # that of a Path raises where a name is too long
            raise UsageError(f"--resume: {path} does not exist; start without --resume")
        return path
    runs = list(RUNS.glob(f"*/{RESULTS_NAME}"))
    if not runs:
        raise UsageError("--resume: there is no earlier run in runs/; name its folder with --out")
    return max(runs, key=lambda path: path.stat().st_mtime_ns)  # not by name: --out may have named it


def _differing_settings(earlier: RunRecord, run: RunRecord) -> tuple[str, str]:
    """The options in which two runs differ, with the values of each run.

    Where no option differs: the implementations, as a file of --impl adds some, or else what is no option.
    """
    was, now = dict(earlier.settings), dict(run.settings)
    differing = [name for name in was if was[name] != now[name]]
    names = [name for name in differing if name in OPTIONS]
    before, here = ({item.name for item in each.implementations} for each in (earlier, run))
    if differing and not names and before != here:
        return _implementations(before, here), _implementations(here, before)
    names = names or differing
    earlier_words, words = (", ".join(f"{name} {in_words(values[name])}" for name in names) for values in (was, now))
    return earlier_words, words


def _implementations(these: set[str], others: set[str]) -> str:
    """Those that are in one run alone."""
    sides = (("with", these - others), ("without", others - these))
    return "implementations " + " and ".join(f"{word} {', '.join(sorted(names))}" for word, names in sides if names)
