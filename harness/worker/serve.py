"""The worker process: finds the implementations, sends a Hello, then answers requests, such as to try a case.

It is replaced when it dies, so it holds no state that the parent lacks. Its standard output and error go to a log file,
because libraries print, and that must not disturb the progress bar.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from harness.cases import RUN_FOLDER
from harness.errors import UsageError
from harness.records.schema import ConditionsRecord, RowRecord
from harness.worker.channel import Channel
from harness.worker.messages import (
    Aside,
    Began,
    Done,
    Hello,
    ListConfigs,
    Load,
    Offered,
    Refused,
    Request,
    Row,
    SelfTest,
    Stage,
    Start,
    Try,
    Warm,
)
from harness.worker.own_process import (
    divert_output,
    end_with_parent,
    go_on_under_keeper,
    ignore_interrupts,
    limit_memory,
    usable_cores,
)

if TYPE_CHECKING:
    from harness.cases.adapter import Implementation

# Set before torch or Triton is imported, because they read them at import.
ENVIRONMENT = {
    # torch may serve its own RMSNorm by a vendored quack; "torch eager" has to be torch's own kernel.
    "TORCH_DISABLE_NATIVE_JIT": "1",
    # torch then asks NVML whether a GPU is here, and not CUDA, which no fork of a process that used it can use.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # Its pool of processes imports torch for five seconds, which the first case would be timed beside and wait for.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CACHE_DIR": str(Path.home() / ".cache" / "normbwd" / "torch-inductor"),
    # Tuning by timing is repeated in each process: Triton, flash-linear-attention and FlagGems store no winners.
    "TRITON_CACHE_AUTOTUNING": "0",
    "FLA_CACHE_RESULTS": "0",
    "HELION_SKIP_CACHE": "1",
    "FLAGGEMS_DB_URL": "sqlite:///:memory:",
    # Triton's default. Unless it is set, Inductor and Helion change it to a folder of their own as they compile, and
    # binaries that were compiled ahead would not be found after that.
    "TRITON_CACHE_DIR": os.environ.get("TRITON_CACHE_DIR")
    or str(Path(os.environ.get("TRITON_HOME", Path.home()), ".triton", "cache")),
}
# Prefixes of variables that make a library use another kernel than its default, which no row would show.
KERNEL_CHOICES = (
    "LIGER_",
    "NVTE_NORM_",
    "NVTE_FWD_LAYERNORM_SM_MARGIN",
    "NVTE_BWD_LAYERNORM_SM_MARGIN",
    "HELION_AUTOTUNE_EFFORT",
)
CPU_ENVIRONMENT = {"TRITON_INTERPRET": "1"}  # Triton kernels are verified on a CPU, in its interpreter
SPOILT_EXIT = 70


def serve(connection: Connection, start: Start, log: Path) -> None:
    """Send a Hello, then answer requests until the parent closes the connection."""
    ignore_interrupts()
    end_with_parent()
    go_on_under_keeper(connection.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=connection.close)
    divert_output(log)
    set_environment()
    os.environ[RUN_FOLDER] = str(log.parent)
    on_cpu = start.device == "cpu" or (start.device == "auto" and not _has_gpu())
    if on_cpu:
        os.environ.update(CPU_ENVIRONMENT)
        limit_memory()

    for module in ("torch", "harness.worker.trial") if start.measures else ():
        import_module(module)  # imported here, so that these seconds count for no --impl file and no implementation
    # If not here, then while others compile; an --impl file would be blamed for what this replaces in torch.
    if not on_cpu and (start.impl_files or not start.asked):
        keep_no_tuning()

    channel = Channel[Request](connection, get_args(Request))

    def announce(file: str | None) -> None:
        channel.send(Began(file, "start"))

    try:
        implementations = find_implementations(start, announce)
        hello = _hello(implementations, start, on_cpu, announce) if start.asked else Hello([], [], {})
    except UsageError as error:
        channel.send(Refused(str(error), error.exit_code))
        return
    channel.send(hello)
    while True:
        try:
            request = channel.receive(None)
        except EOFError:
            return
        if request is not None:
            answer(request, implementations, channel)


def set_environment() -> None:
    """Set the environment so that libraries use their defaults; called before torch or any of them is imported."""
    os.environ.update(ENVIRONMENT)
    for variable in [name for name in os.environ if name.startswith(KERNEL_CHOICES)]:
        del os.environ[variable]


def keep_no_tuning() -> None:
    """Keep Inductor from storing the winners of its tuning on disk; compiled binaries are still stored.

    There is no environment variable for it. A winner that was timed while others compiled could be a slow one, and a
    winner of the first process would be used by all later ones, which would hide the scatter between processes.
    """
    config = import_module("torch._inductor.config")
    setattr(config, "autotune_local_cache", False)  # noqa: B010  pyright knows no attributes of such a module


def find_implementations(
    start: Start, announce: Callable[[str | None], None] = lambda _: None
) -> dict[str, Implementation]:
    """The implementations of this worker by name; raises UsageError as `discover` does.

    For each there is also `NAME + torch`, for the variants that NAME lacks, except for revisions and configurations.
    `announce` is called with each --impl file before its import, so that one that hangs is known, and then with None.
    """
    from harness.cases.unfused import WithTorch
    from harness.worker.discovery import discover

    def announced_files() -> Generator[Path]:
        for file in start.impl_files:
            from harness.verify.process_state import ProcessState  # takes torch

            announce(file)
            state = ProcessState.snapshot()
            yield Path(file)
            if changed := state.changed_by_an_import():
                raise UsageError(
                    f"--impl {file}: its import changed {', '.join(changed)}, which all share; take that out"
                )
        announce(None)

    implementations = discover(announced_files(), start.sides, map(Path, start.tuned_files), start.offered)
    helped = [WithTorch.completing(item) for item in implementations if item.name == item.variant]
    return {item.name: item for item in (*implementations, *filter(None, helped))}


def _hello(
    implementations: dict[str, Implementation], start: Start, on_cpu: bool, announce: Callable[[str | None], None]
) -> Hello:
    """The Hello: devices, libraries, and the record of each implementation; --impl files are announced as in an import.

    `missing()` and `misconfigured()` of an adapter are called here.
    """
    from harness.devices.facts import read_available, read_facts
    from harness.worker import libraries
    from harness.worker.asking import ask

    forks = min(12, usable_cores() - 2) if sys.platform == "linux" and not on_cpu else 0
    answers = ask(implementations, "cpu" if on_cpu else "cuda", announce, start.impl_files, forks)
    facts = [read_facts("cpu")] if on_cpu else read_available()
    shared = libraries.versions() if start.measures else {}
    records = [record for record, _ in answers.values()]
    return Hello(facts, records, shared, {name: fault for name, (_, fault) in answers.items() if fault})


def answer(request: Request, implementations: dict[str, Implementation], connection: Channel[Request]) -> None:
    """Answer one request: do it, send the results, then Done."""
    match request:
        case Load():
            _load(request, implementations, connection)
        case Warm():
            _compile(request, implementations)
        case SelfTest():
            _self_test(request, connection)
        case ListConfigs():
            from harness.worker.configured import offer

            connection.send(Offered([offer(implementations[request.impl], case) for case in request.cases]))
        case Try():
            _try(request, implementations, connection)
    connection.send(Done())


def _load(request: Load, implementations: dict[str, Implementation], connection: Channel[Request]) -> None:
    """Import what the adapters name."""
    from harness.verify.process_state import ProcessState

    keep_no_tuning()
    state = ProcessState.snapshot()
    for name in request.impls:
        connection.send(Began(name, "asking"))
        with suppress(Exception):
            item = implementations[name]
            if item.missing() is None and item.unsupported(request.case) is None:
                item.import_ahead()
    state.with_environment_of_now().restore()


def _compile(request: Warm, implementations: dict[str, Implementation]) -> None:
    from harness.worker.trial import warm

    try:
        warm(request.case, implementations[request.impl], request.seed)
    except Exception as error:  # the trial will fail in the same way and record it
        print(f"compiling ahead {request.impl} {request.case.key}: {error!r}", file=sys.stderr)


def _try(request: Try, implementations: dict[str, Implementation], connection: Channel[Request]) -> None:
    from harness.worker.rows import SpoiltError, release_all
    from harness.worker.trial import Trial

    if request.case.device != "cpu":
        keep_no_tuning()

    def watch(impl: str | None, stage: Stage) -> None:
        connection.send(Began(impl, stage))

    def emit(record: RowRecord | ConditionsRecord) -> None:
        connection.send(Row(record) if isinstance(record, RowRecord) else Aside(record))

    try:
        Trial(request, implementations, watch, emit).run()
    except SpoiltError:
        os._exit(SPOILT_EXIT)  # at once, because a thread that was left behind would keep the process alive
    release_all(request.case.device)


def _self_test(request: SelfTest, connection: Channel[Request]) -> None:
    from harness.worker.rows import release_all
    from harness.worker.selftest import make_selftest

    connection.send(Began(None, "self-test"))
    connection.send(Aside(make_selftest(request)))
    release_all(request.profile.kind)


def _has_gpu() -> bool:
    from harness.devices.facts import has_driver

    if not has_driver():
        return False
    import torch

    return torch.cuda.is_available()
