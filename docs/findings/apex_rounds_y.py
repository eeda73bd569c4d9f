"""The y that apex's fused norms keep when memory-efficient is rounded three times: where gradients cancel, that shows.

Runs anywhere: y is rounded as the forward of apex rounds it, and all else is in float64.
"""

import torch

torch.manual_seed(0)
ROWS, EPS = 8192, 1e-5


def roundings(cols: int, layer: bool, alike: bool) -> str:
    """The errors of dx and dweight in bf16 from a rounded y, in units of that of rounding the exact ones to bf16."""
    x, dy = (torch.randn(ROWS, cols).add(shift).bfloat16().double() for shift in (0.25, 0.0))
    dy = dy[:1].expand_as(dy) if alike else dy
    weight = torch.randn(cols).mul(0.1).add(1).bfloat16().double()
    bias = torch.randn(cols).mul(0.1).bfloat16().double() * layer
    centred = x - x.mean(1, keepdim=True) * layer
    rstd = (centred.square().mean(1, keepdim=True) + EPS).rsqrt()

    def gradients(xhat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wdy = dy * weight
        dx = rstd * (wdy - wdy.mean(1, keepdim=True) * layer - xhat * (wdy * xhat).mean(1, keepdim=True))
        return dx, (dy * xhat).sum(0)

    y = (centred * rstd).bfloat16() * weight.bfloat16() + bias.bfloat16()  # xhat, its product, and the sum
    pairs = zip(gradients((y.double() - bias) / weight), gradients(centred * rstd), strict=True)
    dx, dweight = (float((of.bfloat16() - to).norm() / (to.bfloat16() - to).norm()) for of, to in pairs)
    return f"dx off by {dx:.2f} roundings, dweight by {dweight:.2f}"


print("LayerNorm                        ", roundings(1024, layer=True, alike=False))
print("LayerNorm, dy alike in every row ", roundings(1024, layer=True, alike=True))
print("RMSNorm                          ", roundings(1024, layer=False, alike=False))
print("RMSNorm, one column              ", roundings(1, layer=False, alike=False))
