"""Dropout of a branch whose gradient is NaN: a kernel that selects gives 0 where it dropped, a product gives NaN.

Needs a GPU and flash-attention's extension dropout_layer_norm for flash-attention's line; the others run anywhere.
Without a GPU: TRITON_INTERPRET=1 python dropped_nan.py
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from harness.cases import NormCase, make_inputs
from harness.cases.variants import with_features
from impls import torch_eager, triton_inhouse
from impls.cuda_peers import flash_attn_cuda

device = "cuda" if torch.cuda.is_available() else "cpu"
plain = NormCase(norm="rms", rows=4, cols=1024, dtype="bf16", device=device)
inputs = make_inputs(with_features(plain, ("dropout", "residual")), seed=0)
inputs.x[1, 5] = torch.nan
assert inputs.mask is not None
for library in (torch_eager, triton_inhouse, flash_attn_cuda):
    if library is flash_attn_cuda and (device == "cpu" or library.missing()):
        print(f"{library.name} is not here")
        continue
    row = library.prepare(inputs)().extra["dbranch"][1]
    kept, dropped = row[inputs.mask[1] == 1], row[inputs.mask[1] == 0]
    print(
        f"{library.name:15} of a NaN row: {int(kept.isnan().sum())} of {len(kept)} kept are NaN, "
        f"{int(dropped.isnan().sum())} of {len(dropped)} dropped"
    )
