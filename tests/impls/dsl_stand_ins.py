"""Stand-ins for the libraries whose kernels are Python for other compilers than Triton."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

from tests.impls.peer_cases import forward_of, module, rounded
from tests.impls.triton_stand_ins import Recorded, normalised


def libraries() -> list[ModuleType]:
    return [*helion(), *oink(), *tilegym(), quack_fused_sum()]


@dataclass
class Settings:
    """Helion's, of which one is changed."""

    autotune_effort: str = "full"


@dataclass
class Kernel:
    """A kernel of Helion's."""

    fn: object
    settings: Settings

    def __call__(self, *arguments):
        return self.fn(*arguments)

    def bind(self, arguments):
        assert self.settings.autotune_effort == "full"
        return SimpleNamespace(config="Config(block_sizes=[32])")


def helion() -> list[ModuleType]:
    def rms_norm_fwd(x, weight, eps=1e-5):
        return x, forward_of("rms", x, eps)[2].reshape(-1, 1)

    def rms_norm_bwd(grad_out, x, weight, rsqrt):
        assert rsqrt.shape == (len(x), 1)
        return rounded("rms", grad_out, x, None, rsqrt, weight)[:2]

    def layer_norm_fwd(x, normalized_shape, weight, bias=None, eps=1e-5):
        assert normalized_shape == [x.shape[1]]
        return x, *forward_of("layer", x, eps)[1:]

    def layer_norm_bwd(grad_out, x, mean, rstd, weight, compute_bias_grad=True):
        return rounded("layer", grad_out, x, mean, rstd, weight, bias=compute_bias_grad)

    def example(norm, *functions):
        return module(f"examples.{norm}", **{each.__name__: Kernel(each, Settings()) for each in functions})

    rms, layer = (rms_norm_fwd, rms_norm_bwd), (layer_norm_fwd, layer_norm_bwd)
    return [module("helion", kernel=Kernel), example("rms_norm", *rms), example("layer_norm", *layer)]


def oink() -> list[ModuleType]:
    def rmsnorm_forward(x, weight=None, bias=None, residual=None, eps=1e-6, store_rstd=False):
        assert store_rstd
        return x, forward_of("rms", x, eps)[2], None

    def rmsnorm_backward(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False):
        assert has_residual == (dresidual_out is not None)
        return *rounded("rms", dout, x, None, rstd, weight, added=dresidual_out, bias=False), None

    def layernorm(x, weight, bias=None, eps=1e-6, return_rstd=False, return_mean=False):
        assert return_rstd
        assert return_mean
        _, mean, rstd = forward_of("layer", x, eps)
        return x, rstd, mean

    def layernorm_backward(dout, x, weight, rstd, mean, bias=None):
        return rounded("layer", dout, x, mean, rstd, weight, bias=bias is not None)

    return [
        module("kernelagent_oink.blackwell.rmsnorm", rmsnorm_forward, rmsnorm_backward),
        module("kernelagent_oink.blackwell.layernorm", layernorm, layernorm_backward),
    ]


def tilegym() -> list[ModuleType]:
    tuned = {"for other rows": (2, "kernel")}

    def rms_norm(input, normalized_shape, weight, eps, bias=None, mode=None, offset=0.0, **kwargs):  # noqa: A002
        assert (weight is None, bias, offset, mode) == (False, None, 0.0, None)

        def formula(x, shape, weight):
            return normalised(x, weight, None, eps, True)

        return Recorded.apply(formula, input, normalized_shape, weight)

    def layer_norm(X, W, B, eps=1e-5, **kwargs):
        return Recorded.apply(lambda x, weight, bias: normalised(x, weight, bias, eps, False), X, W, B)

    def fused_add_rms_norm(X, R, W, eps=1e-6, offset=0.0, casting_mode="llama", **kwargs):
        assert not tuned
        tuned["columns"] = (4, "kernel")

        def formula(x, residual, weight):
            total = x + residual
            return normalised(total, weight, None, eps, True, offset), total

        return Recorded.apply(formula, X, R, W)

    def suites_rms_norm(X, W, eps, offset=0.0, casting_mode="llama", in_place=True, row_mode=None, **kwargs):
        assert (casting_mode, in_place, row_mode) == ("llama", True, None)
        return Recorded.apply(lambda x, weight: normalised(x, weight, None, eps, True, offset), X, W)

    suite = "tilegym.suites.liger.cutile"
    return [
        module(f"{suite}.rms_norm", rms_norm=suites_rms_norm),
        module("tilegym.ops.cutile.rms_norm", rms_norm),
        module(f"{suite}.layer_norm", layer_norm),
        module(f"{suite}.fused_add_rms_norm", fused_add_rms_norm, _bwd_tune_cache=tuned),
    ]


def quack_fused_sum() -> ModuleType:
    def cutedsl_rmsnorm_fwd(input, weight, normalized_shape, eps):  # noqa: A002
        return input, forward_of("rms", input, eps)[2]

    def cutedsl_rmsnorm_bwd(grad_out, input, rstd, weight, normalized_shape):  # noqa: A002
        assert list(normalized_shape) == [input.shape[1]]
        return rounded("rms", grad_out, input, None, rstd, weight)[:2]

    def quack_rmsnorm_fwd(input, weight, normalized_shape, eps):  # noqa: A002
        return cutedsl_rmsnorm_fwd(input, weight, normalized_shape, eps)

    def quack_rmsnorm_bwd(grad_out, input, rstd, weight, normalized_shape, dw_mask=True):  # noqa: A002
        assert dw_mask == (weight is not None)
        return cutedsl_rmsnorm_bwd(grad_out, input, rstd, weight, normalized_shape)

    of_both = (cutedsl_rmsnorm_fwd, cutedsl_rmsnorm_bwd, quack_rmsnorm_fwd, quack_rmsnorm_bwd)
    return module("torch._native.ops.norm.norms", *of_both)
