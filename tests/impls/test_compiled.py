"""The in-house kernels as they are compiled for a GPU, run on a CPU: those too whose programs wait for each other.

A child process compiles and runs (the parent has told Triton to interpret): the entry itself, with a machine in place
of the GPU.
"""

import contextlib
import json
import re
import sys
from typing import NamedTuple
from unittest.mock import patch

import pytest

from impls.inhouse import kinds
from impls.inhouse.kinds import FewRows, OnePass, Shared, TwoPass
from tests.impls.gpuless import in_child, instead_of_launches

SHARED = Shared(rows=2, parts=2, groups=2, delay=1, residents=3, maxnreg=168)


class Case(NamedTuple):
    """What is run, and by which launch; few programs, as each runs in Python."""

    norm: str
    rows: int
    cols: int
    launch: kinds.Launch
    dtype: str = "bfloat16"
    weight_dtype: str = "bfloat16"


CASES = {
    "narrow": Case("layer", 40, 200, OnePass(16, 4, 64, 4, 2, fold=False, stages=4, fused=True)),
    "flat": Case("layer", 9, 1500, OnePass(2, 2, 1024, 4, 2, fold=True, stages=3, fused=True)),
    "packed": Case("rms", 9, 2048, OnePass(2, 2, 1024, 4, 3, fold=True, packed=True, stages=3, fused=True)),
    "shared": Case("layer", 9, 4096, SHARED),
    "shared, a delay of two": Case("rms", 17, 6152, Shared(2, 4, 2, 2, 3, 168, stages=4)),
    "shared, one row": Case("layer", 5, 4100, Shared(1, 3, 2, 1, 3, 168)),
    "shared, fp16": Case("layer", 8, 4096, SHARED, "float16", "float32"),
    "few rows": Case("layer", 5, 1500, FewRows(64, 32, 2, 1024, 4)),
    "two passes": Case("layer", 10, 1027, TwoPass(4, 1024, 4, 2)),
}
# Each is one line of a kernel's text, what takes its place, and the case that shows it.
FAULTS = {
    "a copy is not waited for": ("packed", r"(cp\.async\.wait_group\s+)[1-9];", r"\g<1>9;"),
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

    from impls.inhouse import backward
    from tests.impls.machine import Machine

    case = CASES[name]

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
    torch.manual_seed(0)
    layer, dtype = case.norm == "layer", getattr(torch, case.dtype)
    x, dy = (2 * torch.randn(case.rows, case.cols) + 1).to(dtype), torch.randn(case.rows, case.cols).to(dtype)
    weight = (1 + torch.randn(case.cols) / 4).to(getattr(torch, case.weight_dtype))
    mean = x.double().mean(1) if layer else None
    centred = x.double() - mean[:, None] if layer else x.double()
    rstd = (centred.square().mean(1) + 1e-5).rsqrt()
    statistics = (mean.float() if layer else None, rstd.float())
    found = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(instead_of_launches(("cuda", 90, 32), OnMachine, memory))
        stack.enter_context(patch.object(backward, "output", lambda like, shape: like.new_empty(shape)))
        for seed in SEEDS if fault is None else SEEDS[:1]:
            stack.enter_context(patch.object(OnMachine, "seed", seed))
            found += [backward.norm_backward(dy, x, weight, *statistics, has_bias=layer, launch=case.launch)]
    xhat, g = centred * rstd[:, None], dy.double() * weight.double()
    dx = g - xhat * (g * xhat).mean(1, keepdim=True) - (g.mean(1, keepdim=True) if layer else 0)
    exact = [rstd[:, None] * dx, (dy.double() * xhat).sum(0), dy.double().sum(0) if layer else None]
    ratios = [float(_ratio(*pair)) for pair in zip(found[0], exact, strict=True) if pair[1] is not None]
    same = all(
        torch.equal(*pair) for other in found for pair in zip(found[0], other, strict=True) if pair[0] is not None
    )
    return {"ratios": ratios, "same": same}


def _ratio(found, exact):
    """The rms error over that of rounding once."""
    rounding = (exact.to(found.dtype).double() - exact).square().mean().sqrt()
    return (found.double() - exact).square().mean().sqrt() / rounding


@pytest.mark.parametrize("name", CASES)
def test_right_and_the_same_bits_in_every_order_of_programs(name):
    outcome = in_child(__name__, name)
    limit = 1.05 if CASES[name].weight_dtype == "bfloat16" else 4  # of fp32, in which it is also summed
    assert max(outcome["ratios"]) < limit
    assert outcome["same"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_seen(fault):
    name, *change = FAULTS[fault]
    assert not max(in_child(__name__, name, change)["ratios"]) < 1.05  # NaN is not less


if __name__ == "__main__":
    print(json.dumps(outcome_of(*json.loads(sys.argv[1]))))
