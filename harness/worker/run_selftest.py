"""A self-test as a worker makes it: the engine's checks on known work, then the controls, in one record."""

from __future__ import annotations

import random

import torch

from harness.results.schema import SelfTestRecord
from harness.timing import selftest
from harness.timing.work import TensorWork
from harness.worker.controls import run_controls
from harness.worker.interleave import make_device
from harness.worker.messages import SelfTest

# On a CPU a flush takes tens of milliseconds, and nobody ranks to a per cent.
EFFORT = {"cuda": selftest.Effort(), "cpu": selftest.Effort(blocks=5, multiples=(1, 2, 4))}


def make_selftest(request: SelfTest) -> SelfTestRecord:
    """Test the engine on the device that the request is for."""
    asked = request.asked
    kind = "cpu" if asked.device == "cpu" else "cuda"
    effort = EFFORT[kind]
    device = make_device(kind, asked.flush_bytes, torch.empty(asked.cache_bytes, dtype=torch.uint8, device=kind))
    work = TensorWork(kind, device, asked.cache_bytes, effort.multiples[-1], asked.datasheet_gbps)
    test = selftest.SelfTest(device, work, effort, random.Random(asked.seed))
    budget = test.run()
    del work, device  # the controls need room of their own
    checks = [*test.checks, *run_controls(asked)]
    return SelfTestRecord(when=request.when, process=request.process, budget=budget, checks=checks)
