"""Stand-ins for the GPU libraries, that do the maths of their arguments.

A stand-in has the library's signature and computes exact gradients from what it is handed, so an argument in the wrong
place gives wrong gradients; it refuses the dtypes and shapes that the library refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import torch

from tests.impls.peer_cases import exact

EPS = 1e-5  # of all cases


def module(name: str, **contents: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(contents)
    return made


def modules() -> dict[str, ModuleType]:
    """Every GPU library by the names under which it is imported."""
    libraries = (liger_rms(), liger_layer(), quack(), apex_fused_extension(), apex_fast_extension())
    found = {}
    for library in libraries:
        parts = library.__name__.split(".")
        parents = [".".join(parts[:depth]) for depth in range(1, len(parts))]
        found |= {parent: ModuleType(parent) for parent in parents} | {library.__name__: library}
    for name in ("cudnn", "cudnn.ops", "cudnn.ops.norm", "cudnn.ops.norm.rmsnorm", "cudnn.ops.norm.layernorm"):
        found[name] = module(name, backend_version=lambda: 91000)
    return found


def forward_of(norm, x, eps):
    mean = x.double().mean(1) if norm == "layer" else torch.zeros(len(x), dtype=torch.float64)
    rstd = ((x.double() - mean[:, None]).square().mean(1) + eps).rsqrt()
    return ((x.double() - mean[:, None]) * rstd[:, None]), mean.float(), rstd.float()


def liger_rms() -> ModuleType:
    def rms_norm_forward(X, W, eps, offset, casting_mode, row_mode):
        assert row_mode is None
        _, _, rstd = forward_of("rms", X, eps)
        return X, X, rstd, 32, 4, {"llama": 0, "gemma": 1}[casting_mode]

    def rms_norm_backward(
        dY, X, W, RSTD, offset, casting_mode, BLOCK_SIZE, num_warps, in_place, row_mode, needs_dw=None
    ):
        assert (casting_mode in (0, 1), BLOCK_SIZE, num_warps, in_place, row_mode) == (True, 32, 4, True, None)
        dx, dweight, _ = exact("rms", dY, X, None, RSTD, W, offset)
        return dY.copy_(dx), None if W is None else dweight.to(W.dtype)

    return module("liger_kernel.ops.rms_norm", rms_norm_forward=rms_norm_forward, rms_norm_backward=rms_norm_backward)


def liger_layer() -> ModuleType:
    def layer_norm_forward(X, W, B, eps):
        assert W.shape == B.shape
        _, mean, rstd = forward_of("layer", X, eps)
        return X, X, mean, rstd, 32, 4

    def layer_norm_backward(dY, X, W, B, Mean, RSTD, needs_dw=None, needs_db=None):
        dx, dweight, dbias = exact("layer", dY, X, Mean, RSTD, W)
        return dx.to(X.dtype), dweight.to(W.dtype), dbias.to(B.dtype) if needs_db else None

    name = "liger_kernel.ops.layer_norm"
    return module(name, layer_norm_forward=layer_norm_forward, layer_norm_backward=layer_norm_backward)


@dataclass(frozen=True)
class RmsNormBwdConfig:
    """quack's launch settings; its heuristic takes the first of those below."""

    num_threads: int
    threads_per_row: int
    cluster_n: int
    reload_x: str | None
    smem_stages: int = 2

    @classmethod
    def from_analytical_heuristic(cls, N, dtype_width, dout_width, num_acc=1):
        assert dtype_width == dout_width in (16, 32)
        return CONFIGS[0]


CONFIGS = [
    RmsNormBwdConfig(128, 8, 1, None),
    RmsNormBwdConfig(256, 16, 1, None),
    RmsNormBwdConfig(128, 8, 2, "smem"),
    RmsNormBwdConfig(128, 8, 4, None),  # too far from the heuristic's
    RmsNormBwdConfig(128, 8, 2, "smem", 3),  # three settings are others
    RmsNormBwdConfig(128, 64, 1, None),  # more threads than columns
    RmsNormBwdConfig(128, 8, 1, None, 3),
]


def quack() -> ModuleType:
    def rmsnorm_fwd(x, weight=None, *, eps=1e-6, store_rstd=False, weight_offset=0.0):
        assert store_rstd
        return x, x, forward_of("rms", x, eps)[2]

    def rmsnorm_bwd(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False, weight_offset=0.0):
        dx, dweight, _ = exact("rms", dout, x, None, rstd, weight, weight_offset)
        return dx.to(x.dtype), None if weight is None else dweight.to(weight.dtype), None, None

    def untuned(
        x, weight, dout, rstd, dx, dw_partial=None, *, sm_count=None, has_dw_partial=False, weight_offset=0.0, config
    ):
        assert config in CONFIGS
        assert has_dw_partial == (dw_partial is not None)
        gradients = exact("rms", dout, x, None, rstd, weight, weight_offset)
        dx.copy_(gradients[0])
        if dw_partial is not None:
            assert dw_partial.shape[0] == sm_count == 3
            dw_partial.zero_()[1] = gradients[1]

    def early_config_prune(configs, arguments):
        assert arguments["x"].shape == arguments["dout"].shape
        return [item for item in configs if item.kwargs["config"].threads_per_row <= arguments["x"].size(-1)]

    def rmsnorm_bwd_tuned(*arguments, **options):
        untuned(*arguments, **options, config=CONFIGS[-1])

    vars(rmsnorm_bwd_tuned).update(
        fn=untuned,
        configs=[SimpleNamespace(kwargs={"config": config}) for config in CONFIGS],
        early_config_prune=early_config_prune,
    )

    def layernorm_fwd(x, weight, bias=None, eps=1e-6, return_rstd=False, return_mean=False):
        assert weight.dtype == torch.float32
        assert return_rstd
        assert return_mean
        _, mean, rstd = forward_of("layer", x, eps)
        return x, rstd, mean

    def layernorm_bwd(x, weight, dout, rstd, mean, has_bias=True):
        dx, dweight, dbias = exact("layer", dout, x, mean, rstd, weight)
        return dx.to(x.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype) if has_bias else None

    return module(
        "quack.rmsnorm", rmsnorm_fwd=rmsnorm_fwd, rmsnorm_bwd=rmsnorm_bwd, rmsnorm_bwd_tuned=rmsnorm_bwd_tuned,
        layernorm_fwd=layernorm_fwd, layernorm_bwd=layernorm_bwd, get_sm_count=lambda cols, device: 3,
        RmsNormBwdConfig=RmsNormBwdConfig,
    )  # fmt: skip


def from_saved(norm, dy, mean, rstd, kept, weight, bias, keeps_y):
    """Apex's backward: of x and its statistics, or of y, from which xhat is recovered."""
    if not keeps_y:
        return exact(norm, dy, kept, mean, rstd, weight)
    assert mean is None
    xhat = kept.double() if weight is None else (kept.double() - (0 if bias is None else bias)) / weight
    return exact(norm, dy, xhat / rstd[:, None], torch.zeros_like(rstd), rstd, weight)


def apex_fused_extension() -> ModuleType:
    def forward(x, shape, eps):
        return forward_of("layer", x, eps)

    def forward_affine(x, shape, weight, bias, eps):
        xhat, mean, rstd = forward_of("layer", x, eps)
        return xhat * weight + bias, mean, rstd

    def rms_forward(x, shape, eps):
        xhat, _, rstd = forward_of("rms", x, eps)
        return xhat, rstd

    def rms_forward_affine(x, shape, weight, eps):
        xhat, _, rstd = forward_of("rms", x, eps)
        return xhat * weight, rstd

    def backward(dy, mean, rstd, kept, shape, eps, memory_efficient):
        assert (shape, eps) == ((kept.shape[1],), EPS)
        return from_saved("layer", dy, mean, rstd, kept, None, None, memory_efficient)[0]

    def backward_affine(dy, mean, rstd, kept, shape, weight, bias, eps, memory_efficient):
        assert (shape, eps) == ((kept.shape[1],), EPS)
        return from_saved("layer", dy, mean, rstd, kept, weight, bias, memory_efficient)

    def rms_backward(dy, rstd, kept, shape, eps, memory_efficient):
        return rms_backward_affine(dy, rstd, kept, shape, None, eps, memory_efficient)[0]

    def rms_backward_affine(dy, rstd, kept, shape, weight, eps, memory_efficient):
        assert (shape, eps) == ((kept.shape[1],), EPS)
        return from_saved("rms", dy, None, rstd, kept, weight, None, memory_efficient)[:2]

    return module(
        "fused_layer_norm_cuda", forward=forward, forward_affine=forward_affine, backward=backward,
        backward_affine=backward_affine, rms_forward=rms_forward, rms_forward_affine=rms_forward_affine,
        rms_backward=rms_backward, rms_backward_affine=rms_backward_affine,
    )  # fmt: skip


def apex_fast_extension() -> ModuleType:
    def ln_fwd(x, gamma, beta, epsilon):
        xhat, mean, rstd = forward_of("layer", x, epsilon)
        return xhat * gamma + beta, mean, rstd

    def ln_bwd(dz, x_or_z, mu, rsigma, gamma, beta, memory_efficient):
        assert memory_efficient == (mu is None) == (beta is not None)
        gradients = from_saved("layer", dz, mu, rsigma, x_or_z, gamma, beta, memory_efficient)
        return [*gradients, "dgamma partials", "dbeta partials"]

    return module("fast_layer_norm", ln_fwd=ln_fwd, ln_bwd=ln_bwd)


def cudnn_ops() -> SimpleNamespace:
    def canonical(rows, cols, x, scale, scale_dtype):
        assert x.shape == (rows, cols, 1, 1)
        assert scale.shape == (1, cols, 1, 1)
        assert scale.dtype == scale_dtype
        return x.reshape(rows, cols), scale.reshape(cols)

    def rmsnorm(x, scale, eps, bias=None):
        matrix, _ = canonical(*x.shape[:2], x, scale, x.dtype)
        return x, forward_of("rms", matrix, eps)[2].reshape(-1, 1, 1, 1)

    def rmsnorm_bwd(dy, x, scale, inv_var, has_dbias=False):
        assert inv_var.shape == (len(x), 1, 1, 1)
        matrix, weight = canonical(*dy.shape[:2], x, scale, x.dtype)
        dx, dweight, _ = exact("rms", dy.reshape_as(matrix), matrix, None, inv_var, weight)
        return dx.to(x.dtype).reshape_as(x), dweight.to(scale.dtype).reshape_as(scale), torch.empty(0)

    def layernorm(x, scale, bias, eps):
        matrix, _ = canonical(*x.shape[:2], x, scale, torch.float32)
        assert (bias.shape, bias.dtype) == (scale.shape, torch.float32)
        _, mean, rstd = forward_of("layer", matrix, eps)
        return x, mean.reshape(-1, 1, 1, 1), rstd.reshape(-1, 1, 1, 1)

    def layernorm_bwd(dy, x, scale, mean, inv_var):
        matrix, weight = canonical(*dy.shape[:2], x, scale, torch.float32)
        dx, dweight, dbias = exact("layer", dy.reshape_as(matrix), matrix, mean, inv_var, weight)
        return dx.to(x.dtype).reshape_as(x), dweight.float().reshape_as(scale), dbias.float().reshape_as(scale)

    return SimpleNamespace(rmsnorm=rmsnorm, rmsnorm_bwd=rmsnorm_bwd, layernorm=layernorm, layernorm_bwd=layernorm_bwd)
