"""Which implementations are tried on which cases: decided before anything is measured, from names alone."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from harness.cases import NormCase
from harness.cases.catalogue import studied
from harness.cases.tensors import gradients_of
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import needs
from harness.errors import UsageError
from harness.results.run_records import ImplRecord
from harness.results.schema import RANKED, RowRecord

EVERY_VARIANT = "all"


@dataclass(frozen=True)
class Job:
    """One case, the names of the implementations to try on it, and which of the run's processes tries it.

    A case that is `studied` is looked at more closely than the others.
    """

    case: NormCase
    impls: tuple[str, ...]
    process: int = 0
    studied: bool = False


def select(
    known: Sequence[ImplRecord], wanted: str | None, baseline: str | None, default: str, files: Iterable[str] = ()
) -> list[ImplRecord]:
    """The implementations asked for, the baseline among them and first.

    `wanted` holds names or patterns ("a,b-*"); `all` among them is every variant but those that are run on request
    alone. Where it is None, it is one row a library, and every variant of the `files` given with --impl or --tuned.
    Where it names nothing of such a file, all of the file is chosen as well. Where no baseline is named it is
    `default`, or the first one asked for where that one was not. Raises UsageError for a name that nobody has.
    """
    if wanted is None:
        usual = one_a_library(known)
        chosen = [item for item in _every_variant(known) if item in usual or item.source in files]
    else:
        chosen = [item for name in wanted.split(",") for item in _named(known, name)]
    unnamed = set(files) - {item.source for item in chosen}
    chosen = [*chosen, *(item for item in known if item.source in unnamed)]
    if baseline is not None:
        first = _named(known, baseline)[0]
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
    """The implementations chosen, and behind each that lacks a variant of any case the one that has torch do it."""
    by_name = {item.name: item for item in known}
    cases = list(cases)
    more: dict[str, ImplRecord] = {}
    for item in chosen:
        more[item.name] = item
        beside = by_name.get(item.name + WITH_TORCH)
        if beside is not None and any(lacks(item, case) for case in cases):
            more[beside.name] = beside
    return list(more.values())


def tried_on(case: NormCase, impls: Iterable[ImplRecord]) -> tuple[str, ...]:
    """The names of what is tried on a case: `NAME + torch` only where NAME lacks something of it."""
    return tuple(item.name for item in impls if not item.name.endswith(WITH_TORCH) or lacks(item, case))


def lacks(item: ImplRecord, case: NormCase) -> bool:
    """Whether a case asks for what an implementation does not have for its norm."""
    return not needs(case) <= set(item.handles.get(case.norm, ()))


def runnable(job: Job, impls: Mapping[str, ImplRecord]) -> Job:
    """A job with those of its implementations that are among these and have what its case asks for."""
    names = (name for name in job.impls if name in impls and not lacks(impls[name], job.case))
    return replace(job, impls=tuple(names))


def plan(cases: Sequence[NormCase], impls: Sequence[ImplRecord], processes: int = 1) -> list[Job]:
    """Every case on every implementation in every process: one process after the other, as drift is no replicate."""
    return [Job(case, tried_on(case, impls), process) for process in range(processes) for case in cases]


def plan_verification(cases: Sequence[NormCase], impls: Sequence[ImplRecord]) -> list[Job]:
    """Every case once; what is studied a second time, in a new process, for the sake of its bits."""
    closest = studied(cases)
    first = [Job(case, tried_on(case, impls), studied=case in closest) for case in cases]
    return first + [Job(job.case, job.impls, 1) for job in first if job.studied]


def cells(jobs: Iterable[Job]) -> int:
    """How many gradients will be judged."""
    return sum(len(job.impls) * len(gradients_of(job.case)) for job in jobs)


def remaining(jobs: Iterable[Job], rows: Iterable[RowRecord]) -> list[Job]:
    """What is left to do after an earlier run wrote `rows`.

    A case that was cut short is tried again with all that can be timed, because only what is interleaved in one go may
    be compared; what failed for good is not tried again.
    """
    status = {(row.process, row.case.key, row.impl): row.status for row in rows if row.role == "impl"}
    left: list[Job] = []
    for job in jobs:
        known = {name: status.get((job.process, job.case.key, name)) for name in job.impls}
        if None in known.values():
            again = tuple(name for name, was in known.items() if was is None or was in RANKED)
            left.append(replace(job, impls=again))
    return left


def without_untimed(jobs: Iterable[Job], rows: Iterable[RowRecord]) -> list[Job]:
    """The jobs without what an earlier process verified and did not time: a later one has nothing to add to it."""
    first = {(row.case.key, row.impl): row.process for row in rows if row.role == "impl" and row.untimed}

    def is_left(job: Job, name: str) -> bool:
        return first.get((job.case.key, name), job.process) >= job.process

    left = [replace(job, impls=tuple(name for name in job.impls if is_left(job, name))) for job in jobs]
    return [job for job in left if job.impls]


def _every_variant(known: Iterable[ImplRecord]) -> list[ImplRecord]:
    return [item for item in known if not item.on_request]


def _named(known: Sequence[ImplRecord], name: str) -> list[ImplRecord]:
    name = name.strip()
    if name == EVERY_VARIANT:
        return _every_variant(known)
    found = [item for item in known if fnmatchcase(item.name, name)]
    if not found:
        close = difflib.get_close_matches(name, [item.name for item in known], 1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(item.name for item in known)}"
        raise UsageError(f"no implementation is called {name!r}; {hint}")
    return found
