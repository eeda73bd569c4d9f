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
    "liger_kernel.functional:fused_add_rms_norm": (
        "(X, R, W, eps=1e-06, offset=0.0, casting_mode='llama', in_place=False, *, impl=None, mode=None, backend=None)"
    ),
    "liger_kernel.ops:LigerFusedAddRMSNormFunction.forward": (
        "(ctx, X, R, W, eps, offset=0.0, casting_mode='llama', in_place=False)"
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
        "prenorm=False, residual_in_fp32=False, zero_centered_weight=False, is_rms_norm=False, "
        "return_dropout_mask=False, out_dtype=None, out=None, residual_out=None)"
    ),
    "fla.modules.layernorm:layer_norm": (
        "(x, weight, bias, residual=None, eps=1e-05, prenorm=False, residual_in_fp32=False, is_rms_norm=False)"
    ),
    "fla.modules.layernorm:rms_norm": (
        "(x, weight, bias, residual=None, eps=1e-05, prenorm=False, residual_in_fp32=False)"
    ),
    "fla.modules.fused_norm_gate:rms_norm_gated": (
        "(x, g, weight, bias, activation='swish', residual=None, prenorm=False, residual_in_fp32=False, eps=1e-06)"
    ),
    "fla.modules.fused_norm_gate:layer_norm_gated": (
        "(x, g, weight, bias, activation='swish', residual=None, prenorm=False, residual_in_fp32=False, eps=1e-06)"
    ),
    "fla.modules.layernorm_gated:rmsnorm_fn": (
        "(x, weight, bias, z=None, eps=1e-06, group_size=None, norm_before_gate=True)"
    ),
    "fla.modules.layernorm_gated:layernorm_fn": (
        "(x, weight, bias, z=None, eps=1e-06, group_size=None, norm_before_gate=True, is_rms_norm=False)"
    ),
    "mamba_ssm.ops.triton.layer_norm:layer_norm_fn": (
        "(x, weight, bias, residual=None, x1=None, weight1=None, bias1=None, eps=1e-06, dropout_p=0.0, rowscale=None, "
        "prenorm=False, residual_in_fp32=False, is_rms_norm=False, return_dropout_mask=False)"
    ),
    "mamba_ssm.ops.triton.layernorm_gated:rmsnorm_fn": (
        "(x, weight, bias, z=None, eps=1e-06, group_size=None, norm_before_gate=True)"
    ),
    "mamba_ssm.ops.triton.layernorm_gated:layernorm_fn": (
        "(x, weight, bias, z=None, eps=1e-06, group_size=None, norm_before_gate=True, is_rms_norm=False)"
    ),
    "transformer_engine.pytorch.triton_kernels.norms_common:te_rmsnorm_fwd_triton": (
        "(input, weight, eps, ln_out, quantizer, otype, sm_margin, zero_centered_gamma, autotune=True)"
    ),
    "transformer_engine.pytorch.triton_kernels.norms_common:te_layernorm_fwd_triton": (
        "(input, weight, bias, eps, ln_out, quantizer, otype, sm_margin, zero_centered_gamma, autotune=True)"
    ),
    "transformer_engine.pytorch.triton_kernels.norms_common:te_rmsnorm_bwd_triton": (
        "(dz, x, rsigma, gamma, sm_margin, zero_centered_gamma, autotune=True)"
    ),
    "transformer_engine.pytorch.triton_kernels.norms_common:te_layernorm_bwd_triton": (
        "(dz, x, mu, rsigma, gamma, sm_margin, zero_centered_gamma)"
    ),
    "examples.rms_norm:rms_norm_fwd.fn": "(x, weight, eps=1e-05)",
    "examples.rms_norm:rms_norm_bwd.fn": "(grad_out, x, weight, rsqrt)",
    "examples.layer_norm:layer_norm_fwd.fn": "(x, normalized_shape, weight, bias=None, eps=1e-05)",
    "examples.layer_norm:layer_norm_bwd.fn": "(grad_out, x, mean, rstd, weight, compute_bias_grad=True)",
    "tilegym.ops.cutile.rms_norm:rms_norm": (
        "(input, normalized_shape, weight, eps, bias=None, mode=None, offset=0.0, **kwargs)"
    ),
    "tilegym.suites.liger.cutile.rms_norm:rms_norm": (
        "(X, W, eps, offset=0.0, casting_mode='llama', in_place=True, row_mode=None, **kwargs)"
    ),
    "tilegym.suites.liger.cutile.layer_norm:layer_norm": "(X, W, B, eps=1e-05, **kwargs)",
    "tilegym.suites.liger.cutile.fused_add_rms_norm:fused_add_rms_norm": (
        "(X, R, W, eps=1e-06, offset=0.0, casting_mode='llama', **kwargs)"
    ),
    "kernelagent_oink.blackwell.rmsnorm:rmsnorm_forward": (
        "(x, weight=None, bias=None, residual=None, eps=1e-06, store_rstd=False)"
    ),
    "kernelagent_oink.blackwell.rmsnorm:rmsnorm_backward": (
        "(x, weight, dout, rstd, dresidual_out=None, has_bias=False, has_residual=False)"
    ),
    "kernelagent_oink.blackwell.layernorm:layernorm": (
        "(x, weight, bias=None, eps=1e-06, return_rstd=False, return_mean=False)"
    ),
    "kernelagent_oink.blackwell.layernorm:layernorm_backward": "(dout, x, weight, rstd, mean, bias=None)",
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

# What only a PyTorch has that was not released.
UNRELEASED = {
    "torch._native.ops.norm.norms:cutedsl_rmsnorm_fwd": "(input, weight, normalized_shape, eps)",
    "torch._native.ops.norm.norms:cutedsl_rmsnorm_bwd": "(grad_out, input, rstd, weight, normalized_shape)",
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
