"""One implementation called twice and nothing else: the program that compute-sanitizer watches.

The inputs are made on the CPU and copied, so that every kernel that runs is the implementation's: its forward and its
backward. No tensor shares an allocation with another, guards included, so that the tool knows the bounds of each.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from harness.cases import DeviceKind, Inputs, Norm, NormCase, make_inputs
from harness.cases.suites import NORMS, Shape, parse_shapes
from harness.worker.serve import CPU_ENVIRONMENT, set_environment

if TYPE_CHECKING:
    from harness.cases.adapter import Implementation

UNSUPPORTED_EXIT = 3
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # or a tensor would be a part of a block of 2 MiB


def case_of(norm: Norm, shape: Shape, device: DeviceKind = "cuda") -> NormCase:
    """The case that is watched: bf16, with a weight, and in a LayerNorm with a bias."""
    rows, cols = shape
    return NormCase(norm, rows, cols, bias=norm == "layer", device=device)


def run_once(implementation: Implementation, cases: Sequence[NormCase]) -> int:
    """Run the first of the cases that is supported, and print its shape; UNSUPPORTED_EXIT and why where none is."""
    for case in cases:
        reason = implementation.unsupported(case)
        if reason is None:
            _call_twice(implementation, case)
            print(f"ran {case.rows}x{case.cols}", flush=True)
            return 0
        print(reason, flush=True)
    return UNSUPPORTED_EXIT


def _call_twice(implementation: Implementation, case: NormCase) -> None:
    from harness.verify.verifier import synchronise

    backward = implementation.prepare(_alone(case))
    backward()
    synchronise(case.device)
    backward()  # finds what the first call left behind
    synchronise(case.device)


def _alone(case: NormCase) -> Inputs:
    """Inputs without guards, each in memory of its own on the case's device."""
    inputs = make_inputs(replace(case, device="cpu"), seed=0)
    alone = {name: tensor.clone().to(case.device) for name, tensor in inputs.tensors().items()}
    return replace(inputs, case=case).with_tensors(alone)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.sanitizer.target", description="Call one implementation twice."
    )
    parser.add_argument("--impl", required=True)
    parser.add_argument("--norm", required=True, choices=NORMS)
    parser.add_argument("--shapes", required=True, help="ROWSxCOLS,...: the first that is supported", type=parse_shapes)
    parser.add_argument("--impl-file", action="append", default=[], type=Path, help="a file with an adapter")
    parser.add_argument("--device", default="cuda", choices=get_args(DeviceKind))
    options = parser.parse_args(arguments)
    # As in a worker, and before an adapter is imported, which may import torch.
    set_environment()
    os.environ.update(CPU_ENVIRONMENT if options.device == "cpu" else NO_CACHING)

    from harness.worker.discovery import discover

    implementations = {item.name: item for item in discover(options.impl_file)}
    if options.impl not in implementations:
        parser.error(f"--impl {options.impl}: not one of {', '.join(implementations)}")
    cases = [case_of(options.norm, shape, options.device) for shape in options.shapes]
    return run_once(implementations[options.impl], cases)


if __name__ == "__main__":
    sys.exit(main())
