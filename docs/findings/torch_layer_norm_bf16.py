"""torch's CPU LayerNorm of a bf16 x: dweight is summed in bf16, whatever the dtype of the weight. Needs torch alone."""

import torch

torch.manual_seed(0)
for rows, dtype in ((64, torch.bfloat16), (64, torch.float32), (4096, torch.bfloat16), (4096, torch.float32)):
    x, dy = (torch.randn(rows, 1024).bfloat16() for _ in range(2))
    norm = torch.nn.LayerNorm(1024, dtype=dtype)
    norm(x).backward(dy)
    exact = (dy.double() * torch.nn.functional.layer_norm(x.double(), (1024,))).sum(0)
    off = float((norm.weight.grad.double() - exact).norm() / exact.norm())
    print(f"{rows:4} rows, weight in {dtype}: dweight off by {off:.1e}")
