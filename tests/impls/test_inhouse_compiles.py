"""The in-house kernels compile for NVIDIA and AMD without a GPU: no spills, no more shared memory than there is.

A child process compiles (the parent has told Triton to interpret): it runs the entry itself on meta tensors, behind a
driver that names a target, so that what is compiled here is what would be launched there.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from impls.inhouse.launch import Gpu, OnePass, choose

KIB = 1024
TARGETS = {
    "sm_80": (("cuda", 80, 32), Gpu(108, 163 * KIB, pdl=False, ptx=True)),
    "sm_90": (("cuda", 90, 32), Gpu(132, 227 * KIB, pdl=True, ptx=True)),
    "sm_100": (("cuda", 100, 32), Gpu(148, 227 * KIB, pdl=True, ptx=True)),
    "gfx942": (("hip", "gfx942", 64), Gpu(304, 64 * KIB)),
    "gfx950": (("hip", "gfx950", 64), Gpu(256, 64 * KIB)),
}
EVERYWHERE = [(256, "layer"), (8192, "layer"), (32768, "layer")]
ON_HOPPER = [
    *EVERYWHERE,
    (384, "rms"),
    (1024, "layer"),
    (2880, "layer"),
    (4096, "layer"),
    (12288, "rms"),
    (16384, "rms"),
]

# At 16384 columns all 128 registers that 512 threads leave each other are taken, and ptxas sets a few aside in the L1
# cache. That was weighed (docs/kernel.md), so it has a limit of its own: bytes a thread.
SPILL_LIMIT = {16384: 160}


def compile_case(target, cols, norm, spoil=False):
    """Compile all that one case launches; return what each kernel uses."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget

    from impls.inhouse import backward, kernels

    backend_target, gpu = TARGETS[target]
    layer = norm == "layer"
    rows, bf16 = 8192, torch.bfloat16
    launch = choose(rows, cols, item_bytes=2, weight_bytes=2, accumulators=1 + layer, gpu=gpu)
    if spoil and isinstance(launch, OnePass):
        launch = replace(launch, rows=4 * launch.rows, stages=1)
    usage = {}

    class Driver:
        """The driver of a GPU that is not there."""

        def get_current_target(self):
            return GPUTarget(*backend_target)

        def get_current_device(self):
            return 0

        def get_current_stream(self, device):
            return 0

    class Compiled:
        """A kernel that is compiled instead of launched."""

        def __init__(self, name):
            self.kernel = getattr(kernels, name)
            self.name = name

        def __getitem__(self, grid):
            return lambda *args, **options: usage.update(
                {self.name: resources(self.kernel.warmup(*args, grid=grid, **options))}
            )

    triton.runtime.driver.set_active(Driver())
    names = ("backward_rows", "row_sums", "backward_columns", "finish")
    backward.kernels = type("Kernels", (), {name: Compiled(name) for name in names})
    x, weight = torch.empty((rows, cols), dtype=bf16, device="meta"), torch.empty(cols, dtype=bf16, device="meta")
    rstd = torch.empty(rows, device="meta")
    backward.norm_backward(x, x, weight, rstd if layer else None, rstd, has_bias=layer, launch=launch)
    return usage


def resources(compiled):
    """Registers, spilled bytes a thread and shared bytes of a compiled kernel, read from its binary or its assembly."""
    if "amdgcn" in compiled.asm:
        found = {
            key: int(re.search(rf"\.{key}:\s*(\d+)", compiled.asm["amdgcn"])[1])
            for key in ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count")
        }
        spilled = 4 * (found["vgpr_spill_count"] + found["sgpr_spill_count"])
        return {"registers": found["vgpr_count"], "spilled": spilled, "shared": compiled.metadata.shared}
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        report = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", report.stdout).groups()
    return {"registers": int(registers), "spilled": int(stack), "shared": compiled.metadata.shared}


def in_child(target, cases, spoil=False):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", __name__, json.dumps([target, cases, spoil])]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("target", TARGETS)
def test_compiles_without_spills(target):
    cases = ON_HOPPER if target == "sm_90" else EVERYWHERE
    gpu = TARGETS[target][1]
    for (cols, norm), usage in zip(cases, in_child(target, cases), strict=True):
        assert "finish" in usage
        for kernel, used in usage.items():
            assert used["spilled"] <= SPILL_LIMIT.get(cols, 0), (target, cols, norm, kernel, used)
            assert used["shared"] <= gpu.shared_bytes, (target, cols, norm, kernel, used)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_a_kernel_that_spills_would_be_seen(target):
    (usage,) = in_child(target, [(8192, "layer")], spoil=True)
    assert usage["backward_rows"]["spilled"] > 0


def main():
    target, cases, spoil = json.loads(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        usages = [compile_case(target, cols, norm, spoil) for cols, norm in cases]
    print(json.dumps(usages))


if __name__ == "__main__":
    main()
