"""Stand-ins for the libraries whose kernels are Triton: their functions by torch's own, in float64."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import torch
import torch.nn.functional as F

from tests.impls.peer_cases import forward_of, module, rounded

EPS = 1e-5  # of all cases
TUNED = SimpleNamespace(best_config=None)
DECORATED = SimpleNamespace(fn=TUNED)  # a kernel below another decorator


class Recorded(torch.autograd.Function):
    """An autograd function of a formula, with the gradients of its tensors in the order in which they were given."""

    @staticmethod
    def forward(ctx, formula, *arguments):
        with torch.enable_grad():
            ctx.leaves = [a.detach().double().requires_grad_() for a in arguments if isinstance(a, torch.Tensor)]
            leaves = iter(ctx.leaves)
            found = formula(*(next(leaves) if isinstance(a, torch.Tensor) else a for a in arguments))
        ctx.outputs, ctx.arguments = found if isinstance(found, tuple) else (found,), arguments
        outputs = tuple(output.detach().to(arguments[0].dtype) for output in ctx.outputs)
        return outputs if isinstance(found, tuple) else outputs[0]

    @staticmethod
    def backward(ctx, *gradients):
        TUNED.best_config = "num_warps: 8"
        upstream = [gradient.double() for gradient in gradients]
        found = iter(torch.autograd.grad(ctx.outputs, ctx.leaves, upstream, retain_graph=True))
        return tuple(next(found).to(a.dtype) if isinstance(a, torch.Tensor) else None for a in ctx.arguments)


def normalised(x, weight, bias, eps, rms, offset=0.0):
    centred = x if rms else x - x.mean(-1, keepdim=True)
    y = centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    y = y if weight is None else y * (weight + offset)
    return y if bias is None else y + bias


def libraries() -> list[ModuleType]:
    return [flash_attn(), *fla(), *mamba(), *flag_gems(), transformer_engine_rocm()]


def flash_attn() -> ModuleType:
    def layer_norm_fn(
        x, weight, bias, residual=None, x1=None, weight1=None, bias1=None, eps=1e-6, dropout_p=0.0, rowscale=None,
        prenorm=False, residual_in_fp32=False, zero_centered_weight=False, is_rms_norm=False,
        return_dropout_mask=False, out_dtype=None, out=None, residual_out=None,
    ):  # fmt: skip
        assert (x1, dropout_p, prenorm) == (None, 0.0, residual is not None)
        rest = (eps, is_rms_norm, float(zero_centered_weight))
        return around(x, weight, bias, residual, weight1, bias1, *rest)

    kernels = {"_layer_norm_bwd_kernel": DECORATED, "_layer_norm_fwd_kernel": DECORATED}
    return module("flash_attn.ops.triton.layer_norm", layer_norm_fn, **kernels)


def around(x, weight, bias, residual, weight1, bias1, eps, rms, offset=0.0):
    """The norms of flash-attention's function, of which Mamba has a copy."""
    assert weight is not None

    def formula(x, weight, bias, residual, x1, weight1, bias1):
        total = x if residual is None else x + residual
        rest = (eps, rms, offset)
        second = [] if weight1 is None else [normalised(total, weight1, bias1, *rest)]
        return (normalised(total, weight, bias, *rest), *second, *([] if residual is None else [total]))

    found = Recorded.apply(formula, x, weight, bias, residual, None, weight1, bias1)
    return found[0] if len(found) == 1 else found


def fla() -> list[ModuleType]:
    def layer_norm(x, weight, bias, residual=None, eps=1e-5, prenorm=False, residual_in_fp32=False, is_rms_norm=False):
        assert prenorm == (residual is not None)

        def formula(x, weight, bias, residual):
            total = x if residual is None else x + residual
            y = normalised(total, weight, bias, eps, is_rms_norm)
            return (y, total) if prenorm else y

        return Recorded.apply(formula, x, weight, bias, residual)

    def rms_norm(x, weight, bias, residual=None, eps=1e-5, prenorm=False, residual_in_fp32=False):
        return layer_norm(x, weight, bias, residual, eps, prenorm, residual_in_fp32, True)

    def layer_norm_gated(
        x, g, weight, bias, activation="swish", residual=None, prenorm=False, residual_in_fp32=False, eps=1e-6
    ):  # fmt: skip
        return gated(x, g, weight, bias, activation, residual, prenorm, eps, False)

    def rms_norm_gated(
        x, g, weight, bias, activation="swish", residual=None, prenorm=False, residual_in_fp32=False, eps=1e-6
    ):  # fmt: skip
        return gated(x, g, weight, bias, activation, residual, prenorm, eps, True)

    def gated(x, g, weight, bias, activation, residual, prenorm, eps, rms):
        assert (activation, prenorm) == ("swish", residual is not None)

        def formula(x, g, weight, bias, activation, residual):
            total = x if residual is None else x + residual
            y = normalised(total, weight, bias, eps, rms) * F.silu(g)
            return (y, total) if prenorm else y

        return Recorded.apply(formula, x, g, weight, bias, activation, residual)

    idle = SimpleNamespace(best_config=None)  # of another width
    kernels = {"layer_norm_bwd_kernel": DECORATED, "layer_norm_bwd_kernel_row": idle}
    gated_kernel = {"layer_norm_gated_bwd_kernel": DECORATED}
    return [
        module("fla.modules.layernorm", layer_norm, rms_norm, **kernels),
        module("fla.modules.fused_norm_gate", layer_norm_gated, rms_norm_gated, **gated_kernel),
        module("fla.modules.layernorm_gated", *gated_in_either_order()),
    ]


def gated_in_either_order():
    """The functions of Mamba, of which flash-linear-attention has a copy."""

    def layernorm_fn(x, weight, bias, z=None, eps=1e-6, group_size=None, norm_before_gate=True, is_rms_norm=False):
        assert weight is not None

        def formula(x, weight, bias, z):
            if z is None:
                return normalised(x, weight, bias, eps, is_rms_norm)
            if norm_before_gate:
                return normalised(x, weight, bias, eps, is_rms_norm) * F.silu(z)
            return normalised(x * F.silu(z), weight, bias, eps, is_rms_norm)

        return Recorded.apply(formula, x, weight, bias, z)

    def rmsnorm_fn(x, weight, bias, z=None, eps=1e-6, group_size=None, norm_before_gate=True):
        return layernorm_fn(x, weight, bias, z, eps, group_size, norm_before_gate, True)

    return layernorm_fn, rmsnorm_fn


def mamba() -> list[ModuleType]:
    def layer_norm_fn(
        x, weight, bias, residual=None, x1=None, weight1=None, bias1=None, eps=1e-6, dropout_p=0.0, rowscale=None,
        prenorm=False, residual_in_fp32=False, is_rms_norm=False, return_dropout_mask=False,
    ):  # fmt: skip
        assert (x1, dropout_p, prenorm) == (None, 0.0, residual is not None)
        return around(x, weight, bias, residual, weight1, bias1, eps, is_rms_norm)

    return [
        module("mamba_ssm.ops.triton.layer_norm", layer_norm_fn, _layer_norm_bwd_kernel=DECORATED),
        module("mamba_ssm.ops.triton.layernorm_gated", *gated_in_either_order()),
    ]


def transformer_engine_rocm() -> ModuleType:
    def te_rmsnorm_fwd_triton(
        input, weight, eps, ln_out, quantizer, otype, sm_margin, zero_centered_gamma, autotune=True  # noqa: A002
    ):  # fmt: skip
        assert (ln_out, quantizer, otype, sm_margin, autotune) == (None, None, input.dtype, 0, False)
        return input, None, forward_of("rms", input, eps)[2]

    def te_layernorm_fwd_triton(
        input, weight, bias, eps, ln_out, quantizer, otype, sm_margin, zero_centered_gamma, autotune=True  # noqa: A002
    ):  # fmt: skip
        assert (ln_out, quantizer, otype, sm_margin, autotune) == (None, None, input.dtype, 0, False)
        return input, *forward_of("layer", input, eps)[1:]

    def te_rmsnorm_bwd_triton(dz, x, rsigma, gamma, sm_margin, zero_centered_gamma, autotune=True):
        assert (sm_margin, autotune) == (0, False)
        return rounded("rms", dz, x, None, rsigma, gamma, float(zero_centered_gamma))[:2]

    def te_layernorm_bwd_triton(dz, x, mu, rsigma, gamma, sm_margin, zero_centered_gamma):
        assert sm_margin == 0
        return rounded("layer", dz, x, mu, rsigma, gamma, float(zero_centered_gamma))

    functions = (te_rmsnorm_fwd_triton, te_layernorm_fwd_triton, te_rmsnorm_bwd_triton, te_layernorm_bwd_triton)
    return module("transformer_engine.pytorch.triton_kernels.norms_common", *functions)


def flag_gems() -> list[ModuleType]:
    def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):  # noqa: A002
        return forward_of("layer", input, eps)

    def layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight=None, bias=None, output_mask=None):  # noqa: A002
        assert output_mask == [True, weight is not None, bias is not None]
        TUNED.best_config = "num_warps: 8"
        return rounded("layer", grad_out, input, mean, rstd, weight, bias=bias is not None)

    def rms_norm_forward(x, normalized_shape, weight, eps=1e-5):
        return x, forward_of("rms", x, eps)[2]

    def rms_norm_backward(dy, x, inv_rms, normalized_shape, weight, eps=1e-5):
        assert (list(normalized_shape), eps) == ([x.shape[1]], EPS)
        return rounded("rms", dy, x, None, inv_rms, weight)[:2]

    layer = layer_norm, layer_norm_backward
    return [
        module("flag_gems.ops.layernorm", *layer, layer_norm_backward_kernel=DECORATED),
        module("flag_gems.ops.rms_norm", rms_norm_forward, rms_norm_backward),
    ]
