"""The same backwards timed by other engines, for comparison; these keep no queue proof.

docs/method.md compares their figures with ours and explains each difference.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.timing.engine import Candidate

NVBENCH_LIMIT_S = 1.5  # a candidate; it stops earlier where its own criterion is met
MEDIAN = "nv/cold/time/gpu/median"


def time_with_other_engines(candidates: Sequence[Candidate]) -> dict[str, dict[str, float]]:
    """Median times in microseconds, by candidate and engine; an engine that is not installed, or fails, is left out.

    What a candidate overwrites is restored before do_bench's turn with each, and before all of NVBench's, not before
    each call. NVBench runs once in the life of a process: a second call fails.
    """
    medians_us: dict[str, dict[str, float]] = {candidate.name: {} for candidate in candidates}
    for engine, measure in {"do_bench": _do_bench, "NVBench": _nvbench}.items():
        for candidate in candidates:
            candidate.restore()
        try:
            times_us = measure(candidates)
        except ImportError:
            continue
        except Exception as error:  # the other engine gets no times; the own timing is not affected
            print(f"{engine}: {error!r}", file=sys.stderr)
            continue
        for name, us in times_us.items():
            medians_us[name][engine] = round(us, 3)
    return medians_us


def _do_bench(candidates: Sequence[Candidate]) -> dict[str, float]:
    from triton.testing import do_bench

    def median_us(candidate: Candidate) -> float:
        candidate.restore()
        milliseconds: Any = do_bench(candidate.run, return_mode="median")
        return milliseconds * 1e3

    return {candidate.name: median_us(candidate) for candidate in candidates}


def _nvbench(candidates: Sequence[Candidate]) -> dict[str, float]:
    bench: Any = import_module("cuda.bench")
    read: Any = import_module("cuda.bench.results").BenchmarkResult.from_json
    names = {f"candidate_{place}": candidate.name for place, candidate in enumerate(candidates)}
    for label, candidate in zip(names, candidates, strict=True):
        bench.register(_benchmark(label, candidate.run)).set_timeout(NVBENCH_LIMIT_S)
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        path = Path(folder) / "nvbench.json"
        bench.run_all_benchmarks(["normbwd", "--quiet", "--json", str(path)])
        results = read(path)
    times_us: dict[str, float] = {}
    for label, states in results.items():
        for state in states:
            median = None if state.is_skipped else state.summaries.get(MEDIAN)
            if median is not None and median.value is not None:
                times_us[names[label]] = float(median.value) * 1e6
    return times_us


def _benchmark(label: str, run: Callable[[], object]) -> Callable[[Any], None]:
    import torch

    def benchmark(state: Any) -> None:
        def launch(launched: Any) -> None:
            with torch.cuda.stream(torch.cuda.ExternalStream(launched.get_stream().addressof())):
                run()

        state.exec(launch, batched=False)

    benchmark.__name__ = label
    return benchmark
