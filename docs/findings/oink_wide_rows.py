"""Oink's RMSNorm of 16384 columns: its forward cannot be compiled.

Needs an NVIDIA GPU, and kernelagent_oink with nvidia-cutlass-dsl.
"""

import torch
from kernelagent_oink.blackwell.rmsnorm import rmsnorm_backward, rmsnorm_forward

torch.manual_seed(0)
for cols in (8192, 16384):
    x, dy = (torch.randn(512, cols, device="cuda").bfloat16() for _ in range(2))
    weight = torch.randn(cols, device="cuda").mul(0.1).add(1).bfloat16()
    try:
        _, rstd, _ = rmsnorm_forward(x, weight, eps=1e-5, store_rstd=True)
        rmsnorm_backward(x, weight, dy, rstd)
        torch.cuda.synchronize()
        print(f"{cols} columns: done")
    except Exception as error:
        print(f"{cols} columns: {type(error).__name__}: {error}")
