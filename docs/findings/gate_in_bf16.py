"""A gate behind a norm by torch's operators: dy * silu(z) is rounded to bf16, in which a subnormal has few bits left.

Runs anywhere, with torch alone.
"""

import torch

torch.manual_seed(0)
x, z = (torch.randn(8192, 1024).bfloat16() for _ in range(2))
xhat = torch.nn.functional.rms_norm(x.double(), (1024,), eps=1e-5)
for exponent in (0, -120, -126, -130):
    dy = torch.randn(8192, 1024).mul(2.0**exponent).bfloat16()
    exact = (dy.double() * torch.nn.functional.silu(z.double()) * xhat).sum(0)
    in_bf16 = (dy * torch.nn.functional.silu(z)).double().mul(xhat).sum(0)
    error, rounding = (of.bfloat16().double() - exact for of in (in_bf16, exact))
    print(f"dy of 2^{exponent}: dweight is off by {float(error.norm() / rounding.norm()):.1f} roundings")
