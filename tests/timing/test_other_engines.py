import json
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from harness.timing import other_engines
from harness.timing.engine import Candidate
from harness.timing.other_engines import MEDIAN, time_with_other_engines


@pytest.fixture
def events():
    return []


@pytest.fixture
def candidates(events):
    def candidate(name):
        return Candidate(name, lambda: events.append(f"run {name}"), lambda: events.append(f"restore {name}"))

    return [candidate("quack"), candidate("liger (all)")]


def engines(monkeypatch, **engines):
    for function, measure in engines.items():
        monkeypatch.setattr(other_engines, function, measure)


def answering(events, word, *times_us):
    """An engine that reads these times."""

    def measure(candidates):
        events.append(word)
        return {candidate.name: us for candidate, us in zip(candidates, times_us, strict=False)}

    return measure


def test_both_engines_restore_before_each_candidate(monkeypatch, events, candidates):
    engines(
        monkeypatch,
        _do_bench=answering(events, "do_bench", 10.12345, 20.0),
        _nvbench=answering(events, "NVBench", 11.0, 21.0),
    )
    assert time_with_other_engines(candidates) == {
        "quack": {"do_bench": 10.123, "NVBench": 11.0},
        "liger (all)": {"do_bench": 20.0, "NVBench": 21.0},
    }
    restores = ["restore quack", "restore liger (all)"]
    assert events == [*restores, "do_bench", *restores, "NVBench"]


class FakeNvbench:
    """`cuda.bench` as far as it is used: benchmarks run once each, on a stream of NVBench's own."""

    def __init__(self, events, states):
        self.events = events
        self.states = states  # by place: those that the results file is said to hold
        self.benchmarks = []
        self.path = None

    def register(self, benchmark):
        self.benchmarks.append(benchmark)
        return SimpleNamespace(set_timeout=lambda limit_s: self.events.append(f"limit {limit_s:g}"))

    def run_all_benchmarks(self, arguments):
        program, quiet, form, path = arguments
        assert (program, quiet, form) == ("normbwd", "--quiet", "--json")
        self.path = Path(path)
        assert self.path.parent.is_dir()
        self.path.write_text(json.dumps([benchmark.__name__ for benchmark in self.benchmarks]))
        stream = SimpleNamespace(addressof=lambda: 4096)
        for benchmark in self.benchmarks:
            benchmark(SimpleNamespace(exec=lambda launch, **how: self._launch(launch, stream, how)))

    def _launch(self, launch, stream, how):
        assert how == {"batched": False}
        launch(SimpleNamespace(get_stream=lambda: stream))

    def from_json(self, path):
        names = json.loads(Path(path).read_text())
        return dict(zip(names, self.states, strict=True))


def state(seconds, skipped=False):
    """One state of a benchmark; without a median where `seconds` is ..., with an empty one where it is None."""
    summaries = {} if seconds is ... else {MEDIAN: SimpleNamespace(value=seconds)}
    return SimpleNamespace(
        is_skipped=skipped, summaries={"nv/cold/time/gpu/mean": SimpleNamespace(value=9.0)} | summaries
    )


def nvbench(monkeypatch, events, *states):
    """Install a fake NVBench whose results file holds these states, one list a candidate."""
    fake = FakeNvbench(events, states)
    tree = {name: ModuleType(name) for name in ("cuda", "cuda.bench", "cuda.bench.results")}
    tree["cuda.bench"].register = fake.register
    tree["cuda.bench"].run_all_benchmarks = fake.run_all_benchmarks
    tree["cuda.bench.results"].BenchmarkResult = SimpleNamespace(from_json=fake.from_json)
    for name, module in tree.items():
        monkeypatch.setitem(sys.modules, name, module)

    @contextmanager
    def stream(address):
        events.append(f"enter stream {address}")
        yield
        events.append("leave stream")

    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda address: address)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    return fake


def test_nvbench_medians_are_mapped_to_names(monkeypatch, events, candidates):
    """NVBench gives medians in seconds under labels of its own."""
    fake = nvbench(monkeypatch, events, [state(12.5e-6)], [state(40e-6)])
    assert other_engines._nvbench(candidates) == {"quack": 12.5, "liger (all)": pytest.approx(40.0)}
    assert [benchmark.__name__ for benchmark in fake.benchmarks] == ["candidate_0", "candidate_1"]
    assert not fake.path.parent.exists()


@pytest.mark.parametrize(
    "states",
    [[state(12.5e-6, skipped=True)], [state(...)], [state(None)], []],
    ids=["skipped", "no median", "an empty median", "no state"],
)
def test_what_nvbench_did_not_time_is_left_out(monkeypatch, events, candidates, states):
    nvbench(monkeypatch, events, states, [state(40e-6)])
    assert other_engines._nvbench(candidates) == {"liger (all)": pytest.approx(40.0)}
