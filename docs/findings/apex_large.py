"""apex's fused RMSNorm backward on more than 2^31 elements.

Needs an NVIDIA GPU with 40 GB free, and apex, built from source with its CUDA extensions (fused_layer_norm_cuda).
"""

import torch  # isort: skip  # first: it loads the libraries that the extension links to
import fused_layer_norm_cuda as fused  # isort: skip

torch.manual_seed(0)
COLS, EPS = 32768, 1e-5
weight = torch.randn(COLS, device="cuda").mul(0.1).add(1).bfloat16()
for rows in (65535, 65536, 65537):  # 2^31 elements are 65536 rows
    x = torch.randn(rows, COLS, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(rows, COLS, device="cuda", dtype=torch.bfloat16)
    _, rstd = fused.rms_forward_affine(x, (COLS,), weight, EPS)
    dx, dweight = fused.rms_backward_affine(dy, rstd, x, (COLS,), weight, EPS, False)

    exact_dweight, worst_dx = torch.zeros(COLS, dtype=torch.float64, device="cuda"), 0.0
    for start in range(0, rows, 1024):
        part = slice(start, start + 1024)
        x64, dy64 = x[part].double(), dy[part].double()
        r64 = (x64.square().mean(1, keepdim=True) + EPS).rsqrt()
        xhat, wdy = x64 * r64, dy64 * weight.double()
        exact = r64 * (wdy - xhat * (wdy * xhat).mean(1, keepdim=True))
        error = (dx[part].double() - exact).square().mean(1).sqrt() / exact.square().mean(1).sqrt()
        worst_dx = max(worst_dx, float(error.nan_to_num(nan=float("inf")).max()))
        exact_dweight += (dy64 * xhat).sum(0)
    off = (dweight.double() - exact_dweight).square().mean().sqrt() / exact_dweight.square().mean().sqrt()
    print(
        f"{rows} rows, {rows * COLS} elements: dweight off by {float(off):.2e}, the worst row of dx by {worst_dx:.2e}"
    )
    del x, dy, dx
