"""What each implementation says of itself: its record, and what is wrong with a setting that it reads.

To ask a library is to import it. On a GPU host forks of the worker ask at once: together they take as long as the
slowest, and one that dies takes no other with it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain
from typing import Any

from harness.cases import DeviceKind
from harness.cases.adapter import Implementation
from harness.grouping import grouped
from harness.records.reasons import Reason
from harness.records.run_records import ImplRecord
from harness.worker.libraries import versions_for

Answers = dict[str, tuple[ImplRecord, str | None]]  # by name; the text is a fault of its settings

asked: tuple[Mapping[str, Implementation], DeviceKind] = ({}, "cpu")  # forks have it from the process that forks


def ask(
    implementations: Mapping[str, Implementation],
    device: DeviceKind,
    announce: Callable[[str | None], None],
    files: Sequence[str],
    forks: int,
) -> Answers:
    """Call `missing()` and `misconfigured()` of each; those of `files` are announced, and asked by this process.

    So are the others where there is no second fork, or one died: this process then dies as the library makes it die.
    """
    answers = _asked_by_forks(implementations, device, files, forks) if forks > 1 else {}
    for name, item in implementations.items():
        if name not in answers:
            announce(item.source if item.source in files else None)
            answers[name] = record(item), item.misconfigured(device)
    announce(None)
    return {name: answers[name] for name in implementations}


def _asked_by_forks(
    implementations: Mapping[str, Implementation], device: DeviceKind, files: Sequence[str], forks: int
) -> Answers:
    global asked  # noqa: PLW0603
    asked = implementations, device
    others = ((item.module.__name__, name) for name, item in implementations.items() if item.source not in files)
    with suppress(BrokenProcessPool), ProcessPoolExecutor(forks, multiprocessing.get_context("fork")) as pool:
        return dict(chain.from_iterable(pool.map(_in_fork, grouped(others).values())))
    return {}


def _in_fork(names: Sequence[str]) -> list[tuple[str, tuple[ImplRecord, str | None]]]:
    torch: Any = sys.modules.get("torch")
    if torch and vars(torch.cuda)["_is_in_bad_fork"]():
        os._exit(1)  # the worker had used CUDA, which its forks then cannot
    implementations, device = asked
    return [(name, (record(item := implementations[name]), item.misconfigured(device))) for name in names]


def record(item: Implementation) -> ImplRecord:
    """The record of an implementation in a run; its library is imported, if that is here."""
    return ImplRecord(
        name=item.name,
        family=item.family,
        source=item.source,
        via=item.via,
        in_place=item.in_place,
        missing=_missing(item),
        summary=item.summary,
        compiles_ahead=item.compiles_ahead,
        handles={norm: sorted(item.meets(norm)) for norm in item.handles},
        on_request=item.on_request,
        slow_to_compile=item.slow_to_compile,
        for_speed=item.for_speed,
        outside=item.outside,
        libraries=versions_for(item),
        version=item.version,
    )


def _missing(item: Implementation) -> Reason | None:
    """Why an implementation is not here, and apart from that what to type, where its adapter names it."""
    if (text := item.missing()) is None:
        return None
    install: str = getattr(item.module, "install", "")
    why = text.removesuffix(f"; {install}")
    parts = [Reason("to_install", {"command": install})] if why != text else []
    return Reason("missing", {"text": why}, parts)
