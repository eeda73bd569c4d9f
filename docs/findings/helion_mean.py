"""Helion's example of an RMSNorm backward: rows whose columns are no power of two are averaged over the next one.

Runs anywhere: the backward written out in float64, with both divisors; then Helion's own, where it and a checkout of
its examples are on the path. Without a GPU: TRITON_INTERPRET=1 python helion_mean.py
"""

import torch

torch.manual_seed(0)
ROWS, EPS = 2048, 1e-5
device = "cuda" if torch.cuda.is_available() else "cpu"


def show(what: str, dx: torch.Tensor, exact: torch.Tensor) -> None:
    """How far a dx in bf16 is off, all of it and its worst row, in units of one rounding of the exact one."""
    error, rounding = (of.double() - exact for of in (dx, exact.bfloat16()))
    worst = (error.norm(dim=1) / rounding.norm(dim=1)).max()
    print(f"{what:36} dx is off by {float(error.norm() / rounding.norm()):.2f} roundings, a row by {float(worst):.2f}")


for cols in (1536, 2048, 5376, 7168):
    x, dy = (torch.randn(ROWS, cols, device=device).bfloat16() for _ in range(2))
    weight = torch.randn(cols, device=device).mul(0.1).add(1).bfloat16()
    rstd = (x.double().square().mean(1, keepdim=True) + EPS).rsqrt()
    xhat, wdy = x.double() * rstd, dy.double() * weight.double()
    dx = {n: rstd * (wdy - xhat * (wdy * xhat).sum(1, keepdim=True) / n) for n in (cols, 1 << (cols - 1).bit_length())}
    for divisor, of_divisor in dx.items():
        show(f"{cols} columns, a sum over {divisor}", of_divisor.bfloat16(), dx[cols])
    try:
        import helion
        from examples.rms_norm import rms_norm_bwd  # pyright: ignore[reportMissingImports]

        warning = [helion.exc.TensorOperationInWrapper]
        backward = helion.kernel(rms_norm_bwd.fn, autotune_effort="none", ignore_warnings=warning)
        show(f"{cols} columns, Helion", backward(dy, x, weight, rstd.float())[0], dx[cols])
    except (ImportError, RuntimeError) as error:  # it raises the second where nothing runs its kernels
        print("Helion:", error)
