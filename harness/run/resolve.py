"""Checks the options of a command, and fills in the defaults of the device."""

from __future__ import annotations

import math
from importlib.metadata import entry_points
from pathlib import Path

from harness.cases import DeviceKind
from harness.cases.traffic import moved_bytes
from harness.cases.tuned import read_tuned
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import PLAIN
from harness.defaults import BASELINE, OWN_IMPL
from harness.devices import profiles
from harness.devices.facts import has_driver, read_facts
from harness.errors import UsageError
from harness.records import limits
from harness.records.cases_asked import cases_on, dtype_on, suite_on
from harness.records.contexts import COLD, FWD_BWD, HOT_DY, parse_holder, programs_beside
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from harness.run.plan import refuse_unknown
from harness.worker import discovery
from harness.worker.contract import file_fault
from harness.worker.messages import When

MOST_BYTES = 1 << 42  # of inputs and gradients together: 4 TiB, which no device has
PROCESSES_OF_A_CLAIM = 5  # fresh processes that measure every case of a claim; --quick takes one
LATER_REPEATS = 2  # runs compared bit by bit in every process but the first
# From so many processes on, the scatter between processes decides the interval of a ratio: fewer blocks are enough.
SEVERAL, BLOCKS_OF_SEVERAL = 3, 60


def check(invocation: Invocation) -> None:
    """Raise UsageError for options that are wrong on any device, before a worker is started."""
    settings = invocation.settings
    if settings.suite is not None and settings.shapes is not None:
        raise UsageError("--suite and --shapes both name the cases; give one of them")
    if settings.draw is not None and (settings.suite is not None or settings.shapes is not None):
        raise UsageError("--draw takes the place of --suite and --shapes; give one of them")
    if invocation.sanitizer and settings.variant not in (None, PLAIN):
        raise UsageError("--sanitizer --variant: the sanitizer runs plain norms alone; leave one of them out")
    _check_names(invocation)
    _check_numbers(invocation)
    parse_holder(settings.holder)
    if invocation.device.strip().lower() == "cpu":
        contexts_left_out(settings, "cpu")
    for case in cases_on("cpu", settings):
        if moved_bytes(case) > MOST_BYTES:
            raise UsageError(f"--shapes {case.rows}x{case.cols}: needs more than 4 TiB, which no device has")
    _check_fleet(invocation)
    _check_files(invocation)


def _check_files(invocation: Invocation) -> None:
    for path in invocation.impl_files:
        if fault := file_fault(path):
            raise UsageError(f"--impl {path}: {fault}")
    for path in invocation.tuned_files:
        try:
            read_tuned(str(path))
        except ValueError as error:
            raise UsageError(f"--tuned {error}") from error


def _check_names(invocation: Invocation) -> None:
    settings = invocation.settings
    if settings.impls is not None and not all(name.strip() for name in settings.impls.split(",")):
        what = f"{settings.impls!r} has an empty name" if settings.impls.strip() else "is empty"
        raise UsageError(f"--impls {what}; give names, such as {BASELINE},{OWN_IMPL}, or leave it out")
    if set(settings.baseline) & set(",*?["):
        raise UsageError(f"--baseline {settings.baseline}: must be one name, no pattern; speedups are over it")
    if not Path("/dev/kfd").exists():  # NVML names no GPU of AMD; the worker does
        profiles.refuse_unknown(invocation.device, profiles.nvidia_here())
    if invocation.fleet is None and not invocation.dry_run and not has_driver():
        profiles.choose(invocation.device, [read_facts("cpu")])
    added = (invocation.impl_files, invocation.tuned_files, invocation.sides, invocation.offered)
    if (settings.impls or settings.baseline) and not any(added) and not entry_points(group=discovery.ENTRY_POINT_GROUP):
        own = [item.name for item in discovery.own()]
        asked = [*(settings.impls or "").split(","), settings.baseline]
        refuse_unknown([name for each in asked if (name := each.strip().removesuffix(WITH_TORCH))], own)


def contexts_left_out(settings: Settings, kind: DeviceKind, multiprocessors: int | None = None) -> str | None:
    """The contexts of --context that a device cannot have, with the reason; None where it has all of them.

    Raises UsageError where it has none of those that were asked for.
    """
    asked = [context for context in settings.context if context != COLD]
    if kind == "cpu":
        absent = [context for context in asked if context not in (HOT_DY, FWD_BWD)]
        why, instead = "a CPU has no streams, so that nothing runs beside a call", f"name {HOT_DY}, or leave it out"
    else:
        absent = [name for name in asked if multiprocessors and (programs_beside(name) or 0) >= multiprocessors]
        why, instead = f"none of the {multiprocessors} multiprocessors here would be free", "name fewer"
    if not absent:
        return None
    fault = f"--context {','.join(absent)}: {why}"
    if absent == asked:
        raise UsageError(f"{fault}; {instead}")
    return f"{fault}; left out"


def _check_numbers(invocation: Invocation) -> None:
    settings = invocation.settings
    if not 0 <= settings.eps < math.inf:
        raise UsageError(f"--eps {settings.eps:g}: must be a finite number, and not negative")
    if not 0 < invocation.time_limit_s < math.inf:
        raise UsageError(f"--time-limit {invocation.time_limit_s:g}: must be a positive number of seconds")
    for name in ("processes", "seeds", "repeats"):
        if name in settings.model_fields_set and (number := getattr(settings, name)) < 1:
            raise UsageError(f"--{name} {number}: must be at least 1")
    if settings.processes > limits.PROCESSES:
        raise UsageError(f"--processes {settings.processes}: must be at most {limits.PROCESSES}")
    if invocation.compile_ahead is not None and invocation.compile_ahead < 0:
        raise UsageError(f"--compile-ahead {invocation.compile_ahead}: must not be negative; 0 compiles nothing ahead")


def _check_fleet(invocation: Invocation) -> None:
    fleet_options = {"--kinds": invocation.kinds, "--gpus": invocation.gpus}
    if invocation.fleet is None and (lone := [name for name, value in fleet_options.items() if value is not None]):
        raise UsageError(f"{', '.join(lone)}: of a fleet; name it with --fleet local or --fleet ADDRESS")
    if invocation.kinds is not None and ("," in invocation.kinds or not invocation.kinds.strip()):
        raise UsageError(f"--kinds {invocation.kinds!r}: name one kind of GPU, such as h200; each has a run of its own")
    if invocation.gpus is not None and invocation.gpus < 1:
        raise UsageError(f"--gpus {invocation.gpus}: must be at least 1")


def with_default_processes(invocation: Invocation) -> Invocation:
    """The invocation with PROCESSES_OF_A_CLAIM, unless --processes or --quick was typed."""
    if invocation.settings.quick or "processes" in invocation.settings.model_fields_set:
        return invocation
    return invocation.changed(processes=PROCESSES_OF_A_CLAIM)


def resolved(settings: Settings, profile: profiles.DeviceProfile) -> Settings:
    """The settings with the device's defaults in place of all that was not typed."""
    min_blocks, max_blocks, half_width, budget_s = _stopping(profile.kind, settings.quick)
    if settings.processes >= SEVERAL and settings.twin is None:
        max_blocks = min(max_blocks, BLOCKS_OF_SEVERAL)
    repeats = settings.repeats or _repeats(profile.kind, settings)
    several = settings.processes > 1 or not settings.timed  # studied cases are verified in a second process
    return settings.changed(
        suite=suite_on(profile.kind, settings),
        dtype=dtype_on(profile.kind, settings),
        seeds=settings.seeds or (1 if settings.timed else 10),
        repeats=repeats,
        later_repeats=min(LATER_REPEATS, repeats) if several else 0,
        min_blocks=settings.min_blocks or min_blocks,
        max_blocks=settings.max_blocks or max_blocks,
        half_width=settings.half_width or half_width,
        budget_s=settings.budget_s or budget_s,
        flush_bytes=settings.flush_bytes or profile.flush_bytes,
    )


def _stopping(device: DeviceKind, quick: bool) -> tuple[int, int, float, float]:
    """The stopping rule: least and most blocks, the half width that is enough, and seconds."""
    if quick:
        return 10, 20, 0.02, 5.0
    return (40, 120, 0.003, 10.0) if device == "cuda" else (20, 60, 0.003, 3.0)


def _repeats(device: DeviceKind, settings: Settings) -> int:
    """How many runs are compared bit by bit: more in a run that only verifies."""
    if not settings.timed:
        return 300 if device == "cuda" else 12
    return 50 if device == "cuda" and not settings.quick else 2


def for_later_process(settings: Settings) -> Settings:
    """The settings of every process but the first: all the timing, and less verification.

    A later process compares once with the reference, looks for harm as the first does, and compares the bits of a few
    runs.
    """
    repeats = settings.later_repeats or min(LATER_REPEATS, settings.repeats)
    return settings.changed(repeats=repeats, seeds=1, profiled=False, cross_check=False)


def selftests_on(device: DeviceKind, invocation: Invocation) -> tuple[When, ...]:
    """When a process runs the self-test: only before with --quick, and never for a CPU, where nothing is ranked."""
    quick = invocation.settings.quick
    if invocation.selftest_alone:
        return ("alone",)
    if device == "cpu" or not invocation.settings.timed:
        return ()
    return ("before",) if quick else ("before", "after")
