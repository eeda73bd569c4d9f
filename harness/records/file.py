"""The results file: one JSON object a line, the run first, then a row for each (case, implementation).

This is the only form in which measurements leave the measuring half of the project. schema.py and run_records.py say
what a line holds.
"""

from __future__ import annotations

import bz2
import errno
import gc
import gzip
import os
import threading
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from harness.cases import NormCase
from harness.errors import UnavailableError, UsageError
from harness.grouping import grouped
from harness.records import impossible, limits
from harness.records.contexts import COLD, HOST
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.records.run_records import OUT_OPTION, EndRecord, GpuRecord, ResumedRecord, RunRecord, SameCodeRecord
from harness.records.schema import Budget, ConditionsRecord, RowRecord, SanitizerRecord, SelfTestRecord, worst

_Measured = ResumedRecord | GpuRecord | SelfTestRecord | RowRecord | ConditionsRecord | SanitizerRecord | EndRecord
AnyRecord = RunRecord | SameCodeRecord | _Measured
Line = Annotated[AnyRecord, Field(discriminator="record")]
_LINE: TypeAdapter[AnyRecord] = TypeAdapter(Line, config=ConfigDict(defer_build=True))
R = TypeVar("R", bound=AnyRecord)
RESULTS_NAME = "results.jsonl"  # of the file that a run writes
MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh"}  # what a packed file begins with
PACKED = {".gz": gzip.open, ".bz2": bz2.open}  # numbers in text come out a third smaller by bzip2


class SameCodeError(UsageError):
    """A file that has a `record` of why nothing was measured, where results are needed."""

    def __init__(self, path: Path, record: SameCodeRecord) -> None:
        super().__init__(f"{path} has no results, as head's code was base's; leave it out, or compare --even-if-same")
        self.record = record


@dataclass(frozen=True)
class Results:
    """A results file in memory: of each process one row of an implementation on a case, the last."""

    run: RunRecord
    rows: list[RowRecord]
    end: EndRecord | None
    selftests: Sequence[SelfTestRecord] = ()
    conditions: Sequence[ConditionsRecord] = ()
    sanitized: Sequence[SanitizerRecord] = ()
    gpus: Sequence[GpuRecord] = ()
    resumed: Sequence[ResumedRecord] = ()
    selftests_behind: Sequence[int] = ()  # rows, for each self-test

    @property
    def revisions(self) -> tuple[str | None, ...]:
        """The revisions of normbwd at which the run began and was resumed."""
        return tuple(dict.fromkeys([self.run.revision, *(record.revision for record in self.resumed)]))

    @property
    def budget(self) -> Budget | None:
        """The largest error of each kind over the self-tests of the run; None where it made none."""
        budgets = [selftest.budget for selftest in self.selftests]
        return worst(budgets) if budgets else None

    @property
    def contexts(self) -> tuple[str, ...]:
        """The contexts of the run's settings, cold first."""
        return self.run.settings.context

    def in_context(self, context: str) -> Results:
        """The results of one context in the form of a run of its own, so that code for `cold` serves every context.

        The context `host` has no self-tests, as these test events on the device and not the host's clock. Raises
        UsageError for a context that the run does not have.
        """
        if context not in self.contexts:
            here = ", ".join(self.contexts)
            raise UsageError(f"no context {context!r} in these results; there are: {here}")
        conditions = tuple(record for record in self.conditions if (record.context or COLD) == context)
        if context == COLD:
            return replace(self, conditions=conditions)
        rows = [row for row in (_row_in_context(row, context) for row in self.rows) if row is not None]
        results = replace(self, rows=rows, conditions=conditions)
        return replace(results, selftests=(), selftests_behind=()) if context == HOST else results

    @property
    def finished_cases(self) -> int:
        """The number of cases with rows; of an unfinished run, of cases with a row of all that are tried on them."""
        rows = grouped((row.case, row.impl) for row in self.rows)
        if self.end is not None and not self.end.interrupted:
            return len(rows)
        impls = self.run.implementations
        return sum({impl.name for impl in impls if impl.is_tried_on(case)} <= {*names} for case, names in rows.items())


def _row_in_context(row: RowRecord, context: str) -> RowRecord | None:
    """The row of a context besides cold; None for a helper without times in it."""
    changes: dict[str, Any] = {"kernels": None, "kernel_totals": None, "kernels_note": None, "other_engines_us": {}}
    record = (row.contexts or {}).get(context)
    if record is None:
        untimed = row.untimed or Reason("not_timed_in", {"context": context})
        return row.model_copy(update=changes | {"timing": None, "untimed": untimed}) if row.role == "impl" else None
    if record.status != "ok":
        changes |= {"status": record.status, "reason": record.reason}
    changes |= {"timing": record.timing, "untimed": record.untimed, "notes": [*row.notes, *record.notes]}
    return row.model_copy(update=changes)


def stamped(record: AnyRecord, gpu: int | None) -> AnyRecord:
    """A record of what a GPU measured, with the number of the GPU where it has none."""
    measured = isinstance(record, RowRecord | SelfTestRecord | ConditionsRecord) and record.gpu is None
    return record.model_copy(update={"gpu": gpu}) if measured and gpu is not None else record


class ResultsFile:
    """A results file that is open for writing: `append` returns after the record was handed to the operating system.

    What the GPU of number `gpu` measured is written with it, in a run on several. Several threads may append. Raises
    UsageError where the file cannot be opened, UnavailableError where a record cannot be written.
    """

    def __init__(self, path: Path, gpu: int | None = None) -> None:
        self.path = path
        self._gpu = gpu
        self._lock = threading.Lock()
        try:
            self._stream = path.open("ab", buffering=0)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}; give a writable folder with --out") from error

    def append(self, record: AnyRecord) -> None:
        """Write one record as a line."""
        line = stamped(record, self._gpu).model_dump_json(exclude_none=True).encode() + b"\n"
        try:
            with self._lock:
                self._write(line)
                if not os.path.samestat(os.stat(self.path), os.fstat(self._stream.fileno())):
                    raise FileNotFoundError(errno.ENOENT, "another file is there now")
        except FileNotFoundError as error:
            raise UnavailableError(
                f"{self.path} was deleted or moved while it was written; begin a new run, or --resume where it is now"
            ) from error
        except OSError as error:  # most often, the disk is full
            raise UnavailableError(f"cannot write {self.path}: {error.strerror}; what is done is kept") from error

    def _write(self, line: bytes) -> None:
        """Write a whole line, or nothing: after half a line, a later record would spoil the file."""
        written = 0
        try:
            while written < len(line):
                written += self._stream.write(line[written:])
        except BaseException:
            with suppress(OSError):
                if written:
                    os.ftruncate(self._stream.fileno(), os.fstat(self._stream.fileno()).st_size - written)
            raise

    def close(self) -> None:
        """Close the file; further appends are errors."""
        self._stream.close()


def load(path: Path, torn: bool = False) -> Results:
    """Read a results file, packed by gzip or bzip2 if its name ends in .gz or .bz2.

    Raises UsageError with the line at fault and how to mend it; with `torn` a last line that is cut off is left out.
    """
    collects = gc.isenabled()
    gc.disable()  # all that is read stays: to look for garbage in it again and again takes longer than to read it
    try:
        return _load(path, torn)
    finally:
        if collects:
            gc.enable()


def _load(path: Path, torn: bool) -> Results:
    lines = lines_of(path, torn)
    if not lines:
        raise UsageError(
            f"{path} holds no whole record; delete it and measure again, or give another folder with --out"
        )
    run = _parse(path, 1, lines[0])
    if not isinstance(run, RunRecord):
        raise _not_results(path, run)
    if not lines[-1].endswith(b"\n"):
        raise UsageError(f"{path} line {len(lines)} is cut off; {_how_to_go_on(path, run)}")
    limits.refuse_above(limits.PROCESSES, run.settings.processes, path, "processes")
    records: list[AnyRecord] = []
    timed: list[RowRecord] = []
    cases: set[NormCase] = set()
    selftests_behind: list[int] = []
    for number, line in enumerate(lines[1:], start=2):
        record = _parse(path, number, line)
        if isinstance(record, RunRecord):
            raise UsageError(f"{path} line {number} starts a second run; give one run's file at a time")
        if isinstance(record, SelfTestRecord):
            selftests_behind.append(len(timed))
        if isinstance(record, RowRecord):
            _check_row(path, number, record, run)
            timed.append(record)
            cases.add(record.case)
            limits.refuse_above(limits.CASES, len(cases), path, "cases")
        records.append(record)
    ends = _only(EndRecord, records)
    end = reduce(_add_sittings, ends) if ends else None
    if gpus := _only(GpuRecord, records):  # what has no number is of the one that began, before another went on with it
        records = [stamped(record, 0) for record in records]
        timed = _only(RowRecord, records)
    if end and (reason := impossible.longer_than_run(timed, end, len(gpus))):
        raise UsageError(f"{path} cannot be what a run measured: {sentence(reason)}; measure again")
    counting, datasheet_gbps = _counting(timed), impossible.datasheet_gbps(run.device)
    return Results(
        run,
        [impossible.mark_impossible(timed[number], datasheet_gbps) for number in counting],
        end,
        tuple(_only(SelfTestRecord, records)),
        tuple(_only(ConditionsRecord, records)),
        tuple(_only(SanitizerRecord, records)),
        tuple(gpus),
        tuple(_only(ResumedRecord, records)),
        tuple(bisect_left(counting, behind) for behind in selftests_behind),
    )


def _check_row(path: Path, number: int, row: RowRecord, run: RunRecord) -> None:
    limits.refuse_above(limits.ELEMENTS, row.case.rows * row.case.cols, path, f"elements of x in line {number}")
    if row.timing and row.timing.flush != run.settings.flush:
        raise UsageError(f"{path} line {number} has a time with another flush than the run's; measure again")


def _counting(rows: Sequence[RowRecord]) -> list[int]:
    """The numbers of the rows that count: a case that is resumed is measured anew, and its later rows are appended."""
    return sorted({(row.process, row.case, row.impl, row.role): number for number, row in enumerate(rows)}.values())


def in_folder(path: Path) -> Path:
    """The results file in the folder of a run; another path as it is."""
    return path / RESULTS_NAME if os.path.isfile(path / RESULTS_NAME) else path


def lines_of(path: Path, torn: bool = False) -> list[bytes]:
    """The lines of a results file, each with its end; with `torn` a last line that is cut off is left out.

    Raises UsageError where the file cannot be read or unpacked, and as soon as it is found to be above a limit.
    """
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if ".jsonl" in file.suffixes)
        hint = f"one of its files, such as {path / names[0]}" if names else "a results file, RUN/results.jsonl"
        raise UsageError(f"{path} is a folder; give {hint}")
    try:
        with PACKED.get(path.suffix, open)(path, "rb") as stream:
            lines = list(_within_limits(stream, path))
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or _why_not_unpacked(path)}"
        ) from error
    return lines[:-1] if torn and lines and not lines[-1].endswith(b"\n") else lines


def _within_limits(stream: BufferedReader | bz2.BZ2File | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    """The lines of a stream, of which no more is unpacked than the limits allow."""
    size = 0
    for number in count(1):
        if not (line := stream.readline(limits.LINE_BYTES + 1)):
            return
        size += len(line)
        limits.refuse_above(limits.LINE_BYTES, len(line), path, f"bytes in line {number}")
        limits.refuse_above(limits.BYTES, size, path, "bytes, unpacked")
        limits.refuse_above(limits.LINES, number, path, "lines")
        yield line


def _why_not_unpacked(path: Path) -> str:
    with path.open("rb") as stream:
        begins_as_packed = stream.read(3).startswith(MAGIC[path.suffix])
    if begins_as_packed:
        return "it is cut off or damaged; copy it again from where it came from"
    return f"it is no {path.suffix} file; if it is plain text, take {path.suffix} off its name"


def _only(kind: type[R], records: Sequence[AnyRecord]) -> list[R]:
    return [record for record in records if isinstance(record, kind)]


def _add_sittings(earlier: EndRecord, later: EndRecord) -> EndRecord:
    """The end record of a resumed run: the later one, with the times of both sittings added up."""
    stages = earlier.stages_s.keys() | later.stages_s.keys()
    total = {stage: round(earlier.stages_s.get(stage, 0.0) + later.stages_s.get(stage, 0.0), 1) for stage in stages}
    wall_s = round(earlier.wall_s + later.wall_s, 1)
    return later.model_copy(update={"wall_s": wall_s, "stages_s": dict(sorted(total.items()))})


def set_torn_line_aside(path: Path) -> None:
    """Move a half-written last line to `results.torn` in the same folder; complete lines stay as they are."""
    content = path.read_bytes()
    length = content.rfind(b"\n") + 1
    if length < len(content):
        with path.with_suffix(".torn").open("ab") as aside:
            aside.write(content[length:] + b"\n")
        with path.open("r+b") as stream:
            stream.truncate(length)


def _how_to_go_on(path: Path, run: RunRecord) -> str:
    """How a file that was cut off is made whole: by resuming the run, where this is the file that it would resume."""
    out = OUT_OPTION.search(run.command)
    begun_here = out is None or Path(out[1] or out[2]).resolve() == path.parent.resolve()
    if path.name == RESULTS_NAME and begun_here:
        return f"go on from the line before with `{run.resuming(str(path.parent))}`"
    return "copy it again from where it came from, or delete the line"


def _parse(path: Path, number: int, line: bytes) -> AnyRecord:
    try:
        return _LINE.validate_json(line)
    except UsageError as error:  # of a setting, such as an unknown context
        raise UsageError(f"{path} line {number} is not a results record ({error})") from error
    except ValidationError as error:
        first = error.errors()[0]
        if number == 1 and first["loc"][:1] != ("run",):
            raise _not_results(path) from error
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        delete = "" if number == 1 else "delete the line, or "
        raise UsageError(
            f"{path} line {number} is not a results record ({where}: {first['msg']}); "
            f"{delete}read the file with the version that wrote it"
        ) from error


def _not_results(path: Path, record: AnyRecord | None = None) -> UsageError:
    if isinstance(record, SameCodeRecord):
        return SameCodeError(path, record)
    return UsageError(f"{path} does not begin with a run record; is it a results.jsonl of `normbwd bench`?")
