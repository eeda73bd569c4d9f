"""Liger's LayerNorm in CuTe DSL: where the columns do not fill its tile, those beyond the row count in the variance.

The forward holds zeros there, takes (0 - mean)^2 of them into the variance, and saves its rstd. Runs anywhere: the
backward in float64 with such an rstd; then Liger's own, where it, cutlass and a GPU of SM 9.0 or above are.
"""

import torch

torch.manual_seed(0)
ROWS, EPS = 2048, 1e-5
device = "cuda" if torch.cuda.is_available() else "cpu"


def tile_columns(cols: int) -> int:
    """The columns of the tile that a row of 16-bit numbers is held in: 16 bytes a thread, as often as it takes."""
    threads = next(threads for most, threads in ((3072, 32), (6144, 64), (16384, 128)) if cols <= most)
    return -(-cols // (8 * threads)) * 8 * threads


def backward(x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, beyond: int) -> torch.Tensor:
    """The input gradient in float64, with `beyond` columns of zeros in the variance."""
    x, dy, weight = (of.double() for of in (x, dy, weight))
    mean = x.mean(1, keepdim=True)
    variance = ((x - mean).square().sum(1, keepdim=True) + beyond * mean.square()) / x.shape[1]
    rstd = (variance + EPS).rsqrt()
    xhat, wdy = (x - mean) * rstd, dy * weight
    return rstd * (wdy - wdy.mean(1, keepdim=True) - xhat * (wdy * xhat).mean(1, keepdim=True))


def show(what: str, dx: torch.Tensor, exact: torch.Tensor) -> None:
    """How far a dx in bf16 is off, in units of one rounding of the exact one."""
    error, rounding = (of.double() - exact for of in (dx, exact.bfloat16()))
    print(f"{what:52} dx is off by {float(error.norm() / rounding.norm()):.2f} roundings")


for cols, centre in ((768, 0.25), (640, 0.25), (896, 0.25), (2880, 0.25), (640, 4.0), (384, 0.25)):
    x = torch.randn(ROWS, cols, device=device).add(centre).bfloat16()
    dy = torch.randn(ROWS, cols, device=device).bfloat16()
    weight = torch.randn(cols, device=device).mul(0.1).add(1).bfloat16()
    exact, beyond = backward(x, dy, weight, 0), tile_columns(cols) - cols
    about = f"{cols} columns, a mean of {centre}"
    show(f"{about}, {beyond} more in the variance", backward(x, dy, weight, beyond).bfloat16(), exact)
    try:
        from liger_kernel.functional import layer_norm  # pyright: ignore[reportMissingImports]

        x.requires_grad_()
        layer_norm(x, weight, torch.zeros_like(weight), EPS, impl="nvidia-cutedsl").backward(dy)
        assert x.grad is not None
        show(f"{about}, Liger", x.grad, exact)
    except (ImportError, RuntimeError, ValueError) as error:  # the others where nothing runs its kernels
        print("Liger:", error)
