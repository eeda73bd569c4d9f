"""apex's memory-efficient norms keep y and divide it by the weight: what that costs where a weight is small.

Needs an NVIDIA GPU and apex, built from source with its CUDA extensions (fused_layer_norm_cuda, fast_layer_norm).
"""

import torch  # isort: skip  # first: it loads the libraries that the extension links to
import fast_layer_norm  # isort: skip
import fused_layer_norm_cuda as fused  # isort: skip

torch.manual_seed(0)
ROWS, COLS, EPS = 8192, 1024, 1e-5
x = torch.randn(ROWS, COLS, device="cuda").add(0.25).bfloat16()
dy = torch.randn(ROWS, COLS, device="cuda").bfloat16()


def show(title: str, dweight: torch.Tensor, exact: torch.Tensor) -> None:
    """The relative rms error of dweight, beside that of rounding the exact one to bf16."""
    error, rounding = dweight.double() - exact, exact.bfloat16().double() - exact
    size = exact.square().mean().sqrt()
    found, least = (float(each.square().mean().sqrt() / size) for each in (error, rounding))
    print(f"  {title:45} dweight off by {found:.2e} (one rounding: {least:.2e}), NaN: {int(dweight.isnan().sum())}")


for name, small in (("no small weights", None), ("a weight in four is 0", 0.0), ("a weight in four is 1e-5", 1e-5)):
    weight = torch.randn(COLS, device="cuda").mul(0.1).add(1).bfloat16()
    bias = torch.zeros(COLS, device="cuda").bfloat16()
    if small is not None:
        weight[::4] = small
    print(name)

    xhat = x.double() * (x.double().square().mean(1, keepdim=True) + EPS).rsqrt()
    exact = (dy.double() * xhat).sum(0)
    y, rstd = fused.rms_forward_affine(x, (COLS,), weight, EPS)
    for kept, memory_efficient in ((x, False), (y, True)):
        _, dweight = fused.rms_backward_affine(dy, rstd, kept, (COLS,), weight, EPS, memory_efficient)
        show(f"fused RMSNorm, memory_efficient={memory_efficient}", dweight, exact)

    centred = x.double() - x.double().mean(1, keepdim=True)
    exact = (dy.double() * centred * (centred.square().mean(1, keepdim=True) + EPS).rsqrt()).sum(0)
    y, mean, rstd = fused.forward_affine(x, (COLS,), weight, bias, EPS)
    for kept, mu, memory_efficient in ((x, mean, False), (y, None, True)):
        _, dweight, _ = fused.backward_affine(dy, mu, rstd, kept, (COLS,), weight, bias, EPS, memory_efficient)
        show(f"fused LayerNorm, memory_efficient={memory_efficient}", dweight, exact)

    y, mean, rstd = fast_layer_norm.ln_fwd(x, weight, bias, EPS)
    dweight = fast_layer_norm.ln_bwd(dy, x, mean, rstd, weight, None, False)[1]
    show("fast LayerNorm, memory_efficient=False", dweight, exact)
    dweight = fast_layer_norm.ln_bwd(dy, y, None, rstd, weight, bias, True)[1]
    show("fast LayerNorm, memory_efficient=True", dweight, exact)
