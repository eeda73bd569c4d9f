"""apex's memory-efficient norms keep y and divide it by the weight: what that costs where y does not tell xhat.

Needs an NVIDIA GPU and apex, built from source with its CUDA extensions (fused_layer_norm_cuda, fast_layer_norm).
"""

import torch  # isort: skip  # first: it loads the libraries that the extension links to
import fast_layer_norm  # isort: skip
import fused_layer_norm_cuda as fused  # isort: skip

torch.manual_seed(0)
ROWS, COLS, EPS = 8192, 1024, 1e-5
noise = torch.randn(ROWS, COLS, device="cuda")
usual_x = torch.randn(ROWS, COLS, device="cuda").add(0.25)
usual_weight = torch.randn(COLS, device="cuda").mul(0.1).add(1)
CASES = {  # x, dy, a weight in four, bias
    "as usual": (usual_x, noise, None, 0.0),
    "a weight in four is 0": (usual_x, noise, 0.0, 0.0),
    "a weight in four is 1e-6": (usual_x, noise, 1e-6, 0.0),
    "the bias is 100": (usual_x, noise, None, 100.0),
    "x is 2^-60 times as large, the bias 0.1": (usual_x * 2.0**-60, noise, None, 0.1),
    "dy is almost x": (usual_x, usual_x / usual_weight + noise / 64, None, 0.0),
}


def exact(x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, layer: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of x and weight in fp64."""
    centred = x.double() - (x.double().mean(1, keepdim=True) if layer else 0)
    rstd = (centred.square().mean(1, keepdim=True) + EPS).rsqrt()
    xhat, wdy = centred * rstd, dy.double() * weight.double()
    dx = wdy - xhat * (wdy * xhat).mean(1, keepdim=True) - (wdy.mean(1, keepdim=True) if layer else 0)
    return dx * rstd, (dy.double() * xhat).sum(0)


def show(title: str, found: tuple[torch.Tensor, torch.Tensor], wanted: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The relative rms error of dx and dweight, beside that of rounding the exact ones to bf16."""
    words = []
    for name, gradient, true in zip(("dx", "dweight"), found, wanted, strict=True):
        size = true.square().mean().sqrt()
        errors = (gradient.double() - true, true.bfloat16().double() - true)
        off, least = (float(error.square().mean().sqrt() / size) for error in errors)
        nans = int(gradient.isnan().sum())
        words.append(f"{name} off by {off:.2e} (one rounding: {least:.2e})" + (f", NaN: {nans}" if nans else ""))
    print(f"  {title}  {'; '.join(words)}")


for name, (wide_x, wide_dy, small, offset) in CASES.items():
    x, dy = wide_x.bfloat16(), wide_dy.bfloat16()
    weight, bias = usual_weight.bfloat16(), torch.full((COLS,), offset, device="cuda").bfloat16()
    if small is not None:
        weight[::4] = small
    print(name)

    wanted = exact(x, dy, weight, layer=False)
    y, rstd = fused.rms_forward_affine(x, (COLS,), weight, EPS)
    for kept, efficient in ((x, False), (y, True)):
        dx, dweight = fused.rms_backward_affine(dy, rstd, kept, (COLS,), weight, EPS, efficient)
        show(f"fused RMSNorm,   keeps {'y' if efficient else 'x'}:", (dx, dweight), wanted)

    wanted = exact(x, dy, weight, layer=True)
    y, mean, rstd = fused.forward_affine(x, (COLS,), weight, bias, EPS)
    for kept, mu, efficient in ((x, mean, False), (y, None, True)):
        dx, dweight, _ = fused.backward_affine(dy, mu, rstd, kept, (COLS,), weight, bias, EPS, efficient)
        show(f"fused LayerNorm, keeps {'y' if efficient else 'x'}:", (dx, dweight), wanted)

    y, mean, rstd = fast_layer_norm.ln_fwd(x, weight, bias, EPS)
    for kept, mu, shift, efficient in ((x, mean, None, False), (y, None, bias, True)):
        dx, dweight = fast_layer_norm.ln_bwd(dy, kept, mu, rstd, weight, shift, efficient)[:2]
        show(f"fast LayerNorm,  keeps {'y' if efficient else 'x'}:", (dx, dweight), wanted)
