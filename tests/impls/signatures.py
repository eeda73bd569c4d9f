"""The calls that the adapters make: the stand-ins have the signatures of the libraries, without annotations.

The installed library has to have the same: docs/peers.md names its version.
"""

import inspect
from collections.abc import Callable
from functools import reduce

from tests.impls.stand_ins import modules

CALLS = {  # by module
    "liger_kernel.functional": "layer_norm rms_norm fused_add_rms_norm",
    "liger_kernel.ops": "LigerRMSNormFunction.forward LigerFusedAddRMSNormFunction.forward",
    "quack.rmsnorm": "layernorm_fwd layernorm_bwd rmsnorm_fwd rmsnorm_bwd rmsnorm_bwd_tuned.fn",
    "flash_attn.ops.triton.layer_norm": "layer_norm_fn",
    "fla.modules.layernorm": "layer_norm rms_norm",
    "fla.modules.fused_norm_gate": "rms_norm_gated layer_norm_gated",
    "fla.modules.layernorm_gated": "rmsnorm_fn layernorm_fn",
    "mamba_ssm.ops.triton.layer_norm": "layer_norm_fn",
    "mamba_ssm.ops.triton.layernorm_gated": "rmsnorm_fn layernorm_fn",
    "transformer_engine.pytorch.triton_kernels.norms_common": (
        "te_rmsnorm_fwd_triton te_layernorm_fwd_triton te_rmsnorm_bwd_triton te_layernorm_bwd_triton"
    ),
    "examples.rms_norm": "rms_norm_fwd.fn rms_norm_bwd.fn",
    "examples.layer_norm": "layer_norm_fwd.fn layer_norm_bwd.fn",
    "tilegym.ops.cutile.rms_norm": "rms_norm",
    "tilegym.suites.liger.cutile.rms_norm": "rms_norm",
    "tilegym.suites.liger.cutile.layer_norm": "layer_norm",
    "tilegym.suites.liger.cutile.fused_add_rms_norm": "fused_add_rms_norm",
    "kernelagent_oink.blackwell.rmsnorm": "rmsnorm_forward rmsnorm_backward",
    "kernelagent_oink.blackwell.layernorm": "layernorm layernorm_backward",
    "flag_gems.ops.layernorm": "layer_norm layer_norm_backward",
    "flag_gems.ops.rms_norm": "rms_norm_forward rms_norm_backward",
    "fast_llm.functional.triton.normalization": "triton_normalization_forward triton_normalization_backward",
    "cudnn": (
        "pygraph.execute pygraph.build_plan_at_index "
        "pygraph.create_execution_plans pygraph.get_execution_plan_count pygraph.get_plan_name_at_index"
    ),
}

# What users construct, whose defaults the adapters take over.
CLASSES = {
    "liger_kernel.transformers.layer_norm:LigerLayerNorm.__init__": (
        "(self, hidden_size, eps=1e-06, bias=False, init_fn='ones', impl=None, mode=None, backend=None)"
    ),
    "liger_kernel.transformers.rms_norm:LigerRMSNorm.__init__": (
        "(self, hidden_size, eps=1e-06, offset=0.0, casting_mode='llama', init_fn='ones', in_place=True, "
        "row_mode=None, elementwise_affine=True)"
    ),
    "liger_kernel.transformers.fused_add_rms_norm:LigerFusedAddRMSNorm.__init__": (
        "(self, hidden_size, eps=1e-06, offset=0.0, casting_mode='llama', init_fn='ones', in_place=False)"
    ),
}

SCHEMAS = {
    "cudnn::rmsnorm": "(Tensor x, Tensor scale, float eps, Tensor? bias=None) -> (Tensor, Tensor)",
    "cudnn::rmsnorm_bwd": (
        "(Tensor dy, Tensor x, Tensor scale, Tensor inv_var, bool has_dbias=False) -> (Tensor, Tensor, Tensor)"
    ),
    "cudnn::layernorm": "(Tensor x, Tensor scale, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)",
    "cudnn::layernorm_bwd": (
        "(Tensor dy, Tensor x, Tensor scale, Tensor mean, Tensor inv_var) -> (Tensor, Tensor, Tensor)"
    ),
    "aten::native_layer_norm_backward": (
        "(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, "
        "Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
    ),
    "aten::_fused_rms_norm_backward": (
        "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, "
        "bool[2] output_mask) -> (Tensor, Tensor)"
    ),
}


def plain(function: Callable[..., object]) -> str:
    """The signature of a function without annotations."""
    signature = inspect.signature(function)
    parameters = [item.replace(annotation=inspect.Parameter.empty) for item in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def called(path: str, module: object) -> Callable[..., object]:
    """What a path such as `Class.method` names in a module."""
    return reduce(getattr, path.split("."), module)


_STAND_INS = modules()
SIGNATURES = {
    f"{module}:{path}": plain(called(path, _STAND_INS[module]))
    for module, paths in CALLS.items()
    for path in paths.split()
}
