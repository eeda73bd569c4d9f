"""Announces the stages of a trial and writes its rows."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from traceback import print_exception
from typing import Literal

import torch

from harness.cases.input_kinds import INPUT_KINDS
from harness.errors import UnsupportedError
from harness.records.reasons import Reason, raised
from harness.records.schema import ConditionsRecord, ContextRecord, Role, RowRecord, Status, Timing
from harness.verify.verifier import synchronise
from harness.worker.messages import Stage, Try

Watch = Callable[[str | None, Stage], None]
Emit = Callable[[RowRecord | ConditionsRecord], None]


class SpoiltError(Exception):
    """No other implementation can be tried in this process: the worker has to be replaced.

    The device no longer answers, or an implementation left something behind. Its row is written, and it was the last
    that was announced.
    """


class Rows:
    """The rows of one request: `announce` is called with each stage before it begins, `emit` with each final record."""

    def __init__(self, request: Try, announce: Watch, emit: Emit) -> None:
        self.request = request
        self.emit = emit
        self._announce = announce

    def watch(self, name: str | None, stage: Stage) -> None:
        """Announce a stage; the baseline's twin is announced as the baseline, whose code it is."""
        settings = self.request.settings
        self._announce(settings.baseline if name is not None and name == settings.twin else name, stage)

    def row(self, name: str, status: Status, reason: Reason | None = None) -> RowRecord:
        """A row; that of the baseline's twin is stored under the baseline's name, with the role `again`."""
        settings = self.request.settings
        impl, role = (settings.baseline, "again") if name == settings.twin else (name, "impl")
        case, process = self.request.case, self.request.process
        return RowRecord(case=case, impl=impl, role=role, status=status, reason=reason, process=process)

    def write(self, name: str, status: Status, reason: Reason | None) -> None:
        """Write the row of an implementation that was not timed."""
        self.emit(self.row(name, status, reason))

    def write_helper(self, name: str, role: Role, timing: Timing, contexts: dict[str, ContextRecord] | None) -> None:
        """Write the row of a helper: the same-traffic add, or an A/A twin."""
        self.emit(self.row(name, "ok").model_copy(update={"role": role, "timing": timing, "contexts": contexts}))

    def write_error(self, name: str, error: BaseException) -> None:
        """Write the row of an implementation that raised, and where it did to stderr, which is the worker's log."""
        self.write(name, status_of(error), raised(error))
        with suppress(Exception):  # what an implementation raises, or has done to stderr, may be odd
            print_exception(error)

    def fail(self, name: str, error: BaseException, refusable: bool = False) -> None:
        """Write the row of an implementation that raised; raise SpoiltError where the device was lost.

        If `refusable`, an UnsupportedError counts as a refusal; so does any error on a layout that is not contiguous
        (but for running out of memory), because an adapter need not support such a layout.
        """
        case = self.request.case
        try:
            synchronise(case.device)
            release(case.device)
        except Exception as lost:
            self.write_error(name, error)
            raise SpoiltError from lost
        if refusable and isinstance(error, UnsupportedError):
            self.write(name, "unsupported", Reason("unsupported", {"text": " ".join(str(error).split())}))
        elif refusable and INPUT_KINDS[case.inputs].layout != "contiguous" and not _is_out_of_memory(error):
            self.write(name, "unsupported", Reason("refused_layout", parts=[raised(error)]))
        else:
            self.write_error(name, error)


def release_all(device: str) -> None:
    """Free the memory of a case that is done, and exclude what is left from garbage collection.

    The remaining objects belong to libraries; collecting them each time would take longer than timing a case.
    """
    release(device)
    gc.freeze()


def release(device: str) -> None:
    """Free the memory of a failed implementation for the next one."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def status_of(error: BaseException) -> Literal["oom", "crashed"]:
    """The status that an exception gives a row: `oom` where memory was short, else `crashed`."""
    return "oom" if _is_out_of_memory(error) else "crashed"


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was short, on the device or on the host."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
