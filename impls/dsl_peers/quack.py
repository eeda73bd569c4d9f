"""QuACK's CuTe-DSL RMSNorm and LayerNorm backward: called directly, under torch.compile, and tuned by its own tuner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from harness.cases import ITEM_BYTES, Chosen, Grads, Inputs, NormCase, UnsupportedError, contiguous_rows, torch_dtype

from ..libraries.inductor import compile_alone
from ..libraries.installed import cute_dsl_failure
from ..libraries.recorded import forward_and_backward

if TYPE_CHECKING:
    import torch

    Statistics = tuple[torch.Tensor | None, torch.Tensor]  # mean, None for RMS, and rstd

Variant = Literal["called", "compiled", "tuned", "per-head"]

name = "quack"
version = 0
requires = ("quack", "cutlass")
imports = ("quack.rmsnorm",)
install = "pip install 'quack-kernels[cu13]'"
variants: dict[str, Variant] = {
    "quack": "called",
    "quack-compiled": "compiled",
    "quack-tuned": "tuned",
    "quack-per-head": "per-head",
}
for_speed = ("quack-compiled", "quack-tuned")  # -per-head is for heads alone
compiles_ahead = (
    "quack",
    "quack-compiled",
    "quack-per-head",
)  # what -tuned times while others crowd the device would be unfair to it
handles = {"rms": {"residual", "qk"}}
on_request = ("quack-tuned",)  # its search takes more than a minute a shape

MIN_TUNED_COLS = 64  # every launch that the tuner tries has at least 64 threads a row
KEPT = 64  # compiled functions, so that other inputs of a case find theirs
MAX_FP32_COLS = 128 * 1024  # its backward refuses more: shared memory


def missing() -> str | None:
    return cute_dsl_failure() if find_spec("quack") else None


def unsupported(case: NormCase, variant: Variant) -> str | None:
    if case.device == "cpu":
        return "CuTe-DSL kernels need an NVIDIA GPU"
    if ITEM_BYTES[case.dtype] == 2 and case.cols % 2:
        return "quack copies at least 4 bytes at a time, so a 2-byte dtype needs an even number of columns"
    if case.dtype == "fp32" and case.cols > MAX_FP32_COLS:
        return f"quack's backward takes at most {MAX_FP32_COLS} columns in fp32"
    if case.norm == "layer" and (not case.weight or case.zero_centred):
        return "quack's LayerNorm always has a weight, with no offset"
    return _not_by_head(case, variant) or (_not_tuned(case) if variant == "tuned" else None)


def _not_by_head(case: NormCase, variant: Variant) -> str | None:
    if bool(case.heads) == (variant == "per-head"):
        return None
    return (
        "one weight for all heads: quack takes that for rows" if case.heads else "a weight per head is for heads alone"
    )


def _not_tuned(case: NormCase) -> str | None:
    if case.rows == 0:
        return "the tuner cannot time zero rows"
    return f"the tuner needs at least {MIN_TUNED_COLS} columns" if case.cols < MIN_TUNED_COLS else None


def notes(case: NormCase, variant: Variant) -> list[str]:
    traps: list[str] = []
    if case.norm == "layer" and case.weight_dtype != "fp32":
        traps.append("takes an fp32 weight (converted, untimed) and gives dweight and dbias in fp32 (not converted)")
    if variant == "tuned":
        traps.append("tuned by quack's own tuner; torch.compile fuses the sum and the cast of its partial gradients")
    return traps


def configs(case: NormCase, variant: Variant) -> Mapping[str, dict[str, Any]]:
    """The launch of quack's heuristic, and those of its tuner's that differ from it in at most two settings.

    Its tuner has 400 for each shape. What differs is the name. Threads and threads a row count as one setting, and a
    cluster is at most halved or doubled.
    """
    import torch

    ops: Any = import_module("quack.rmsnorm")
    if variant != "called" or not hasattr(ops, "RmsNormBwdConfig"):
        return {}
    bits, sums = 8 * ITEM_BYTES[case.dtype], int(case.weight) + int(case.bias)
    default = asdict(ops.RmsNormBwdConfig.from_analytical_heuristic(case.cols, bits, bits, num_acc=sums))
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


def prepare(inputs: Inputs, variant: Variant, config: Mapping[str, Any] | None = None) -> Callable[[], Grads]:
    """The first call compiles for seconds; that of -tuned searches, for minutes."""
    ops: Any = import_module("quack.rmsnorm")
    weight, bias = _parameters(inputs)
    statistics = _forward(ops, inputs, weight, bias)
    if variant == "tuned" or config is not None:
        backward = _tuned(ops, inputs, weight, statistics, config)
    else:
        backward = _called(ops, inputs, weight, statistics, variant == "compiled")
    backward()
    return Chosen(backward, str(ops.rmsnorm_bwd_tuned.best_config)) if variant == "tuned" else backward


def forward_backward(inputs: Inputs, variant: Variant) -> Callable[[], Grads]:
    """`quack.rmsnorm`, which is the only norm that quack has under autograd."""
    if inputs.case.norm == "layer" or inputs.case.zero_centred or variant != "called":
        raise UnsupportedError("quack's autograd function is of RMSNorm alone, untuned")
    return forward_and_backward(inputs, partial(import_module("quack.rmsnorm").rmsnorm, eps=inputs.eps))


def _parameters(inputs: Inputs) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Weight and bias as quack's forward takes them: its LayerNorm in fp32 alone, and heads each with a weight."""
    weight, bias, heads = inputs.weight, inputs.bias, inputs.case.heads
    if weight is not None and heads:
        return weight.expand(heads, -1), bias
    if inputs.case.norm == "rms" or weight is None:
        return weight, bias
    return weight.float(), None if bias is None else bias.float()


def _forward(ops: Any, inputs: Inputs, weight: torch.Tensor | None, bias: torch.Tensor | None) -> Statistics:
    """What quack's own forward saves."""
    x = _activation(inputs, inputs.x)
    if inputs.case.norm == "layer":
        _, rstd, mean = ops.layernorm_fwd(x, weight, bias, inputs.eps, return_rstd=True, return_mean=True)
        return mean, rstd
    _, _, rstd = ops.rmsnorm_fwd(x, weight, eps=inputs.eps, store_rstd=True, weight_offset=_offset(inputs))
    return None, rstd


def _activation(inputs: Inputs, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as quack's autograd function hands it on: rows, or heads of tokens, which may be apart."""
    if not inputs.case.heads:
        return contiguous_rows(tensor)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _dres(inputs: Inputs) -> torch.Tensor | None:
    """The gradient of what goes on as the residual, which the kernel adds to dx."""
    return _activation(inputs, inputs.dres) if "residual" in inputs.case.features else None


def _of_all_heads(case: NormCase, dweight: torch.Tensor | None) -> torch.Tensor | None:
    """The gradient of the one weight that was handed to every head."""
    return dweight.sum(0) if case.heads and dweight is not None else dweight


def _offset(inputs: Inputs) -> float:
    return 1.0 if inputs.case.zero_centred else 0.0


def _called(
    ops: Any, inputs: Inputs, weight: torch.Tensor | None, statistics: Statistics, compiled: bool
) -> Callable[[], Grads]:
    (mean, rstd), x = statistics, _activation(inputs, inputs.x)
    function = _compiled(inputs.case) if compiled else _function(ops, inputs.case)

    def backward() -> Grads:
        dx, dweight, dbias = function(x, weight, _activation(inputs, inputs.dy), rstd, mean, _dres(inputs))
        return Grads(dx.view(inputs.x.shape), dweight, dbias)

    return backward


def _function(ops: Any, case: NormCase) -> Callable[..., Any]:
    """`layernorm_bwd` or `rmsnorm_bwd` of a case."""
    offset = 1.0 if case.zero_centred else 0.0

    def layer(x: Any, weight: Any, dy: Any, rstd: Any, mean: Any, _dres: None) -> Any:
        return ops.layernorm_bwd(x, weight, dy, rstd, mean, case.bias)  # rstd before mean

    def rms(x: Any, weight: Any, dy: Any, rstd: Any, _mean: Any, dres: Any) -> Any:
        added = {} if dres is None else {"dresidual_out": dres, "has_residual": True}
        dx, dweight, dbias, _ = ops.rmsnorm_bwd(x, weight, dy, rstd, **added, weight_offset=offset)
        return dx, _of_all_heads(case, dweight), dbias

    return layer if case.norm == "layer" else rms


@lru_cache(maxsize=KEPT)
def _compiled(case: NormCase) -> Callable[..., Any]:
    """The same under torch.compile: the sum and the cast of the partial gradients are one kernel."""
    return compile_alone(_function(import_module("quack.rmsnorm"), case))


def _tuned(
    ops: Any, inputs: Inputs, weight: torch.Tensor | None, statistics: Statistics, config: Mapping[str, Any] | None
) -> Callable[[], Grads]:
    """`rmsnorm_bwd_tuned` fills buffers: they are allocated here, and the partial gradients in them are summed.

    With a configuration it is called past its tuner, and summed as `rmsnorm_bwd` does it. What it finds is not kept on
    disk, so that each process tunes anew.
    """
    import torch

    (mean, rstd), x, case = statistics, _activation(inputs, inputs.x), inputs.case
    tuner: Any = ops.rmsnorm_bwd_tuned
    finish: Any = _finish
    if config is None:
        fill, options = tuner, dict[str, Any]()
        tuner.cache_results = False
        finish = _compiled_finish(case)
    else:
        fill, options = tuner.fn, {"config": ops.RmsNormBwdConfig(**config)}
    blocks, offset = ops.get_sm_count(case.cols, x.device), _offset(inputs)

    def partials(wanted: bool) -> torch.Tensor | None:
        return torch.empty(blocks, case.cols, dtype=torch.float32, device=x.device) if wanted else None

    def backward() -> Grads:
        dx, dweight, dbias = torch.empty_like(x), partials(case.weight), partials(case.bias)
        fill(
            x, weight, _activation(inputs, inputs.dy), rstd, dx, dweight, dbias, dresidual_out=_dres(inputs),
            sm_count=blocks, has_dw_partial=case.weight, has_db_partial=case.bias,
            per_head=False, mean=mean, is_layernorm=case.norm == "layer", weight_offset=offset, **options,
        )  # fmt: skip
        dweight, dbias = finish(dweight, dbias, None if weight is None else weight.dtype)
        return Grads(dx.view(inputs.x.shape), dweight, dbias)

    return backward


@lru_cache(maxsize=KEPT)
def _compiled_finish(_case: NormCase) -> Callable[..., Any]:
    return compile_alone(_finish)


def _finish(
    dweight: torch.Tensor | None, dbias: torch.Tensor | None, dtype: torch.dtype | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Partial gradients summed, and rounded to the weight's dtype."""
    return (
        None if dweight is None else dweight.sum(dim=0).to(dtype),
        None if dbias is None else dbias.sum(dim=0).to(dtype),
    )
