"""What is computed: cases, their inputs and gradients. Imports nothing of the project but `harness.errors`.

An adapter imports from here alone.
"""

from harness.cases.adapter import RUN_FOLDER
from harness.cases.case import ITEM_BYTES, DeviceKind, Dtype, Norm, NormCase, torch_dtype
from harness.cases.drawing import case_seed, make_inputs, row_chunks, statistics
from harness.cases.inputs import Chosen, Grads, Inputs, contiguous_rows
from harness.errors import UnsupportedError

__all__ = [
    "ITEM_BYTES",
    "RUN_FOLDER",
    "Chosen",
    "DeviceKind",
    "Dtype",
    "Grads",
    "Inputs",
    "Norm",
    "NormCase",
    "UnsupportedError",
    "case_seed",
    "contiguous_rows",
    "make_inputs",
    "row_chunks",
    "statistics",
    "torch_dtype",
]
