"""Fast-LLM keeps y and not x: xhat is y over the weight, and lost where the weight is 0, tiny, or hidden by a bias.

Needs Fast-LLM on the path. Without a GPU: TRITON_INTERPRET=1 python fast_llm_keeps_y.py
"""

import torch
from fast_llm.functional.triton.normalization import triton_normalization_backward, triton_normalization_forward

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, COLS, EPS = (8192, 1024, 1e-5) if device == "cuda" else (64, 256, 1e-5)
x, dy = (torch.randn(ROWS, COLS, device=device, dtype=torch.float32) for _ in range(2))


def off(found: torch.Tensor, exact: torch.Tensor) -> str:
    """The error in rms, relative to that of the exact gradient."""
    return f"{float((found.double() - exact).norm() / exact.norm()):.2e}"


def show(what: str, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Both gradients of one norm beside those in float64."""
    parameters = [each.clone().requires_grad_() for each in (weight, bias) if each is not None]
    for each in parameters:
        each.grad_buffer, each.param_grad_is_zero = torch.zeros_like(each), True
    given = parameters if bias is not None else [*parameters, None]
    _, context = triton_normalization_forward(x, *given, EPS, True, False)
    dx = triton_normalization_backward(dy, context)
    rows, factor = x.double().requires_grad_(), weight.double().requires_grad_()
    centred = rows if bias is None else rows - rows.mean(1, keepdim=True)
    y = centred * (centred.square().mean(1, keepdim=True) + EPS).rsqrt() * factor
    exact_dx, exact_dweight = torch.autograd.grad(y, (rows, factor), dy.double())
    print(f"{what:44} dx off by {off(dx, exact_dx)}, dweight by {off(parameters[0].grad_buffer, exact_dweight)}")


weight, bias = torch.randn(COLS, device=device).mul(0.1).add(1), torch.full((COLS,), 100.0, device=device)
zero, tiny = weight.clone(), weight.clone()
zero[::4], tiny[::4] = 0.0, 1e-6
show("RMSNorm", weight, None)
show("RMSNorm, a weight in four is 0", zero, None)
show("RMSNorm, a weight in four is 1e-6", tiny, None)
show("LayerNorm, the bias is 0", weight, torch.zeros_like(bias))
show("LayerNorm, the bias is 100", weight, bias)
show("LayerNorm, a weight in four is 0", zero, torch.zeros_like(bias))
