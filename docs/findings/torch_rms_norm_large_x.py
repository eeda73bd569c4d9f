"""torch.nn.functional.rms_norm on a CPU: where x is large, its backward loses the row correction.

The forward is a composition, and the gradient of its rsqrt holds rstd to the third power, which is zero in fp32 once
|x| is about 2^45 or more. Runs anywhere.
"""

import torch

torch.manual_seed(0)
dy = torch.randn(64, 128)
for exponent in (0, 40, 45, 50, 55):
    x = (torch.randn(64, 128) * 2.0**exponent).requires_grad_()
    x64 = x.detach().double().requires_grad_()
    (dx,) = torch.autograd.grad(torch.nn.functional.rms_norm(x, (128,)), x, dy)
    (exact,) = torch.autograd.grad(torch.nn.functional.rms_norm(x64, (128,)), x64, dy.double())
    print(f"x of 2^{exponent:<2}  dx off by {float((dx - exact).norm() / exact.norm()):.1e}")
