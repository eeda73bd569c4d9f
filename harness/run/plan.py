"""Which implementations are tried on which cases: decided before anything is measured, from names alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain

from harness.cases import NormCase
from harness.cases.catalogue import studied
from harness.cases.tensors import gradients_of
from harness.cases.unfused import WITH_TORCH
from harness.errors import UsageError, close_name
from harness.grouping import grouped
from harness.records.file import Results
from harness.records.run_records import ImplRecord
from harness.records.schema import RANKED, RowRecord

EVERY_VARIANT = "all"
KILLED = "killed"  # the code of the reason of a row whose worker was ended from outside, as by an OOM killer


@dataclass(frozen=True)
class Job:
    """One case, the names of the implementations to try on it, and which of the run's processes tries it.

    A `studied` case is verified more closely: docs/verification.md.
    """

    case: NormCase
    impls: tuple[str, ...]
    process: int = 0
    studied: bool = False


def select(
    known: Sequence[ImplRecord], patterns: str | None, baseline: str | None, default: str, files: Iterable[str] = ()
) -> list[ImplRecord]:
    """The implementations to run, the baseline first.

    `patterns` holds names or patterns ("a,b-*"); `all` is every variant except those that run on request alone. None
    selects one variant of each library that is not slow to compile, and every variant of `files`, which --impl or
    --tuned named. A file of which no pattern matches anything is selected as a whole. Without a `baseline` it is
    `default`, or the first selected one where `default` is not selected. Raises UsageError for a pattern that matches
    nothing.
    """
    if patterns is None:
        one_each = [item for item in one_a_library(known) if not item.slow_to_compile]
        chosen = [item for item in _every_variant(known) if item in one_each or item.source in files]
    else:
        chosen = matching(known, patterns.split(","))
    unnamed = set(files) - {item.source for item in chosen}
    chosen = [*chosen, *(item for item in known if item.source in unnamed)]
    if baseline is not None:
        first = matching(known, [baseline])[0]
    else:
        first = next((item for item in chosen if item.name == default), chosen[0])
    return list({item.name: item for item in [first, *chosen]}.values())


def one_a_library(known: Iterable[ImplRecord]) -> list[ImplRecord]:
    """The first variant of each adapter, which is what the library's users call."""
    first: dict[tuple[str, str], ImplRecord] = {}
    for item in _every_variant(known):
        first.setdefault((item.source, item.family), item)
    return list(first.values())


def with_torch(
    chosen: Iterable[ImplRecord], known: Iterable[ImplRecord], cases: Iterable[NormCase]
) -> list[ImplRecord]:
    """The chosen implementations; `NAME + torch` follows each NAME that lacks a variant of any of the cases."""
    by_name = {item.name: item for item in known}
    cases = list(cases)
    completed: dict[str, ImplRecord] = {}
    for item in chosen:
        completed[item.name] = item
        helped = by_name.get(item.name + WITH_TORCH)
        if helped is not None and any(item.lacks(case) for case in cases):
            completed[helped.name] = helped
    return list(completed.values())


def tried_on(case: NormCase, impls: Iterable[ImplRecord]) -> tuple[str, ...]:
    """The names of the implementations to try on a case: `NAME + torch` only where NAME lacks a variant of the case."""
    return tuple(item.name for item in impls if item.is_tried_on(case))


def runnable(job: Job, impls: Mapping[str, ImplRecord]) -> Job:
    """The job restricted to the implementations in `impls` that handle its case, or are completed by torch."""
    names = (
        name for name in job.impls if name in impls and (name.endswith(WITH_TORCH) or not impls[name].lacks(job.case))
    )
    return replace(job, impls=tuple(names))


def plan(cases: Sequence[NormCase], impls: Sequence[ImplRecord], processes: int = 1) -> list[Job]:
    """Every case on every implementation in every process, one process after the other."""
    return [Job(case, tried_on(case, impls), process) for process in range(processes) for case in cases]


def plan_verification(cases: Sequence[NormCase], impls: Sequence[ImplRecord]) -> list[Job]:
    """Every case once, and the studied cases again in a second process, to compare bits between processes."""
    studied_cases = studied(cases)
    first = [Job(case, tried_on(case, impls), studied=case in studied_cases) for case in cases]
    return first + [Job(job.case, job.impls, 1) for job in first if job.studied]


def cells(jobs: Iterable[Job]) -> int:
    """How many gradients the jobs judge: the number of tests for a Bonferroni correction."""
    return sum(len(job.impls) * len(gradients_of(job.case)) for job in jobs)


def remaining(jobs: Iterable[Job], rows: Iterable[RowRecord]) -> list[Job]:
    """The jobs that are still to do after an earlier run wrote `rows`.

    A case that lacks any row is tried again on all implementations that passed, because ratios are formed only within
    blocks that were interleaved; an implementation that failed is not tried again, unless its worker was KILLED.
    """
    of_impls = [row for row in rows if row.role == "impl" and not (row.reason and row.reason.code == KILLED)]
    status = {(row.process, row.case.key, row.impl): row.status for row in of_impls}
    unfinished: list[Job] = []
    for job in jobs:
        statuses = {name: status.get((job.process, job.case.key, name)) for name in job.impls}
        if None in statuses.values():
            to_try = tuple(name for name, was in statuses.items() if was is None or was in RANKED)
            unfinished.append(replace(job, impls=to_try))
    return unfinished


def left_to_do(jobs: Iterable[Job], earlier: Results, timed: bool) -> list[Job]:
    """The jobs of a run that are still to do; a run that times leaves out what must not be timed.

    A case of which too many blocks were void is still to do. Once a process has all its rows, so are those of its cases
    that no self-test stands behind: the last one, where a worker was ended or died in a self-test, and all those of a
    fleet's GPU that was lost.
    """
    rows = earlier.rows
    jobs = without_untimed(jobs, rows) if timed else list(jobs)
    from harness.analysis.evidence import too_void  # here, as scipy would come before a bad name is refused

    rows = [row for row in rows if not too_void(row)]
    left = remaining(jobs, rows)
    without = _without_self_test(jobs, earlier) if timed else set[tuple[int, str]]()
    again = {case for case in without if case[0] not in {job.process for job in left}}
    return remaining(jobs, (row for row in rows if not (row.timing and (row.process, row.case.key) in again)))


def _without_self_test(jobs: Iterable[Job], earlier: Results) -> set[tuple[int, str]]:
    """Cases to be measured again with their process: those that lack a self-test before or after them.

    Of a fleet's GPU these are all, since another one may measure them. Without a fleet the last case is enough: the GPU
    is the same, and is tested anew.
    """
    from harness.analysis.joining import untested

    if earlier.run.settings.quick or earlier.run.device.profile == "cpu":
        return set()  # there is none
    lacking = {(row.process, row.case.key): row.gpu for row in chain(*untested(earlier).values())}
    planned = ((job.process, job.case.key) for job in jobs)
    again = grouped(((case[0], lacking[case]), case) for case in planned if case in lacking)
    return {case for (_, gpu), cases in again.items() for case in (cases[-1:] if gpu is None else cases)}


def without_untimed(jobs: Iterable[Job], rows: Iterable[RowRecord]) -> list[Job]:
    """The jobs without the implementations that an earlier process verified and did not time on the same case."""
    untimed_in = {(row.case.key, row.impl): row.process for row in rows if row.role == "impl" and row.untimed}

    def is_needed(job: Job, name: str) -> bool:
        return untimed_in.get((job.case.key, name), job.process) >= job.process

    reduced = [replace(job, impls=tuple(name for name in job.impls if is_needed(job, name))) for job in jobs]
    return [job for job in reduced if job.impls]


def _every_variant(known: Iterable[ImplRecord]) -> list[ImplRecord]:
    return [item for item in known if not item.on_request]


def matching(known: Sequence[ImplRecord], patterns: Iterable[str]) -> list[ImplRecord]:
    """The implementations that names and patterns stand for; raises UsageError that names all that stand for none."""
    patterns = list(dict.fromkeys(map(str.strip, patterns)))
    refuse_unknown(patterns, [item.name for item in known])
    return [item for pattern in patterns for item in _fitting(known, pattern)]


def refuse_unknown(patterns: Iterable[str], names: Sequence[str]) -> None:
    """Raise UsageError that names all patterns that stand for none of these names."""
    named = (pattern for pattern in patterns if pattern != EVERY_VARIANT)
    if unknown := [pattern for pattern in named if not any(fnmatchcase(name, pattern) for name in names)]:
        raise UsageError(_unknown(unknown, names))


def _fitting(known: Sequence[ImplRecord], pattern: str) -> list[ImplRecord]:
    if pattern == EVERY_VARIANT:
        return _every_variant(known)
    return [item for item in known if fnmatchcase(item.name, pattern)]


def _unknown(patterns: Sequence[str], names: Sequence[str]) -> str:
    """What is wrong with names and patterns that fit no implementation, with the close name of each that has one."""
    unmatched = [pattern for pattern in patterns if set(pattern) & set("*?[")]
    close = {pattern: close_name(pattern, names) for pattern in patterns if pattern not in unmatched}
    faults = [f"{pattern!r} matches nothing" for pattern in unmatched]
    if close:
        called = [f"{name!r} (did you mean {near}?)" if near else repr(name) for name, near in close.items()]
        faults.insert(0, f"no implementation is called {', '.join(called)}")
    if unmatched or None in close.values():
        faults.append("`normbwd list impls` names them")
    return "; ".join(faults)
