"""Stand-ins for the GPU libraries, that do the maths of their arguments.

A stand-in has the library's signature and computes exact gradients from what it is handed, so an argument in the wrong
place gives wrong gradients; it refuses the dtypes and shapes that the library refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace

import torch

from tests.impls import dsl_stand_ins, triton_stand_ins
from tests.impls.peer_cases import exact, forward_of, module, rounded

EPS = 1e-5  # of all cases


def modules() -> dict[str, ModuleType]:
    """Every GPU library by the names under which it is imported."""
    libraries = (*liger(), quack(), apex_fused_extension(), apex_fast_extension(), cudnn(), fast_llm())
    libraries += (*transformer_engine(), dropout_layer_norm(), *triton_stand_ins.libraries())
    libraries += (*dsl_stand_ins.libraries(),)
    found = {"cutlass.cute": ModuleType("cutlass.cute"), "cutlass": ModuleType("cutlass")}
    for library in libraries:
        parts = library.__name__.split(".")
        parents = [".".join(parts[:depth]) for depth in range(1, len(parts))]
        absent = [parent for parent in parents if parts[0] != "torch"]  # which is here
        found |= {parent: ModuleType(parent) for parent in absent if parent not in found} | {library.__name__: library}
    for name in ("cudnn.ops", "cudnn.ops.norm", "cudnn.ops.norm.rmsnorm", "cudnn.ops.norm.layernorm"):
        found[name] = ModuleType(name)
    return found


class LigerRMSNormFunction(torch.autograd.Function):
    """Liger's Triton kernels: dx over dy, as LigerRMSNorm asks for by default."""

    @staticmethod
    def forward(ctx, X, W, eps, offset=0.0, casting_mode="llama", in_place=True, row_mode=None):
        assert (casting_mode in ("llama", "gemma"), row_mode) == (True, None)
        ctx.save_for_backward(X, W, forward_of("rms", X, eps)[2])
        ctx.offset, ctx.in_place = offset, in_place
        return X.clone()

    @staticmethod
    def backward(ctx, dY):
        X, W, RSTD = ctx.saved_tensors
        dx, dweight, _ = rounded("rms", dY, X, None, RSTD, W, ctx.offset)
        return dY.copy_(dx) if ctx.in_place else dx, dweight, None, None, None, None, None


class LigerLayerNormFunction(torch.autograd.Function):
    """Liger's Triton kernels."""

    @staticmethod
    def forward(ctx, X, W, B, eps):
        assert W.shape == B.shape
        ctx.save_for_backward(X, W, *forward_of("layer", X, eps)[1:])
        return X.clone()

    @staticmethod
    def backward(ctx, dY):
        X, W, Mean, RSTD = ctx.saved_tensors
        return *rounded("layer", dY, X, Mean, RSTD, W, bias=ctx.needs_input_grad[2]), None


class LigerFusedAddRMSNormFunction(torch.autograd.Function):
    """Liger's Triton kernels of a residual, whose default writes dx elsewhere."""

    @staticmethod
    def forward(ctx, X, R, W, eps, offset=0.0, casting_mode="llama", in_place=False):
        assert (casting_mode in ("llama", "gemma"), in_place) == (True, False)
        S = X + R
        ctx.save_for_backward(S, W, forward_of("rms", S, eps)[2])
        ctx.offset = offset
        return S.clone(), S

    @staticmethod
    def backward(ctx, dY, dS_out):
        S, W, RSTD = ctx.saved_tensors
        dx, dweight, _ = rounded("rms", dY, S, None, RSTD, W, ctx.offset, added=dS_out)
        return dx, dx, dweight, None, None, None, None


LIGER_BACKENDS = {"nvidia-triton": "liger_kernel.ops", "nvidia-cutedsl": "liger_kernel.ops.backends._cutedsl"}
LIGER_FUNCTIONS = {
    "rms_norm": LigerRMSNormFunction,
    "layer_norm": LigerLayerNormFunction,
    "fused_add_rms_norm": LigerFusedAddRMSNormFunction,
}
LIGER_CUTEDSL = {}
for file, triton in LIGER_FUNCTIONS.items():
    triton.__module__ = f"liger_kernel.ops.{file}"
    theirs = {"__module__": f"liger_kernel.ops.backends._cutedsl.{file}"}
    LIGER_CUTEDSL[file] = type(f"_{triton.__name__.removesuffix('Function')}CuTeDSLFunction", (triton,), theirs)


class ImplNotAvailableError(RuntimeError):
    """What its dispatcher raises."""


def liger(widest_cutedsl: int = 8192) -> list[ModuleType]:
    """Its dispatcher, by rank: CuTe DSL up to a width, and Triton beyond."""

    def chosen(name, x, impl):
        if impl not in (None, *LIGER_BACKENDS):
            raise ImplNotAvailableError(f"No '{impl}' implementation registered")
        by_cutedsl = impl != "nvidia-triton" and x.shape[1] <= widest_cutedsl
        return (LIGER_CUTEDSL if by_cutedsl else LIGER_FUNCTIONS)[name]

    def rms_norm(
        x, weight, eps=1e-6, *, offset=0.0, casting_mode="llama", in_place=False, row_mode=None, impl=None, mode=None,
        backend=None,
    ):  # fmt: skip
        return chosen("rms_norm", x, impl).apply(x, weight, eps, offset, casting_mode, in_place, row_mode)

    def layer_norm(x, weight, bias=None, eps=1e-6, *, impl=None, mode=None, backend=None):
        bias = torch.zeros_like(weight) if bias is None else bias
        return chosen("layer_norm", x, impl).apply(x, weight, bias, eps)

    def fused_add_rms_norm(
        X, R, W, eps=1e-6, offset=0.0, casting_mode="llama", in_place=False, *, impl=None, mode=None, backend=None
    ):  # fmt: skip
        return chosen("fused_add_rms_norm", X, impl).apply(X, R, W, eps, offset, casting_mode, in_place)

    classes = LigerRMSNormFunction, LigerFusedAddRMSNormFunction
    functions = rms_norm, layer_norm, fused_add_rms_norm
    return [module("liger_kernel.ops", *classes), module("liger_kernel.functional", *functions)]


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


@dataclass(frozen=True)
class AutotuneConfig:
    """One launch that quack's tuner may choose."""

    kwargs: dict[str, RmsNormBwdConfig]

    def __str__(self):
        return ", ".join(f"{name}: {value}" for name, value in self.kwargs.items())


def of_heads(norm, x, weight, dout, rstd, mean, offset):
    """Exact gradients of rows `(rows, cols)`, or of heads `(tokens, heads, cols)` each with a weight."""
    if x.dim() == 2:
        return exact(norm, dout, x, mean, rstd, weight, offset)
    by_head = [
        exact(norm, dout[:, head], x[:, head], None, rstd[:, head], None if weight is None else weight[head], offset)
        for head in range(x.shape[1])
    ]
    dx, dweight, dbias = zip(*by_head, strict=True)
    return torch.stack(dx, 1), torch.stack(dweight), torch.stack(dbias)


def quack() -> ModuleType:
    def rmsnorm_fwd(
        x, weight=None, bias=None, residual=None, out_dtype=None, residual_dtype=None, eps=1e-6, store_rstd=False,
        weight_offset=0.0,
    ):  # fmt: skip
        assert store_rstd
        assert weight is None or weight.shape == x.shape[1:]  # a weight for every head
        return x, x, forward_of("rms", x.reshape(-1, x.shape[-1]), eps)[2].view(x.shape[:-1])

    def rmsnorm_bwd(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False, weight_offset=0.0):
        assert has_residual == (dresidual_out is not None)
        dx, dweight, _ = of_heads("rms", x, weight, dout, rstd, None, weight_offset)
        dx = dx if dresidual_out is None else dx + dresidual_out
        return dx.to(x.dtype), None if weight is None else dweight.to(weight.dtype), None, None

    def untuned(
        x, weight, dout, rstd, dx, dw_partial=None, db_partial=None, dresidual_out=None, dresidual=None, sm_count=None,
        per_head=False, has_dw_partial=False, has_db_partial=False, mean=None, is_layernorm=False, weight_offset=0.0,
        config=None,
    ):  # fmt: skip
        assert config in CONFIGS
        assert (has_dw_partial, has_db_partial) == (dw_partial is not None, db_partial is not None)
        assert per_head == (x.dim() == 3)
        gradients = of_heads("layer" if is_layernorm else "rms", x, weight, dout, rstd, mean, weight_offset)
        dx.copy_(gradients[0] if dresidual_out is None else gradients[0] + dresidual_out)
        for parts, gradient in zip((dw_partial, db_partial), gradients[1:], strict=True):
            if parts is not None:
                assert parts.shape[0] == sm_count == (1 if per_head else 3)
                parts.zero_()[-1] = gradient

    class Autotuner:
        """quack's tuner, which finds the last of the configurations."""

        fn = staticmethod(untuned)
        configs = tuple(AutotuneConfig({"config": config}) for config in CONFIGS)
        cache_results = True
        best_config = None

        def early_config_prune(self, configs, arguments):
            assert arguments["x"].shape == arguments["dout"].shape
            return [item for item in configs if item.kwargs["config"].threads_per_row <= arguments["x"].size(-1)]

        def __call__(self, *arguments, **options):
            assert not self.cache_results  # what another process found is not read
            self.best_config = self.configs[-1]
            untuned(*arguments, **options, **self.best_config.kwargs)

    def layernorm_fwd(x, weight, bias=None, eps=1e-6, return_rstd=False, return_mean=False):
        assert weight.dtype == torch.float32
        assert return_rstd
        assert return_mean
        _, mean, rstd = forward_of("layer", x, eps)
        return x, rstd, mean

    def layernorm_bwd(x, weight, dout, rstd, mean, has_bias=True):
        return rounded("layer", dout, x, mean, rstd, weight, bias=has_bias)

    functions = rmsnorm_fwd, rmsnorm_bwd, layernorm_fwd, layernorm_bwd, RmsNormBwdConfig
    tuner = {"rmsnorm_bwd_tuned": Autotuner(), "get_sm_count": lambda cols, device: 3}
    return module("quack.rmsnorm", *functions, **tuner)


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

    layer = forward, forward_affine, backward, backward_affine
    rms = rms_forward, rms_forward_affine, rms_backward, rms_backward_affine
    return module("fused_layer_norm_cuda", *layer, *rms)


def apex_fast_extension() -> ModuleType:
    def ln_fwd(x, gamma, beta, epsilon):
        xhat, mean, rstd = forward_of("layer", x, epsilon)
        return xhat * gamma + beta, mean, rstd

    def ln_bwd(dz, x_or_z, mu, rsigma, gamma, beta, memory_efficient):
        assert memory_efficient == (mu is None) == (beta is not None)
        gradients = from_saved("layer", dz, mu, rsigma, x_or_z, gamma, beta, memory_efficient)
        return [*gradients, "dgamma partials", "dbeta partials"]

    return module("fast_layer_norm", ln_fwd, ln_bwd)


def fast_llm() -> ModuleType:
    def triton_normalization_forward(input_, weight, bias, eps, training, zero_centered):
        assert training
        xhat, _, inv_var = forward_of("rms" if bias is None else "layer", input_, eps)
        y = xhat * (1 if weight is None else weight + float(zero_centered)) + (0 if bias is None else bias)
        return y, [y, weight, bias, inv_var, eps, zero_centered]

    def triton_normalization_backward(grad_output, context):
        output, weight, bias, inv_var, _, zero_centered = context
        context.clear()
        scale = 1.0 if weight is None else weight.detach().double() + float(zero_centered)
        xhat = (output.detach().double() - (0 if bias is None else bias.detach().double())) / scale
        norm = "rms" if bias is None else "layer"
        zero = torch.zeros_like(inv_var)
        kept = (xhat / inv_var[:, None], zero, inv_var, None if weight is None else weight.detach())
        dx, *parameters = exact(norm, grad_output, *kept, float(zero_centered))
        for parameter, gradient in zip((weight, bias), parameters, strict=True):
            if parameter is not None:
                assert parameter.requires_grad
                assert parameter.param_grad_is_zero
                parameter.param_grad_is_zero = False
                parameter.grad_buffer.copy_(gradient)
        return dx.to(grad_output.dtype)

    functions = triton_normalization_forward, triton_normalization_backward
    return module("fast_llm.functional.triton.normalization", *functions)


def transformer_engine() -> list[ModuleType]:
    """Its extension says no signatures; these are the calls of its own operators."""

    def layernorm_fwd(x, weight, bias, eps, ln_out, quantizer, otype, sm_margin, zero_centered_gamma):
        assert (ln_out, quantizer, otype, sm_margin) == (None, None, f"TE {x.dtype}", 0)
        return x, *forward_of("layer", x, eps)[1:]

    def rmsnorm_fwd(x, weight, eps, ln_out, quantizer, otype, sm_margin, zero_centered_gamma):
        assert (ln_out, quantizer, otype, sm_margin) == (None, None, f"TE {x.dtype}", 0)
        return x, None, forward_of("rms", x, eps)[2]

    def layernorm_bwd(dz, x, mu, rsigma, gamma, sm_margin, zero_centered_gamma):
        return rounded("layer", dz, x, mu, rsigma, gamma, float(zero_centered_gamma))

    def rmsnorm_bwd(dz, x, rsigma, gamma, sm_margin, zero_centered_gamma):
        return rounded("rms", dz, x, None, rsigma, gamma, float(zero_centered_gamma))[:2]

    def rmsnorm_bwd_add(dz, x, add, rsigma, gamma, sm_margin, zero_centered_gamma):
        return rounded("rms", dz, x, None, rsigma, gamma, float(zero_centered_gamma), added=add)[:2]

    calls = layernorm_fwd, layernorm_bwd, rmsnorm_fwd, rmsnorm_bwd, rmsnorm_bwd_add
    types = {dtype: f"TE {dtype}" for dtype in (torch.float32, torch.float16, torch.bfloat16)}
    return [module("transformer_engine_torch", *calls), module("transformer_engine.pytorch.constants", TE_DType=types)]


def dropout_layer_norm() -> ModuleType:
    """flash-attention's extension says no names; these are the arguments that its own autograd function gives."""

    def dropout_add_ln_fwd(
        x0, residual, gamma, beta, rowscale, colscale, x0_subset, z_subset, dropout_p, epsilon, rowscale_const,
        z_numrows, gen, residual_in_fp32, is_rms_norm,
    ):  # fmt: skip
        assert {residual, rowscale, colscale, x0_subset, z_subset, gen} == {None}
        assert (dropout_p, rowscale_const, z_numrows, residual_in_fp32) == (0.0, 1.0, 0, False)
        return x0, None, None, *forward_of("rms" if is_rms_norm else "layer", x0, epsilon)[1:]

    def added(dx, given, dmask, dropout_p):
        """The gradient of what goes on, and that of a branch that some elements of were dropped."""
        dx = dx if given is None else dx + given
        assert (dmask is None) == (dropout_p == 0.0)
        return dx, dx if dmask is None else dmask.double() * dx / (1 - dropout_p)

    def dropout_add_ln_bwd(
        dz, dx, x, x0, dmask, mu, rsigma, gamma, rowscale, colscale, x0_subset, z_subset, dropout_p, rowscale_const,
        x0_numrows, has_residual, is_rms_norm,
    ):  # fmt: skip
        assert {x0, rowscale, colscale, x0_subset, z_subset} == {None}
        assert (rowscale_const, x0_numrows, has_residual) == (1.0, 0, dropout_p > 0)
        gradients = exact("rms" if is_rms_norm else "layer", dz, x, mu, rsigma, gamma)
        dweight, dbias = (gradient.to(gamma.dtype) for gradient in gradients[1:])
        residual, branch = (item.to(x.dtype) for item in added(gradients[0], dx, dmask, dropout_p))
        return [branch, residual if has_residual else None, dweight, dbias, "dgamma partials", "dbeta partials"]

    def dropout_add_ln_parallel_residual_bwd(
        dz0, dz1, dx, x, dmask0, dmask1, mu, rsigma, gamma0, gamma1, dropout_p, has_x1, has_residual, is_rms_norm
    ):  # fmt: skip
        assert ((dz1 is None), has_x1, has_residual) == ((gamma1 is None), (dmask1 is not None), dropout_p > 0)
        norm = "rms" if is_rms_norm else "layer"
        gradients = exact(norm, dz0, x, mu, rsigma, gamma0)
        second = exact(norm, dz1, x, mu, rsigma, gamma1) if dz1 is not None else (0, None, None)
        total = gradients[0] + second[0]
        residual, branch = added(total, dx, dmask0, dropout_p)
        branch1 = added(total, dx, dmask1, dropout_p)[1] if has_x1 else None
        found = [branch, branch1, residual if has_residual else None, *gradients[1:], *second[1:]]
        return [None if item is None else item.to(x.dtype) for item in found] + ["partials"] * 4

    calls = dropout_add_ln_fwd, dropout_add_ln_bwd, dropout_add_ln_parallel_residual_bwd
    return module("dropout_layer_norm", *calls)


class NotSupportedByGraphError(Exception):
    """The frontend's own class, which is derived from Exception alone."""


class Graph:
    """A graph of cuDNN's frontend with three plans, of which the second cannot be built."""

    built = None  # the plan that was built last, of any graph

    def __init__(self, handle=None, intermediate_data_type=None, compute_data_type=None):
        assert (intermediate_data_type, compute_data_type) == (torch.float32, torch.float32)
        self.inputs, self.outputs, self.stages = {}, {}, []
        self.validate = partial(self.stages.append, "validate")
        self.build_operation_graph = partial(self.stages.append, "build")

    def tensor(self, dim, stride=None, data_type=None, *, name="", uid=None):
        self.inputs[uid] = (name, dim, stride, data_type)
        return name

    def layernorm_backward(self, name="", grad=None, input=None, scale=None, mean=None, inv_variance=None):  # noqa: A002  # the library's name
        assert (grad, input, scale, mean, inv_variance) == ("grad", "input", "scale", "mean", "inv_variance")
        return self.nodes("layer", 3)

    def rmsnorm_backward(self, name="", grad=None, input=None, scale=None, inv_variance=None, has_dbias=None):  # noqa: A002
        assert (grad, input, scale, inv_variance, has_dbias) == ("grad", "input", "scale", "inv_variance", False)
        return [*self.nodes("rms", 2), None]

    def add(self, a=None, b=None, compute_data_type=None, name=""):
        assert (b, name, a.data_type) == ("dres", "dx", self.inputs[2][-1])  # of x, or the library refuses it
        return a

    def nodes(self, norm, count):
        self.norm, outputs = norm, self.outputs

        def node_of(uid):
            typed = SimpleNamespace(set_data_type=lambda data_type: outputs.update({uid: data_type}))
            return SimpleNamespace(set_output=lambda wanted: typed if wanted else None)

        nodes = [SimpleNamespace(set_uid=node_of) for _ in range(count)]
        for node in nodes:
            node.set_data_type = partial(setattr, node, "data_type")
        return nodes

    def create_execution_plans(self, heuristics=None):
        assert heuristics == ["A", "B", "FALLBACK"]
        self.stages.append("plan")

    def check_support(self):
        assert self.stages == ["validate", "build", "plan"]

    def get_execution_plan_count(self):
        return 3

    def build_plan_at_index(self, index):
        if index == 1:
            raise NotSupportedByGraphError("CUDNN_STATUS_NOT_SUPPORTED")
        Graph.built = self.get_plan_name_at_index(index)

    def get_plan_name_at_index(self, index):
        return f"eng{index}"

    def get_workspace_size(self):
        return 16

    def execute(
        self, tensor_dict, workspace=None, handle=None, override_uids=None, override_shapes=None,
        override_strides=None, tensor_uids=None,
    ):  # fmt: skip
        assert (workspace.numel(), handle) == (16, "handle")
        assert tensor_uids == tuple(range(1, len(self.inputs) + len(self.outputs) + 1))
        operands, results = tensor_dict[: len(self.inputs)], tensor_dict[len(self.inputs) :]
        for operand, (_, dim, stride, data_type) in zip(operands, self.inputs.values(), strict=True):
            assert (list(operand.shape), list(operand.stride()), operand.dtype) == (dim, stride, data_type)
        by_name = dict(
            zip((name for name, *_ in self.inputs.values()), (each.flatten(1) for each in operands), strict=True)
        )
        dy, x, scale, rstd = (by_name[name] for name in ("grad", "input", "scale", "inv_variance"))
        gradients = exact(self.norm, dy, x, by_name.get("mean"), rstd, scale.flatten())
        if "dres" in by_name:
            gradients = (gradients[0] + by_name["dres"], *gradients[1:])
        for result, gradient, data_type in zip(results, gradients, self.outputs.values(), strict=False):
            assert result.dtype == data_type
            result.copy_(gradient.reshape(result.shape))


def cudnn() -> ModuleType:
    """The frontend; a cudnn data type is torch's."""
    return module(
        "cudnn",
        backend_version=lambda: 91000,
        pygraph=Graph,
        cudnnGraphNotSupportedError=NotSupportedByGraphError,
        create_handle=lambda: "handle",
        set_stream=lambda handle, stream: None,
        data_type=SimpleNamespace(HALF=torch.float16, BFLOAT16=torch.bfloat16, FLOAT=torch.float32),
        heur_mode=SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK"),
    )


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
        dx, dweight, _ = rounded("rms", dy.reshape_as(matrix), matrix, None, inv_var, weight)
        return dx.reshape_as(x), dweight.reshape_as(scale), torch.empty(0)

    def layernorm(x, scale, bias, eps):
        matrix, _ = canonical(*x.shape[:2], x, scale, torch.float32)
        assert (bias.shape, bias.dtype) == (scale.shape, torch.float32)
        _, mean, rstd = forward_of("layer", matrix, eps)
        return x, mean.reshape(-1, 1, 1, 1), rstd.reshape(-1, 1, 1, 1)

    def layernorm_bwd(dy, x, scale, mean, inv_var):
        matrix, weight = canonical(*dy.shape[:2], x, scale, torch.float32)
        dx, *parameters = rounded("layer", dy.reshape_as(matrix), matrix, mean, inv_var, weight)
        return dx.reshape_as(x), *(gradient.reshape_as(scale) for gradient in parameters)

    return SimpleNamespace(rmsnorm=rmsnorm, rmsnorm_bwd=rmsnorm_bwd, layernorm=layernorm, layernorm_bwd=layernorm_bwd)
