"""What a norm's backward loses beside a real all-reduce: NCCL over two GPUs of this host, a process each.

    python examples/all_reduce.py                                   # 32 Mi elements in bf16, both norms
    python examples/all_reduce.py --impls triton-inhouse,liger --shapes 8192x4096 --norm rms

It is `bench --context beside:8,beside:32` in one process, with one more context: beside an all-reduce that begins
before the backward and ends after it. A block in which it did not is void. NVLink multicast is left off. The results
file has every sample, self-tests and conditions as one of `bench` has, and `normbwd report` reads it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from harness.worker.serve import ENVIRONMENT, find_implementations, keep_no_tuning, record

if __name__ == "__main__":
    os.environ.update(ENVIRONMENT | {"NCCL_NVLS_ENABLE": "0"})  # before torch is imported

import torch
import torch.distributed as dist
import torch.multiprocessing

from harness import devices
from harness.devices.holder import Holder, HolderState
from harness.errors import UnavailableError, UsageError
from harness.records.contexts import ALL_REDUCE, COLD, parse_contexts
from harness.records.file import ResultsFile
from harness.records.reason_texts import sentence
from harness.records.schema import ConditionsRecord, ContextRecord, RowRecord, Timing
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from harness.run.opening import RESULTS_NAME
from harness.run.provenance import device_record, own_revision
from harness.run.resolve import check, selftests_on
from harness.run.session import closing_with_end_record, open_results, plan_run
from harness.timing.engine import Device
from harness.timing.step_contexts import CompetingKernel
from harness.worker import libraries
from harness.worker.interleave import make_device
from harness.worker.messages import Hello, SelfTest, Try
from harness.worker.rows import release
from harness.worker.selftest import make_selftest
from harness.worker.training_step import ContextTimings, TrainingStep
from harness.worker.trial import Trial

SHAPES = "32768x1024,16384x2048,8192x4096,4096x8192,2048x16384"
IMPLS = "torch-eager,triton-inhouse,cudnn,liger,quack,apex-fast,torch-compiled"
CONTEXTS = f"beside:8,beside:32,{ALL_REDUCE}"
REPEATS = 2  # that verify: what is asked here is the time
MOST_ELEMENTS = 1 << 30  # of fp32, that are reduced at once
LONGER = 1.25  # than the backward needs: how fast an all-reduce is, differs from time to time
STARTED_WITHIN_S = 0.1
LAUNCHED_WITHIN_S = 50e-6  # of the mark before it, an all-reduce runs
LONGEST_US = 20_000.0  # of an all-reduce: a probe is seen to run long before it ends
PROBE_US = 5000.0
PLACED_WITHIN_S = 0.002


class AllReduce:
    """All-reduces with another process, in the manner of a `Holder`: as if they held multiprocessors."""

    def __init__(self, backend: str, device: str, most: int = MOST_ELEMENTS) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self._peer, theirs = context.Pipe()
        self._folder = tempfile.TemporaryDirectory(prefix="normbwd-")
        where = f"file://{self._folder.name}/meeting"
        self._process = context.Process(target=take_part, args=(backend, device, most, where, theirs), daemon=True)
        self._process.start()
        self.numbers = joined(backend, device, 0, most, where)
        self._cuda = device == "cuda"
        self._stream: Any = torch.cuda.Stream() if self._cuda else None
        self._began: Any = torch.cuda.Event() if self._cuda else None
        self._work: Any = None
        self._elements_per_us = 1.0
        self._elements_per_us = max(self._rate(most) for _ in range(3))

    def _rate(self, elements: int) -> float:
        """Elements a microsecond, as the host sees it."""
        began = time.perf_counter()
        self.occupy(0, elements / self._elements_per_us / LONGER)
        self.release()
        return elements / (time.perf_counter() - began) / 1e6

    def occupy(self, _programs: int, for_us: float) -> None:
        """Queue an all-reduce of about so long behind what is queued on the current stream."""
        elements = max(1, min(self.numbers.numel(), int(LONGER * for_us * self._elements_per_us)))
        self._peer.send(elements)
        if not self._cuda:
            self._work = dist.all_reduce(self.numbers[:elements], async_op=True)
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._began.record()
            self._work = dist.all_reduce(self.numbers[:elements], async_op=True)

    def started(self) -> bool:
        """Wait until it runs; whether that happened in time."""
        if not self._peer.poll(STARTED_WITHIN_S):
            return False
        until = time.monotonic() + STARTED_WITHIN_S
        while self._cuda and not self._began.query():
            if time.monotonic() > until:
                return False
        time.sleep(LAUNCHED_WITHIN_S)
        return True

    def state(self) -> HolderState:
        """Whether it still runs, as the host sees it at this moment."""
        return "over" if self._work.is_completed() else "running"

    def release(self) -> None:
        """Wait until it has ended."""
        self._peer.recv()
        self._work.wait()
        if self._cuda:
            torch.cuda.synchronize()

    def close(self) -> None:
        """End the other process, where it is still there."""
        with suppress(OSError):
            self._peer.send(0)
        self._process.join(10)
        dist.destroy_process_group()
        self._folder.cleanup()


def joined(backend: str, device: str, rank: int, most: int, where: str) -> torch.Tensor:
    """Join the two processes; the numbers that this one has for all-reduces, which stay 0."""
    own = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group(backend, init_method=where, world_size=2, rank=rank)
    return torch.zeros(most, device=own)


def take_part(backend: str, device: str, most: int, where: str, asked: Connection) -> None:
    """The other process: an all-reduce of as many elements as it receives, until that is 0. Ctrl-C is not for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    numbers = joined(backend, device, 1, most, where)
    while elements := asked.recv():
        work: Any = dist.all_reduce(numbers[:elements], async_op=True)
        asked.send("under way")
        work.wait()
        if device == "cuda":
            torch.cuda.synchronize()
    dist.destroy_process_group()


@dataclass(frozen=True)
class Step(TrainingStep):
    """One case in the contexts of `bench`, and beside an all-reduce."""

    all_reduce: Any

    def _device(self, context: str, result: ContextTimings) -> Device | None:
        if context != ALL_REDUCE:
            return super()._device(context, result)
        inputs = self.job.inputs
        device = make_device(inputs.case.device, self.job.settings.flush_bytes, inputs.x)
        return CompetingKernel(device, self.all_reduce, 0, self.longest_us)


def multiprocessors_with_room(all_reduce: Any, probe: Any) -> int | None:
    """On how many multiprocessors a program of the probe finds room beside an all-reduce.

    None where that did not run for long enough. The probe is calibrated before: that takes longer than an
    all-reduce.
    """
    probe.occupy(probe.multiprocessors, PROBE_US)
    probe.release()
    all_reduce.occupy(0, LONGEST_US)
    started = all_reduce.started()
    probe.occupy(probe.multiprocessors, PROBE_US)
    time.sleep(PLACED_WITHIN_S)
    placed = probe.running()
    lasted = all_reduce.state() == "running"
    probe.release()
    all_reduce.release()
    return placed if started and lasted else None


def room_text(all_reduce: Any, probe: Any) -> str:
    """A sentence about it, with the size of the probe's programs, as one that is smaller may find room elsewhere."""
    what = f"a program of {probe.threads} threads and {probe.shared_kib} KiB of shared memory"
    placed = multiprocessors_with_room(all_reduce, probe)
    if placed is None:
        return f"beside an all-reduce: not known where {what} finds room, because the all-reduce was too short"
    return f"beside an all-reduce {what} finds room on {placed} of {probe.multiprocessors} multiprocessors"


def line_of(row: RowRecord) -> str:
    """A row in words: the median alone, and in each context, with how many times as long that is."""
    alone = _median_us(row.timing)
    cells = [f"cold {alone:.1f}" if alone else _why(row)]
    for name, context in (row.contexts or {}).items():
        us = _median_us(context.timing)
        cells.append(f"{name} {us:.1f} x{us / alone:.2f}" if us and alone else f"{name} {_why(context)}")
    return f"{row.case.key:28} {row.impl:16} {'  '.join(cells)}"


def _median_us(timing: Timing | None) -> float | None:
    return median(timing.samples_us) if timing and timing.samples_us else None


def _why(record: RowRecord | ContextRecord) -> str:
    reason = record.untimed or record.reason
    return sentence(reason) if reason else record.status


def planned_here(invocation: Invocation) -> tuple[Any, Any, Any]:
    """The implementations that are here, what this process says of itself, and the plan."""
    implementations = find_implementations(invocation.start())
    here = [devices.read_facts("cpu")] if invocation.device == "cpu" else devices.read_available()
    hello = Hello(here, [record(each) for each in implementations.values()], libraries.versions())
    return implementations, hello, plan_run(invocation, hello)


def measure(invocation: Invocation, prepared: tuple[Any, Any, Any], all_reduce: Any) -> Path:
    """Measure all cases; the folder of the results file, to which each row is written as soon as it is known."""
    implementations, hello, planned = prepared
    device = device_record(planned.profile, planned.facts)
    path, *_ = open_results(invocation, planned, hello, device, own_revision())
    results = ResultsFile(path)
    missing = {each.name: each.missing for each in planned.impls if each.missing}

    def emit(each: RowRecord | ConditionsRecord) -> None:
        results.append(each)
        if isinstance(each, RowRecord) and each.role == "impl":
            print(line_of(each), flush=True)

    def test(when: Any) -> None:
        if when in selftests_on(planned.facts.kind, invocation):
            results.append(make_selftest(SelfTest(when, planned.settings, planned.profile)))
            release(planned.facts.kind)

    with closing_with_end_record(results, {}, log=None):
        test("before")
        for job in planned.jobs:
            for name in missing.keys() & set(job.impls):
                emit(RowRecord(case=job.case, impl=name, status="missing", reason=missing[name]))
            able = tuple(name for name in job.impls if name not in missing)
            request = Try(job.case, able, job.case.key, planned.settings)
            Trial(request, implementations, lambda *_: None, emit, partial(Step, all_reduce=all_reduce)).run()
            release(planned.facts.kind)
        test("after")
    return path.parent


def main(arguments: Sequence[str] | None = None) -> None:
    """Time every implementation, and print and keep the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impls", default=IMPLS)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--norm", default="rms,layer")
    parser.add_argument("--samples", type=int, default=30, help="blocks in each context")
    parser.add_argument("--out", type=Path, help="folder of the results (default: runs/TIME-DEVICE)")
    options = parser.parse_args(arguments)
    try:
        print(f"results: {run(options, arguments) / RESULTS_NAME}")
    except (UsageError, UnavailableError) as error:
        parser.exit(error.exit_code, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: interrupted; what is done is kept\n")


def run(options: argparse.Namespace, arguments: Sequence[str] | None) -> Path:
    """Measure what the options ask; the folder of the results file."""
    invocation = asked(options, arguments)
    check(invocation.changed(context=COLD))  # `bench` refuses the context that is measured here
    if options.samples < 1:
        raise UsageError(f"--samples {options.samples}: must be at least 1")
    if (there := torch.cuda.device_count()) < 2:
        raise UnavailableError(f"an all-reduce needs two GPUs, and here are {there}")
    torch.cuda.set_device(0)
    keep_no_tuning()
    prepared = planned_here(invocation)
    all_reduce = AllReduce("nccl", "cuda")
    try:
        print(room_text(all_reduce, Holder(640, 200)), flush=True)
        return measure(invocation, prepared, all_reduce)
    finally:
        all_reduce.close()


def asked(options: argparse.Namespace, arguments: Sequence[str] | None) -> Invocation:
    """What the options ask, as `bench` would be asked for it; who else is on the GPU is seen by the conditions."""
    settings = Settings(
        shapes=options.shapes,
        norm=options.norm,
        impls=options.impls,
        context=parse_contexts(CONTEXTS),
        min_blocks=options.samples,
        max_blocks=options.samples,
        repeats=REPEATS,
        profiled=False,
    )
    words = ["python", "examples/all_reduce.py", *(sys.argv[1:] if arguments is None else arguments)]
    return Invocation(settings=settings, out=options.out, allow_others=True, command=shlex.join(words))


if __name__ == "__main__":
    main()
