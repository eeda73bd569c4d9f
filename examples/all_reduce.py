"""What a norm's backward loses beside a real all-reduce: NCCL over two GPUs of this host, a process each.

    python examples/all_reduce.py                                   # 32 Mi elements in bf16, both norms
    python examples/all_reduce.py --impls triton-inhouse,liger --shapes 8192x4096 --norm rms

Of each implementation the median alone, beside the kernel of `bench --context beside:8,beside:32` and beside an
all-reduce that begins before the backward and ends after it. A sample where it did not is void, and counted. Flushes,
holds and proofs are those of `bench`; outputs are not verified here. NVLink multicast is left off.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

os.environ["NCCL_NVLS_ENABLE"] = "0"

import torch
import torch.distributed as dist
import torch.multiprocessing

from harness.cases import NormCase, make_inputs
from harness.cases.suites import parse_shapes
from harness.devices.holder import Holder, HolderState
from harness.timing.cuda import CudaDevice
from harness.timing.engine import Candidate, Device, take_sample
from harness.timing.in_context import Beside, anew
from harness.worker.discovery import discover
from harness.worker.serve import ENVIRONMENT

SHAPES = "32768x1024,16384x2048,8192x4096,4096x8192,2048x16384"
IMPLS = "torch-eager,triton-inhouse,cudnn,liger,quack,apex-fast,torch-compiled"
ALONE, ALL_REDUCE = "cold", "all-reduce"
CONTEXTS = (ALONE, "beside:8", "beside:32", ALL_REDUCE)
FLUSH_BYTES = 512 << 20
MOST_ELEMENTS = 1 << 30  # of fp32, that are reduced at once
LONGER = 1.25  # than the backward needs: how fast an all-reduce is, differs from time to time
STARTED_WITHIN_S = 0.1
LAUNCHED_WITHIN_S = 50e-6  # of the mark before it, an all-reduce runs


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
        """End the other process."""
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
    """The other process: an all-reduce of as many elements as it is told, until that is 0."""
    numbers = joined(backend, device, 1, most, where)
    while elements := asked.recv():
        work: Any = dist.all_reduce(numbers[:elements], async_op=True)
        asked.send("under way")
        work.wait()
        if device == "cuda":
            torch.cuda.synchronize()
    dist.destroy_process_group()


def timed(
    device: Device, beside: Callable[[str, float], Device], candidates: Sequence[Candidate], samples: int
) -> dict[str, dict[str, tuple[float | None, int]]]:
    """By candidate and context the median in us and how many samples were void; contexts and candidates alternate."""
    rng, found = random.Random(0), {each.name: dict[str, tuple[float | None, int]]() for each in candidates}
    slowest_us = 0.0
    for context in CONTEXTS:
        where, again = beside(context, slowest_us) if context != ALONE else device, list(map(anew, candidates))
        taken = {each.name: list[Any]() for each in again}
        for number in range(samples + 2):
            for candidate in rng.sample(again, len(again)):
                sample = take_sample(where, candidate, "clean", rng)
                if number >= 2:  # after warming up
                    taken[candidate.name].append(sample)
        for name, each in taken.items():
            good = [sample.us for sample in each if sample.void is None]
            found[name][context] = median(good) if good else None, len(each) - len(good)
        if context == ALONE:
            slowest_us = max(us or 0.0 for of in found.values() for us, _ in of.values())
    return found


def prepared(case: NormCase, names: Sequence[str]) -> tuple[Any, list[Candidate]]:
    """Inputs, and the implementations that are here and support the case, called once."""
    inputs, candidates = make_inputs(case, seed=0), []
    by_name = {implementation.name: implementation for implementation in discover()}
    for name in names:
        try:
            if reason := by_name[name].unsupported(case):
                raise RuntimeError(reason)
            run = by_name[name].prepare(inputs)
            run()
            torch.cuda.synchronize()
            candidates.append(Candidate(name, run))
        except Exception as error:  # a library that is not here, most often
            print(f"{case.key} {name}: {type(error).__name__}: {' '.join(str(error).split())[:150]}", flush=True)
    return inputs, candidates


def lines_of(case: NormCase, found: dict[str, dict[str, tuple[float | None, int]]]) -> list[str]:
    """A line of text for each implementation."""
    lines = []
    for name, contexts in found.items():
        alone, _ = contexts[ALONE]
        cells = [
            f"{context} {'all void' if us is None else f'{us:.1f}'}"
            + (f" x{us / alone:.2f}" if us and alone and context != ALONE else "")
            + (f" ({void} void)" if void else "")
            for context, (us, void) in contexts.items()
        ]
        lines.append(f"{case.key:28} {name:16} {'  '.join(cells)}")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Time every implementation, and print and keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impls", default=IMPLS)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--norm", default="rms,layer")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--out", type=Path, help="a JSON file, a line an implementation")
    options = parser.parse_args(arguments)
    if torch.cuda.device_count() < 2:
        parser.error(f"an all-reduce needs two GPUs, and here are {torch.cuda.device_count()}")
    os.environ.update(ENVIRONMENT)
    torch.cuda.set_device(0)
    holder, all_reduce = Holder(640, 200), AllReduce("nccl", "cuda")
    all_reduce.occupy(0, 20_000.0)
    all_reduce.started()
    probe = Holder(640, 200)
    probe.occupy(probe.multiprocessors, 10_000.0)
    time.sleep(0.002)
    print(f"beside an all-reduce {probe.running()} of {probe.multiprocessors} multiprocessors are free", flush=True)
    probe.release()
    all_reduce.release()
    for norm in options.norm.split(","):
        for rows, cols in parse_shapes(options.shapes):
            case = NormCase(norm, rows, cols, bias=norm == "layer")
            inputs, candidates = prepared(case, options.impls.split(","))
            device = CudaDevice(FLUSH_BYTES, inputs.x)

            def beside(context: str, slowest_us: float, device: CudaDevice = device) -> Device:
                kernel: Any = all_reduce if context == ALL_REDUCE else holder
                return Beside(device, kernel, int(context.partition(":")[2] or 0), slowest_us)

            found = timed(device, beside, candidates, options.samples)
            print("\n".join(lines_of(case, found)), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    for name, contexts in found.items():
                        file.write(json.dumps({"case": case.key, "impl": name, "contexts": contexts}) + "\n")
    all_reduce.close()


if __name__ == "__main__":
    main()
