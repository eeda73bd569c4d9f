"""What is asked of a GPU beside the blocks, with a device that does nothing and profilers that are scripted."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from harness.cases import NormCase
from harness.devices.nvml import SensorReading
from harness.records.reasons import Reason
from harness.records.schema import Kernel, KernelTotals, VoidBlocks
from harness.records.settings import Settings
from harness.timing.breakdown import Breakdown
from harness.worker import interleave
from harness.worker.interleave import TimingJob, time_together
from tests.fake_device import SILENT, FakeDevice
from tests.wording import worded

CASE = NormCase("rms", 4, 8)
SETTINGS = Settings(baseline="quack", min_blocks=2, max_blocks=2, budget_s=1e9)
TOTALS = KernelTotals(sum_us=1.0, union_us=1.0, span_us=1.0, event_us=2.0)


class Gpu:
    """Times some candidates together, and remembers what was asked for beside that, in order."""

    def __init__(self, monkeypatch, readings=SILENT):
        self.device = FakeDevice(readings=readings)
        self.candidates = [self.device.candidate(name) for name in ("torch-eager", "quack")]
        self.asked = []
        self.launches = []
        self.profile = {c.name: Breakdown([Kernel(name="rows", median_us=1.0)], TOTALS) for c in self.candidates}
        for name in ("breakdown", "time_launches", "time_with_other_engines"):
            monkeypatch.setattr(interleave, name, getattr(self, f"_{name}"))
        monkeypatch.setattr(interleave, "make_device", lambda *arguments: self.device)

    def together(self, case=CASE, **more):
        x = torch.zeros(4, 8)
        inputs = SimpleNamespace(case=case, x=x, tensors=lambda: {"x": x, "dy": x})
        return time_together(TimingJob(inputs, self.candidates, SETTINGS.changed(**more), "g7", watch=self._watch))

    def _watch(self, impl, stage):
        if stage != "time":
            self.asked.append(stage)

    def _breakdown(self, candidates, device, flush, rng):
        self.asked.append(f"breakdown {','.join(c.name for c in candidates)} {flush}")
        if isinstance(self.profile, Exception):
            raise self.profile
        return self.profile

    def _time_launches(self, candidate, device, flush, rng):
        self.asked.append(f"launches {candidate.name} {flush}")
        return self.launches

    def _time_with_other_engines(self, candidates):
        self.asked.append(f"other engines {','.join(c.name for c in candidates)}")
        return {c.name: {"do_bench": 5.0} for c in candidates}


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


def test_kernels_are_broken_down_after_the_blocks(gpu):
    gpu.launches = [("rows", 3.0)]
    done = gpu.together(flush="dirty")
    assert gpu.asked == [
        "break down",
        "breakdown torch-eager,quack dirty",
        "launches torch-eager dirty",
        "launches quack dirty",
        "cross-check",
    ]
    kernels = [Kernel(name="rows", median_us=1.0, event_us=3.0)]
    assert done.kernels == dict.fromkeys(("torch-eager", "quack"), Breakdown(kernels, TOTALS))
    assert done.other_engines_us == {}


def test_failing_profiler_costs_the_breakdown(gpu):
    gpu.profile = RuntimeError("CUPTI is in use")
    done = gpu.together()
    notes = {name: (profile.kernels, worded(profile.note)) for name, profile in done.kernels.items()}
    assert notes == dict.fromkeys(("torch-eager", "quack"), (None, "RuntimeError: CUPTI is in use"))
    assert [len(timing.samples_us) for timing in done.timings.values()] == [2] * 4


def test_other_engines_time_implementations_not_twins(gpu):
    done = gpu.together(cross_check=True, twice=True, profiled=False)
    assert gpu.asked == ["break down", "cross-check", "other engines torch-eager,quack"]
    assert done.other_engines_us == {"torch-eager": {"do_bench": 5.0}, "quack": {"do_bench": 5.0}}


def test_cpu_has_no_breakdown(gpu):
    done = gpu.together(replace(CASE, device="cpu"), cross_check=True)
    assert (done.kernels, done.other_engines_us) == ({}, {})
    assert gpu.asked == ["break down", "cross-check"]


def test_readings_and_causes_are_in_every_timing(monkeypatch):
    hot = SensorReading(throttled=("power brake",))
    done = Gpu(monkeypatch, readings=[SensorReading(), SensorReading(), hot]).together()
    assert done.readings == [SensorReading(), hot]
    assert [timing.blocks for timing in done.timings.values()] == [[0]] * 4
    assert [timing.voided for timing in done.timings.values()] == [
        [VoidBlocks(cause=Reason("throttled", {"by": "power brake"}), blocks=1)]
    ] * 4
