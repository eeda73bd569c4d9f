"""The calls that the adapters make, as the authors of the libraries write them, without annotations.

A stand-in has to have the signature that stands here, and so has the installed library: docs/peers.md names the version
and the line of each.
"""

import inspect
from collections.abc import Callable

SIGNATURES = {
    "liger_kernel.functional:layer_norm": "(x, weight, bias=None, eps=1e-06, *, impl=None, mode=None, backend=None)",
    "liger_kernel.functional:rms_norm": (
        "(x, weight, eps=1e-06, *, offset=0.0, casting_mode='llama', in_place=False, row_mode=None, impl=None, "
        "mode=None, backend=None)"
    ),
    "liger_kernel.ops:LigerRMSNormFunction.forward": (
        "(ctx, X, W, eps, offset=0.0, casting_mode='llama', in_place=True, row_mode=None)"
    ),
    "quack.rmsnorm:layernorm_fwd": "(x, weight, bias=None, eps=1e-06, return_rstd=False, return_mean=False)",
    "quack.rmsnorm:layernorm_bwd": "(x, weight, dout, rstd, mean, has_bias=True)",
    "quack.rmsnorm:rmsnorm_fwd": (
        "(x, weight=None, bias=None, residual=None, out_dtype=None, residual_dtype=None, eps=1e-06, "
        "store_rstd=False, weight_offset=0.0)"
    ),
    "quack.rmsnorm:rmsnorm_bwd": (
        "(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False, weight_offset=0.0)"
    ),
    "quack.rmsnorm:rmsnorm_bwd_tuned.fn": (
        "(x, weight, dout, rstd, dx, dw_partial=None, db_partial=None, dresidual_out=None, dresidual=None, "
        "sm_count=None, per_head=False, has_dw_partial=False, has_db_partial=False, mean=None, is_layernorm=False, "
        "weight_offset=0.0, config=None)"
    ),
    "flash_attn.ops.triton.layer_norm:layer_norm_fn": (
        "(x, weight, bias, residual=None, x1=None, weight1=None, bias1=None, eps=1e-06, dropout_p=0.0, rowscale=None, "
        "prenorm=False, residual_in_fp32=False, is_rms_norm=False, return_dropout_mask=False, out=None, "
        "residual_out=None)"
    ),
    "fla.modules.layernorm:layer_norm": (
        "(x, weight, bias, residual=None, eps=1e-05, prenorm=False, residual_in_fp32=False, is_rms_norm=False)"
    ),
    "fla.modules.layernorm:rms_norm": (
        "(x, weight, bias, residual=None, eps=1e-05, prenorm=False, residual_in_fp32=False)"
    ),
    "flag_gems.ops.layernorm:layer_norm": "(input, normalized_shape, weight=None, bias=None, eps=1e-05)",
    "flag_gems.ops.layernorm:layer_norm_backward": (
        "(grad_out, input, normalized_shape, mean, rstd, weight=None, bias=None, output_mask=None)"
    ),
    "flag_gems.ops.rms_norm:rms_norm_forward": "(x, normalized_shape, weight, eps=1e-05)",
    "flag_gems.ops.rms_norm:rms_norm_backward": "(dy, x, inv_rms, normalized_shape, weight, eps=1e-05)",
    "fast_llm.functional.triton.normalization:triton_normalization_forward": (
        "(input_, weight, bias, eps, training, zero_centered)"
    ),
    "fast_llm.functional.triton.normalization:triton_normalization_backward": "(grad_output, context)",
    "cudnn:pygraph.execute": (
        "(self, tensor_dict, workspace=None, handle=None, override_uids=None, override_shapes=None, "
        "override_strides=None, tensor_uids=None)"
    ),
    "cudnn:pygraph.build_plan_at_index": "(self, index)",
    "cudnn:pygraph.create_execution_plans": "(self, heuristics=None)",
    "cudnn:pygraph.get_execution_plan_count": "(self)",
    "cudnn:pygraph.get_plan_name_at_index": "(self, index)",
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
