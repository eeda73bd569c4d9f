"""QuACK's CuTe-DSL RMSNorm and LayerNorm backward, called directly; -tuned searches its launch settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any

from harness.cases import ITEM_BYTES, Grads, Inputs, NormCase, contiguous_rows, torch_dtype

name = "quack"
requires = ("quack", "cutlass")
variants = {"quack": False, "quack-tuned": True}
compiles_ahead = ("quack",)  # what -tuned times while others crowd the device would be unfair to it
on_request = ("quack-tuned",)  # its search takes more than a minute a shape

MIN_TUNED_COLS = 64  # every launch that the tuner tries has at least 64 threads a row
MAX_FP32_COLS = 128 * 1024  # its backward refuses more: shared memory


def unsupported(case: NormCase, tuned: bool) -> str | None:
    if case.device == "cpu":
        return "CuTe-DSL kernels need an NVIDIA GPU"
    if ITEM_BYTES[case.dtype] == 2 and case.cols % 2:
        return "quack copies at least 4 bytes at a time, so a 2-byte dtype needs an even number of columns"
    if case.dtype == "fp32" and case.cols > MAX_FP32_COLS:
        return f"quack's backward takes at most {MAX_FP32_COLS} columns in fp32"
    if case.norm == "layer":
        return _unsupported_layer(case, tuned)
    if tuned and case.rows == 0:
        return "the tuner cannot time zero rows"
    return f"the tuner needs at least {MIN_TUNED_COLS} columns" if tuned and case.cols < MIN_TUNED_COLS else None


def _unsupported_layer(case: NormCase, tuned: bool) -> str | None:
    if tuned:
        return "tuned here for RMSNorm alone"
    if not case.weight:
        return "quack's LayerNorm always has a weight"
    return "quack's LayerNorm has no offset to the weight" if case.zero_centred else None


def notes(case: NormCase, tuned: bool) -> list[str]:
    if tuned:
        return ["quack keeps what it tuned in ~/.quack/cache (or QUACK_CACHE_DIR) by shape and dtype, not by GPU"]
    if case.norm == "layer" and case.weight_dtype != "fp32":
        return ["quack's LayerNorm forward wants an fp32 weight: the mean and rstd are the harness's"]
    return []


def configs(case: NormCase, tuned: bool) -> Mapping[str, dict[str, Any]]:
    """The launch of quack's heuristic, and those of its tuner's that differ from it in at most two settings.

    Its tuner has 400 for each shape. What differs is the name. Threads and threads a row count as one setting, and a
    cluster is at most halved or doubled.
    """
    import torch

    ops: Any = import_module("quack.rmsnorm")
    if tuned or case.norm == "layer" or not hasattr(ops, "RmsNormBwdConfig"):
        return {}
    bits = 8 * ITEM_BYTES[case.dtype]
    default = asdict(ops.RmsNormBwdConfig.from_analytical_heuristic(case.cols, bits, bits, num_acc=int(case.weight)))
    row, tuner = torch.empty(1, case.cols, dtype=torch_dtype(case.dtype), device="meta"), ops.rmsnorm_bwd_tuned
    offered = [
        asdict(item.kwargs["config"]) for item in tuner.early_config_prune(tuner.configs, {"x": row, "dout": row})
    ]
    near = {_differences(config, default): config for config in offered if _are_near(config, default)}
    return {"default": default} | {name: config for name, config in near.items() if name}


def _are_near(config: Mapping[str, Any], default: Mapping[str, Any]) -> bool:
    layout = config["num_threads"], config["threads_per_row"]
    changed = [layout != (default["num_threads"], default["threads_per_row"])]
    changed += [config[name] != default[name] for name in default if name not in ("num_threads", "threads_per_row")]
    smaller, larger = sorted((config["cluster_n"], default["cluster_n"]))
    return sum(changed) <= 2 and larger <= 2 * smaller


def _differences(config: Mapping[str, Any], default: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.items() if value != default[name])


def prepare(inputs: Inputs, tuned: bool, config: Mapping[str, Any] | None = None) -> Callable[[], Grads]:
    ops: Any = import_module("quack.rmsnorm")
    if inputs.case.norm == "layer":
        backward = _layer(ops, inputs)
    elif tuned or config is not None:
        backward = _rms_tuned(ops, inputs, config)
    else:
        backward = _rms(ops, inputs)
    backward()  # compiled, and tuned, by the first call: seconds, or minutes for -tuned
    return backward


def _layer(ops: Any, inputs: Inputs) -> Callable[[], Grads]:
    x, weight, mean, rstd = contiguous_rows(inputs.x), inputs.weight, inputs.mean, inputs.rstd
    has_bias = inputs.bias is not None
    if inputs.case.weight_dtype == "fp32":
        _, rstd, mean = ops.layernorm_fwd(x, weight, inputs.bias, inputs.eps, return_rstd=True, return_mean=True)

    def backward() -> Grads:
        dx, *rest = ops.layernorm_bwd(x, weight, contiguous_rows(inputs.dy), rstd, mean, has_bias)  # rstd before mean
        return Grads(dx.view(inputs.x.shape), *rest)

    return backward


def _rms(ops: Any, inputs: Inputs) -> Callable[[], Grads]:
    x, weight = contiguous_rows(inputs.x), inputs.weight
    offset, rstd = _forward(ops, inputs)

    def backward() -> Grads:
        dx, dweight, *_ = ops.rmsnorm_bwd(x, weight, contiguous_rows(inputs.dy), rstd, weight_offset=offset)
        return Grads(dx.view(inputs.x.shape), dweight)

    return backward


def _rms_tuned(ops: Any, inputs: Inputs, config: Mapping[str, Any] | None) -> Callable[[], Grads]:
    """`rmsnorm_bwd_tuned` fills buffers: they are allocated, and the partials summed, as `rmsnorm_bwd` does it.

    With a configuration it is called past its tuner.
    """
    import torch

    fill, options = ops.rmsnorm_bwd_tuned, {}
    if config is not None:
        fill, options = fill.fn, {"config": ops.RmsNormBwdConfig(**config)}

    x, weight, dy = inputs.x, inputs.weight, inputs.dy
    offset, rstd = _forward(ops, inputs)
    blocks = ops.get_sm_count(inputs.case.cols, x.device)

    def backward() -> Grads:
        dx, partials = torch.empty_like(x), None
        if weight is not None:
            partials = torch.empty(blocks, inputs.case.cols, dtype=torch.float32, device=x.device)
        fill(
            x, weight, dy, rstd, dx, partials,
            sm_count=blocks, has_dw_partial=partials is not None, weight_offset=offset, **options,
        )  # fmt: skip
        return Grads(dx, partials.sum(0).to(weight.dtype) if partials is not None and weight is not None else None)

    return backward


def _forward(ops: Any, inputs: Inputs) -> tuple[float, Any]:
    """The weight's offset, and rstd from quack's own forward."""
    offset = 1.0 if inputs.case.zero_centred else 0.0
    _, _, rstd = ops.rmsnorm_fwd(
        contiguous_rows(inputs.x), inputs.weight, eps=inputs.eps, store_rstd=True, weight_offset=offset
    )
    return offset, rstd
