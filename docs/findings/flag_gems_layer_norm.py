"""FlagGems' LayerNorm of a bf16 x: its forward keeps rstd in bf16, and all of a row's dx is off by that rounding.

Runs anywhere: the backward written out in float64, from statistics that are rounded. FlagGems' own where it is here.
"""

import torch

torch.manual_seed(0)
ROWS, COLS, EPS = 8192, 1024, 1e-5
device = "cuda" if torch.cuda.is_available() else "cpu"
x, dy = (torch.randn(ROWS, COLS, device=device).bfloat16() for _ in range(2))
weight = torch.randn(COLS, device=device).mul(0.1).add(1).bfloat16()
mean = x.double().mean(1, keepdim=True)
rstd = (x.double().var(1, correction=0, keepdim=True) + EPS).rsqrt()


def backward(mean: torch.Tensor, rstd: torch.Tensor) -> torch.Tensor:
    """The gradient dx from these statistics, in float64."""
    xhat, wdy = (x.double() - mean.double()) * rstd.double(), dy.double() * weight.double()
    return rstd.double() * (wdy - wdy.mean(1, keepdim=True) - xhat * (wdy * xhat).mean(1, keepdim=True))


def show(what: str, dx: torch.Tensor) -> None:
    """How far the worst row of a dx in bf16 is off, in units of one rounding of the exact row."""
    exact = backward(mean, rstd)
    error, rounding = ((of.double() - exact).square().mean(1).sqrt() for of in (dx, exact.bfloat16()))
    print(f"{what:32} the worst row of dx is off by {float((error / rounding).max()):.2f} roundings")


show("mean and rstd in fp32", backward(mean.float(), rstd.float()).bfloat16())
show("mean in bf16, rstd in fp32", backward(mean.bfloat16(), rstd.float()).bfloat16())
show("mean in fp32, rstd in bf16", backward(mean.float(), rstd.bfloat16()).bfloat16())
try:
    from flag_gems.ops.layernorm import layer_norm, layer_norm_backward

    given = (weight, torch.zeros_like(weight))
    _, *saved = layer_norm(x, [COLS], *given, EPS)
    for dtype, (own_mean, own_rstd) in ((saved[1].dtype, saved), (torch.float32, (mean.float(), rstd.float()))):
        dx, *_ = layer_norm_backward(dy, x, [COLS], own_mean.view(-1), own_rstd.view(-1), *given, [True] * 3)
        show(f"FlagGems, rstd in {dtype}", dx)
except (ImportError, RuntimeError) as error:  # it raises the second where there is no GPU
    print("FlagGems:", error)
