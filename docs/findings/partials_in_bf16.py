"""Of a subnormal dy little is left in partial sums of dweight that are kept in bf16, as Fast-LLM keeps them.

Here 256 programs sum 32 rows each; xhat is y in bf16 over the weight. Needs torch alone.
"""

import torch

torch.manual_seed(0)
x, weight = torch.randn(8192, 1024).double(), torch.randn(1024).mul(0.1).add(1).double()
xhat = torch.nn.functional.rms_norm(x, (1024,), eps=1e-5)
kept = (xhat * weight).bfloat16().double() / weight
for scale, dtype in ((1.0, torch.float32), (1.0, torch.bfloat16), (1.5e-39, torch.float32), (1.5e-39, torch.bfloat16)):
    dy = torch.randn(8192, 1024, dtype=torch.float64).mul(scale).bfloat16().double()
    exact, partials = (dy * xhat).sum(0), (dy * kept).view(-1, 32, 1024).sum(1).to(dtype)
    error, rounding = (of.bfloat16().double() - exact for of in (partials.double().sum(0), exact))
    off = float(error.norm() / rounding.norm())
    print(f"dy of about {scale:g}, partial sums in {dtype}: dweight is off by {off:.2f} roundings")
