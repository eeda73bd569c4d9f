"""A gate behind a norm by torch's operators: dy * silu(z) is rounded to bf16, in which a subnormal has few bits left.

Runs anywhere, with torch alone.
"""

import torch

torch.manual_seed(0)
ROWS, COLS = 8192, 1024
x, z = (torch.randn(ROWS, COLS).bfloat16() for _ in range(2))
xhat = x.double() * (x.double().square().mean(1, keepdim=True) + 1e-5).rsqrt()

for exponent in (0, -120, -126, -130):
    dy = torch.randn(ROWS, COLS).mul(2.0**exponent).bfloat16()
    exact = (dy.double() * torch.nn.functional.silu(z.double()) * xhat).sum(0)
    in_bf16 = (dy * torch.nn.functional.silu(z)).double().mul(xhat).sum(0)
    error, rounding = (of.double() - exact for of in (in_bf16.bfloat16(), exact.bfloat16()))
    off = float(error.norm() / rounding.norm())
    print(f"dy of 2^{exponent}: dweight is off by {off:.1f} roundings")
