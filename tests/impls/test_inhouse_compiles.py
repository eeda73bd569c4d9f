"""The in-house kernels compile for NVIDIA and AMD without a GPU: no spills, no more shared memory than there is.

A child process compiles (the parent has told Triton to interpret): it runs the entry itself on meta tensors, behind a
driver that names a target, so that what is compiled here is what would be launched there.
"""

import contextlib
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
import triton

from impls.inhouse.problem import GpuLimits
from impls.inhouse.regimes.one_pass import OnePass
from tests.impls.gpuless import in_child, instead_of_launches

pytestmark = pytest.mark.slow


class Case(NamedTuple):
    """What is compiled; many rows, so that every program has many tiles."""

    cols: int
    norm: str
    bias: bool = True
    rows: int = 8192
    dtype: str = "bfloat16"
    weight_dtype: str | None = "bfloat16"
    zero_centred: bool = False
    features: tuple[str, ...] = ()


KIB = 1024
TARGETS = {
    "sm_80": (("cuda", 80, 32), GpuLimits(108, 163 * KIB, 164 * KIB, ptx=True)),
    "sm_90": (("cuda", 90, 32), GpuLimits(132, 227 * KIB, 228 * KIB, ptx=True)),
    "sm_100": (("cuda", 100, 32), GpuLimits(148, 227 * KIB, 228 * KIB, ptx=True)),
    "sm_120": (("cuda", 120, 32), GpuLimits(170, 99 * KIB, 100 * KIB, ptx=True)),
    "gfx942": (("hip", "gfx942", 64), GpuLimits(304, 64 * KIB, 64 * KIB)),
    "gfx950": (("hip", "gfx950", 64), GpuLimits(256, 64 * KIB, 64 * KIB)),
}


def cases_of(text):
    """Cases from their words: the norm, rows x columns, and what is unusual."""
    return [case_of(*each.split()) for each in text.split(",")]


def case_of(norm, shape, *words):
    rows, cols = map(int, shape.split("x"))
    dtype = next((word for word in words if word.startswith("float")), "bfloat16")
    weight_dtype = next((word[1:] for word in words if word.startswith("wfloat")), "bfloat16")
    features = tuple(word[1:] for word in words if word[0] == "+")
    weight_dtype = None if "no-weight" in words else weight_dtype
    return Case(cols, norm, "no-bias" not in words, rows, dtype, weight_dtype, "zero-centred" in words, features)


# One of each regime of launch.py.
EVERYWHERE = cases_of(
    """
    layer 8192x256, layer 8192x8192, layer 8192x16384, layer 512x16384, rms 8192x16384, rms 512x16384,
    layer 8192x32768, layer 100x8192, rms 200x8192, rms 64x4096, rms 8192x1280 no-weight, layer 29x17389
    """
)
ON_HOPPER = EVERYWHERE + cases_of(
    """
    rms 8192x384, layer 8192x1024, rms 8192x2048, layer 8192x2880, layer 8192x4096, rms 2048x4096, layer 8192x4608,
    layer 8192x5120, rms 8192x5632, rms 8192x7168, rms 8192x8192, rms 8192x10240, rms 8192x11264, rms 8192x12288,
    layer 8192x12288 no-bias, layer 8192x16384 no-bias, rms 8192x20480, rms 8192x16384 float16 wfloat32,
    rms 512x16384 zero-centred, layer 8192x16384 float16 wfloat32, rms 65536x128 no-weight,
    layer 8192x12288 no-weight, rms 8192x16384 no-weight, layer 8192x16386, layer 8192x131072, rms 8192x131072,
    layer 8192x16384 float32 wfloat32, layer 8192x16387, rms 64x16384, layer 264x1024, rms 200x17389,
    layer 64x18431 float32 wfloat32, layer 64x4096 no-weight, layer 264x8192 float32
    """
)
WITH_EXTRAS = cases_of(
    """
    rms 8192x4096 +residual, layer 8192x8192 +residual, rms 64x4096 +residual, rms 8192x16384 +residual,
    rms 262144x128 +qk, layer 8192x4096 +parallel, rms 8192x4096 +dropout, rms 8192x5120 +gated,
    rms 8192x4096 +gated, layer 8192x4096 +frozen, layer 8192x16384 +frozen, layer 8192x16387 +frozen
    """
)
EXTRAS_ON_HOPPER = WITH_EXTRAS + cases_of(
    """
    layer 8192x256 +residual, layer 8192x2048 +residual, layer 8192x4096 +residual, rms 4096x8192 +residual,
    rms 8192x4096 no-weight +residual, rms 8192x12288 +residual, layer 8192x16384 +residual, layer 512x16384 +residual,
    rms 8192x16384 float32 wfloat32 +residual, layer 32768x1024 +parallel, rms 8192x4096 +parallel +residual,
    rms 8192x8192 +parallel, layer 8192x8192 +parallel, layer 16384x2048 +parallel, layer 8192x16384 +parallel,
    layer 8192x16192 +parallel +residual, rms 16384x2048 +parallel +residual, rms 16384x2048 +gated,
    layer 16384x2048 +gated, rms 64x4096 +parallel, rms 8192x16384 +parallel, layer 8192x4096 +dropout +parallel-tied,
    layer 8192x2560 +gated-norm-first, rms 8192x4096 +gated-norm-first, rms 8192x8192 +gated, layer 8192x8192 +gated,
    layer 8192x8192 +gated-norm-first, rms 64x4096 +gated, layer 8192x5120 +gated-norm-first, layer 8192x5120 +gated,
    rms 8192x10240 +residual +dropout, rms 8192x8192 +parallel +residual
    """
)
TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
SPILL_LIMIT = 24  # bytes a thread
MORE_SPILL = {
    Case(8192, "rms"): 40 if TRITON == (3, 7) else 0,  # 64 columns a thread: the store stands apart for this
    Case(16384, "layer", features=("parallel",)): 64,  # with Triton 3.6; 40 with 3.9
    Case(16384, "layer", features=("residual",)): 40,  # with Triton 3.6, with which it was chosen
}


def compile_case(target, cols, norm, bias, rows, dtype, weight_dtype, zero_centred, features=(), spoil=None):
    """Compile all that one case launches; return what each kernel uses. `spoil` plants a fault, by its name."""
    import torch

    from impls.inhouse import backward, tensors

    backend_target, gpu = TARGETS[target]
    layer = norm == "layer"
    usage = {}

    class Compiled:
        """A kernel that is compiled instead of launched."""

        def __init__(self, name, kernel):
            self.name, self.kernel = name, kernel

        def __getitem__(self, grid):
            def compiled(*args, **options):
                kernel = self.kernel.warmup(*args, grid=grid, **options)
                loads = kernel.asm["ttgir"].count("ttg.local_load ")  # of tiles and statistics, once a layout
                narrow = len(re.findall(r"ld\.global\S*\.[bu]16\s", kernel.asm.get("ptx", "")))
                copies = re.findall(r"cp\.async\.c[ag]\.\S+ .*?(0x[0-9a-f]+)[,;]", kernel.asm.get("ptx", ""))
                sizes = sorted({int(size, 16) for size in copies})
                usage[self.name] = resources(kernel) | {"loads": loads, "narrow": narrow, "copies": sizes}

            return compiled

    x = torch.empty((rows, cols), dtype=getattr(torch, dtype), device="meta")
    weight = None if weight_dtype is None else torch.empty(cols, dtype=getattr(torch, weight_dtype), device="meta")
    rstd = torch.empty(rows, device="meta")
    has_bias = layer and bias and weight is not None
    extras = extras_of(features, x, weight, bias=has_bias)
    given = torch.empty((rows // 32, 48, cols), dtype=x.dtype, device="meta")[:, :32] if "qk" in features else x
    memory = torch.empty(1 << 20, dtype=torch.int64, device="meta")
    with instead_of_launches(backend_target, Compiled, memory), patch.object(backward, "gpu_of", lambda *_: gpu):
        launch = None
        if spoil == "alignments":
            tensors.CallTensors.alignments = 1
        if spoil == "unit":
            tensors.WIDEST_UNIT = 1
        if spoil == "tile":
            launch = backward.choose_for(x, x, weight, has_bias, layer=layer)
            if isinstance(launch, OnePass):
                launch = replace(launch, rows=4 * launch.rows, stages=1)
        mean = rstd if layer else None
        options = {"has_bias": has_bias, "zero_centred": zero_centred, "launch": launch}
        options["dx_alone"] = "frozen" in features
        if extras is None:
            backward.norm_backward(x.view(given.shape), given, weight, mean, rstd, **options)
        else:
            backward.backward_with_extras(x, x, weight, mean, rstd, extras, **options)
    return usage


def extras_of(features, x, weight, *, bias):
    """What is around a norm with these features; None of a norm without."""
    import torch

    from impls.inhouse.tensors import Extras

    if not set(features) - {"qk", "frozen"}:
        return None
    gated, dropped, parallel = "gated" in features, "dropout" in features, "parallel" in features
    norm_first = "gated-norm-first" in features
    mask = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    return Extras(
        dres=x if {"residual", "dropout"} & set(features) else None,
        mask=mask if dropped else None,
        mask1=mask if dropped and "parallel-tied" in features else None,
        p=0.1 if dropped else 0.0,
        dy1=x if parallel else None,
        weight1=weight if parallel else None,
        z=x if gated or norm_first else None,
        bias=weight if norm_first and bias else None,
        norm_first=norm_first,
    )


def resources(compiled):
    """Registers, spilled bytes a thread and shared bytes of a compiled kernel, read from its binary or its assembly."""
    if "amdgcn" in compiled.asm:
        found = {
            key: int(re.search(rf"\.{key}:\s*(\d+)", compiled.asm["amdgcn"])[1])
            for key in ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count")
        }
        spilled = 4 * (found["vgpr_spill_count"] + found["sgpr_spill_count"])
        return {"registers": found["vgpr_count"], "spilled": spilled, "shared": compiled.metadata.shared}

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        report = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", report.stdout).groups()
    return {"registers": int(registers), "spilled": int(stack), "shared": compiled.metadata.shared}


@pytest.mark.parametrize("extras", [False, True], ids=["plain", "around"])
@pytest.mark.parametrize("target", TARGETS)
def test_compiles_without_spills(target, extras):
    here, on_hopper = (WITH_EXTRAS, EXTRAS_ON_HOPPER) if extras else (EVERYWHERE, ON_HOPPER)
    cases = on_hopper if target == "sm_90" else here
    gpu = TARGETS[target][1]
    for case, usage in zip(cases, in_child(__name__, target, cases), strict=True):
        assert usage
        for kernel, used in usage.items():
            told = (target, case, kernel, used)
            assert used["spilled"] <= MORE_SPILL.get(case, SPILL_LIMIT), told
            assert used["shared"] <= gpu.shared_bytes, told


@pytest.mark.parametrize("cols", [1024, 2880, 4096])
def test_a_wider_weight_causes_no_second_layout(cols):
    like_x, wider = in_child(__name__, "sm_90", [Case(cols, "layer"), Case(cols, "layer", weight_dtype="float32")])
    chunks = {1024: 1, 2880: 3, 4096: 4}[cols]
    again = int(TRITON >= (3, 9) and chunks > 1)  # a statistic, with either weight
    loads = 2 * chunks + 2 + again
    assert like_x["backward_rows"]["loads"] == wider["backward_rows"]["loads"] == loads


@pytest.mark.parametrize(
    "case",
    [
        Case(2648, "rms"),
        Case(1000, "layer"),
        Case(3192, "layer", features=("residual",)),
        Case(17000, "rms"),
        Case(2648, "rms", rows=100),
    ],
    ids=str,
)
def test_rows_that_begin_on_16_bytes_are_not_read_by_elements(case):
    """Columns that 8 divides and 16 does not, of which Triton sees no divisor by itself."""
    (usage,) = in_child(__name__, "sm_90", [case])
    assert [(used["narrow"], used["spilled"] <= SPILL_LIMIT) for used in usage.values()] == [(0, True)]
    if case.cols < 8192:  # wider rows are read in words of two numbers
        (usage,) = in_child(__name__, "sm_90", [case], "unit")
        assert all(used["narrow"] for used in usage.values()), "the planted fault: in units of 1"


@pytest.mark.parametrize(
    "case", [Case(4005, "layer"), Case(2370, "rms"), Case(817, "layer", features=("residual",))], ids=str
)
def test_rows_at_several_alignments_are_copied_16_bytes_at_a_time(case):
    """The planted fault: all are read as if they began anywhere, element by element or two at a time."""
    (usage,), (spoiled,) = (in_child(__name__, "sm_90", [case], *spoil) for spoil in ((), ("alignments",)))
    assert usage["backward_rows"]["copies"][-1] == 16
    assert usage["backward_rows"]["spilled"] <= SPILL_LIMIT
    fewer = usage["backward_rows"]["narrow"] < spoiled["backward_rows"]["narrow"]
    assert fewer or 16 not in spoiled["backward_rows"]["copies"]


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_kernel_that_spills_would_be_seen(target):
    (usage,) = in_child(__name__, target, [Case(8192, "layer")], "tile")
    assert usage["backward_rows"]["spilled"] > 0


def main():
    target, cases, *spoil = json.loads(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        usages = [compile_case(target, *case, *spoil) for case in cases]
    print(json.dumps(usages))


if __name__ == "__main__":
    main()
