"""torch.nn.functional.rms_norm on a CPU: where x is large, its backward loses the row correction.

The forward is a composition, and the gradient of its rsqrt holds rstd to the third power, which is zero in fp32 once
|x| is about 2^45 or more. Runs anywhere.
"""

import torch

torch.manual_seed(0)
ROWS, COLS, EPS = 64, 128, 1e-5
dy = torch.randn(ROWS, COLS)
for exponent in (0, 40, 45, 50, 55):
    x = (torch.randn(ROWS, COLS) * 2.0**exponent).requires_grad_()
    (dx,) = torch.autograd.grad(torch.nn.functional.rms_norm(x, (COLS,), None, EPS), [x], dy)

    x64, dy64 = x.detach().double(), dy.double()
    rstd = (x64.square().mean(1, keepdim=True) + EPS).rsqrt()
    xhat = x64 * rstd
    exact = rstd * (dy64 - xhat * (dy64 * xhat).mean(1, keepdim=True))
    error = (dx.double() - exact).square().sum().sqrt() / exact.square().sum().sqrt()
    print(f"x of 2^{exponent:<2}  dx off by {float(error):.1e}")
