"""Of a subnormal dy little is left in partial sums of dweight that are kept in bf16, as Fast-LLM keeps them.

Its programs, two a multiprocessor, sum tiles of 8 rows in turn; xhat is y in bf16 over the weight. Needs torch alone.
"""

import torch

torch.manual_seed(0)
ROWS, COLS, PROGRAMS = 8192, 1024, 264  # of an H200
x = torch.randn(ROWS, COLS, dtype=torch.float64).bfloat16().double()
weight = torch.randn(COLS, dtype=torch.float64).mul(0.1).add(1).bfloat16().double()
xhat = x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt()
kept = (xhat * weight).bfloat16().double() / weight
program = torch.arange(ROWS) // 8 % PROGRAMS

for scale in (1.0, 1.5e-39):
    dy = torch.randn(ROWS, COLS, dtype=torch.float64).mul(scale).bfloat16().double()
    exact = (dy * xhat).sum(0)
    rounding = (exact.bfloat16().double() - exact).square().mean().sqrt()
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        partials = torch.zeros(PROGRAMS, COLS, dtype=torch.float64).index_add_(0, program, dy * kept).to(dtype)
        dweight = partials.double().sum(0).bfloat16().double()
        off = (dweight - exact).square().mean().sqrt() / rounding
        print(f"dy of about {scale:g}, partial sums in {name}: dweight is off by {float(off):.2f} roundings")
