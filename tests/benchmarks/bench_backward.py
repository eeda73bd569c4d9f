"""Every norm backward as a test of pytest-benchmark, with its JSON, its comparison and its histogram.

    pytest tests/benchmarks/bench_backward.py --benchmark-json out.json
    pytest tests/benchmarks/bench_backward.py --normbwd-results results/DEVICE/fast-llm.jsonl.bz2 --benchmark-histogram

All implementations of a case were interleaved in the same blocks by the shared engine, whose samples hold no host time;
pytest-benchmark is shown them one by one on a virtual clock. The name keeps this file out of the usual tests, where
nothing is timed.
"""

import pytest

from tests.benchmarks.replay import VirtualClock

CLOCK = VirtualClock()
pytestmark = pytest.mark.benchmark(timer=CLOCK)


def test_backward(benchmark, replay):
    samples_us = iter(replay.samples_us)
    benchmark.group = replay.case
    benchmark.extra_info.update(replay.extra)
    benchmark.pedantic(lambda: CLOCK.advance(next(samples_us)), rounds=len(replay.samples_us))
