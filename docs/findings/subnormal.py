"""Norm backwards whose dy is subnormal: which keep it, and which flush it to zero.

Needs an NVIDIA GPU; tries those of apex (fused_layer_norm_cuda), cuDNN (nvidia-cudnn-frontend) and Liger that are here.
"""

import torch

torch.manual_seed(0)
ROWS, COLS, EPS = 8192, 1024, 1e-5
x = torch.randn(ROWS, COLS, device="cuda").bfloat16()
dy = (torch.randn(ROWS, COLS, device="cuda") * 2.0**-129).bfloat16()  # the smallest normal number is 2^-126
weight = torch.randn(COLS, device="cuda").mul(0.1).add(1).bfloat16()
xhat = x.double() * (x.double().square().mean(1, keepdim=True) + EPS).rsqrt()
wdy = dy.double() * weight.double()
exact_dx = (wdy - xhat * (wdy * xhat).mean(1, keepdim=True)) * (x.double().square().mean(1, keepdim=True) + EPS).rsqrt()
exact_dweight = (dy.double() * xhat).sum(0)


def show(name: str, dx: torch.Tensor, dweight: torch.Tensor) -> None:
    """How much of each gradient is zero, and the relative rms error beside that of one rounding to bf16."""
    for which, found, exact in (("dx", dx, exact_dx), ("dweight", dweight, exact_dweight)):
        size = exact.square().sum().sqrt()
        error = float((found.double() - exact).square().sum().sqrt() / size)
        rounding = float((exact.bfloat16().double() - exact).square().sum().sqrt() / size)
        zero, least = (float((of == 0).double().mean()) for of in (found, exact.bfloat16()))
        off = f"off by {error:.2e} (one rounding: {rounding:.2e})"
        print(f"{name:6} {which:8} {off}, zero: {zero:.0%} (exact: {least:.0%})")


try:
    import fused_layer_norm_cuda as apex

    _, rstd = apex.rms_forward_affine(x, (COLS,), weight, EPS)
    show("apex", *apex.rms_backward_affine(dy, rstd, x, (COLS,), weight, EPS, False))
except ImportError as error:
    print("apex:", error)
try:
    import cudnn.ops.norm.rmsnorm  # noqa: F401  # registers torch.ops.cudnn

    x4, dy4, scale = x.view(ROWS, COLS, 1, 1), dy.view(ROWS, COLS, 1, 1), weight.view(1, -1, 1, 1)
    _, rstd = torch.ops.cudnn.rmsnorm(x4, scale, EPS)
    dx, dweight, _ = torch.ops.cudnn.rmsnorm_bwd(dy4, x4, scale, rstd, False)
    show("cuDNN", dx.view(ROWS, COLS), dweight.view(-1))
except ImportError as error:
    print("cuDNN:", error)
try:
    from liger_kernel.ops.rms_norm import rms_norm_backward, rms_norm_forward

    for casting in ("llama", "gemma"):
        _, kept, rstd, block, warps, mode = rms_norm_forward(x, weight, EPS, 0.0, casting, None)
        grads = rms_norm_backward(dy.clone(), kept, weight, rstd, 0.0, mode, block, warps, True, None)
        show(casting, *grads)
except ImportError as error:
    print("Liger:", error)
_, rstd = torch.ops.aten._fused_rms_norm(x, [COLS], weight, EPS)
show("torch", *torch.ops.aten._fused_rms_norm_backward(dy, x, [COLS], rstd, weight, [True, True]))
