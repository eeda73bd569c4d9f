"""Dropout of a branch whose gradient is NaN: a kernel that selects gives 0 where it dropped, torch's product gives NaN.

Runs anywhere: torch's operator and this project's own kernel. Without a GPU: TRITON_INTERPRET=1 python dropped_nan.py
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from impls.inhouse.backward import backward_around
from impls.inhouse.tensors import Around

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
x, dy, dres = (torch.randn(4, 64, device=device) for _ in range(3))
x[1, 5] = torch.nan
mask = (torch.rand(4, 64, device=device) >= 0.5).to(torch.uint8)
rstd = (x.square().mean(1) + 1e-5).rsqrt()

found = backward_around(dy, x, torch.ones(64, device=device), None, rstd, Around(dres=dres, mask=mask, p=0.5))
assert found.dbranch is not None
by_torch = torch.ops.aten.native_dropout_backward(found.dx, mask.bool(), 2.0)
for what, dbranch in (("torch", by_torch), ("triton-inhouse", found.dbranch)):
    kept, dropped = dbranch[1][mask[1] == 1], dbranch[1][mask[1] == 0]
    print(
        f"{what:15} of a NaN row: {int(kept.isnan().sum())} of {len(kept)} kept are NaN, "
        f"{int(dropped.isnan().sum())} of {len(dropped)} dropped"
    )
