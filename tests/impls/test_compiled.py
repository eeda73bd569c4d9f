"""The in-house kernels as they are compiled for a GPU, run on a CPU: those too whose programs wait for each other.

A child process compiles and runs (the parent has told Triton to interpret): the entry itself, with a machine in place
of the GPU.
"""

import contextlib
import json
import re
import sys
from functools import partial
from unittest.mock import patch

import pytest

from impls.inhouse.regimes.few_rows import FewRows
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.regimes.shared import Shared
from impls.inhouse.regimes.two_pass import TwoPass
from tests.impls.gpuless import in_child, instead_of_launches
from tests.impls.inhouse_cases import cpu_case, gradients, reference, rho

SHARED = Shared(rows=2, parts=2, groups=2, delay=1, residents=3, maxnreg=168)
layer, rms = partial(cpu_case, "layer", bias=True), partial(cpu_case, "rms")

CASES = {  # few programs, as each runs in Python
    "narrow": (layer(40, 200), OnePass(16, 4, 64, 4, 2, fold=False, stages=4, fused=True)),
    "flat": (layer(9, 1500), OnePass(2, 2, 1024, 4, 2, fold=True, stages=3, fused=True)),
    "packed": (rms(9, 2048), OnePass(2, 2, 1024, 4, 3, fold=True, packed=True, stages=3, fused=True)),
    "shared": (layer(9, 4096), SHARED),
    "shared, a delay of two": (rms(17, 6152), Shared(2, 4, 2, 2, 3, 168, stages=4)),
    "shared, fewer turns than stages": (layer(5, 4100), Shared(2, 3, 3, 2, 3, 168, stages=4)),
    "shared, one row": (layer(5, 4100), Shared(1, 3, 2, 1, 3, 168)),
    "shared, fp16": (layer(8, 4096, dtype="fp16", weight_dtype="fp32"), SHARED),
    "shared, fp32": (layer(9, 3000, dtype="fp32", weight_dtype="fp32"), Shared(2, 3, 2, 1, 3, 168, cols=1024)),
    "few rows": (layer(5, 1500), FewRows(64, 32, 2, 1024, 4)),
    "two passes": (layer(10, 1027), TwoPass(4, 1024, 4, 2)),
}
# Each is one line of a kernel's text, what takes its place, and the case that shows it.
FAULTS = {
    "a copy is not waited for": ("packed", r"(cp\.async\.wait_group\s+)[1-9];", r"\g<1>9;"),
    "one of the first tiles is not waited for": ("shared", r"(cp\.async\.wait_group\s+)2;", r"\g<1>9;"),
    "a later tile is not waited for": ("shared, a delay of two", r"(cp\.async\.wait_group\s+)1;", r"\g<1>9;"),
    "partials are summed before all are stored": ("flat", r"@true bra WAIT;", ""),
    "sums of another turn are taken": (
        "shared",
        r"vote\.sync\.all\.pred ready, ready, \S+;",
        "setp.eq.b32 ready, 0, 0;",
    ),
}
SEEDS = (0, 1, 2)


def outcome_of(name, fault=None):
    """Of one case: each gradient's rms error over that of one rounding, and whether all orders gave the same bits."""
    import torch

    from harness.cases import make_inputs
    from impls.inhouse import backward
    from tests.impls.machine import Machine

    case, launch = CASES[name]

    class OnMachine:
        """A kernel that is compiled and run here instead of launched."""

        seed = 0

        def __init__(self, name, kernel):
            self.name, self.kernel = name, kernel

        def __getitem__(self, grid):
            def run(*args, **options):
                compiled = self.kernel.warmup(*args, grid=grid, **options)
                given = dict(zip(self.kernel.arg_names, args, strict=False)) | options
                kinds = compiled.src.signature
                arguments = [given[each] for each in kinds if kinds[each] != "constexpr"]
                ptx = compiled.asm["ptx"]
                if fault:
                    ptx, found = re.subn(fault[0], fault[1], ptx)
                    assert found
                shared = compiled.metadata.shared
                Machine(ptx, self.name, grid[0], options["num_warps"], shared, arguments).run(self.seed)

            return run

    memory = torch.zeros(1 << 14, dtype=torch.int64)  # kept from launch to launch, as a stream's is
    inputs, found = make_inputs(case, seed=0), []
    with contextlib.ExitStack() as stack:
        stack.enter_context(instead_of_launches(("cuda", 90, 32), OnMachine, memory))
        stack.enter_context(patch.object(backward, "output", lambda like, shape: like.new_empty(shape)))
        for seed in SEEDS if fault is None else SEEDS[:1]:
            stack.enter_context(patch.object(OnMachine, "seed", seed))
            found += [gradients(inputs, launch=launch)]
    ratios = [rho(*pair) for pair in zip(found[0], reference(inputs), strict=False) if pair[0] is not None]
    same = all(
        torch.equal(*pair) for other in found for pair in zip(found[0], other, strict=True) if pair[0] is not None
    )
    return {"ratios": ratios, "same": same}


@pytest.mark.parametrize("name", CASES)
def test_right_and_the_same_bits_in_every_order_of_programs(name):
    outcome = in_child(__name__, name)
    limit = 1.05 if CASES[name][0].weight_dtype == "bf16" else 4  # of fp32, in which it is also summed
    assert all(ratio < limit for ratio in outcome["ratios"])  # NaN is not less, and max() may pass it over
    assert outcome["same"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_seen(fault):
    name, *change = FAULTS[fault]
    assert not all(ratio < 1.05 for ratio in in_child(__name__, name, change)["ratios"])  # NaN is not less


if __name__ == "__main__":
    print(json.dumps(outcome_of(*json.loads(sys.argv[1]))))
