"""cuDNN's RMSNorm and LayerNorm backward, by the torch operators of nvidia-cudnn-frontend."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.cases import Grads, Inputs, NormCase, contiguous_rows, torch_dtype

from ..libraries.cudnn_plans import plan_names, run_plan, share_built_plans

if TYPE_CHECKING:
    import torch

Variant = Literal["operator", "graph"]

name = "cudnn"
version = 1
variants: dict[str, Variant] = {"cudnn": "operator", "cudnn-graph": "graph"}
requires = ("torch", "cudnn")
# By `normbwd tune`, as cuDNN's own heuristics time nothing; -graph is for a residual alone.
for_speed = ("cudnn@tuned",)
install = "pip install nvidia-cudnn-frontend"
uses = ("cutlass",)  # which compiles the frontend's own norms, on SM 10.0
compiles_ahead = True

handles = {"rms": {"residual"}}
FUSES_FROM = (9, 21)  # the version of cuDNN that adds the residual's gradient inside RMSNorm's backward

MOST_ELEMENTS = 2**31 - 1  # CUDNN_STATUS_NOT_SUPPORTED_SHAPE beyond


def missing() -> str | None:
    try:
        _load()
    except ModuleNotFoundError as error:
        if error.name in requires:
            return None  # `requires` says it
        return f"the installed cudnn cannot be used ({error}): this needs nvidia-cudnn-frontend >= 1.32"
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return f"nvidia-cudnn-frontend cannot load cuDNN: {error}"
    return None


def unsupported(case: NormCase, variant: Variant) -> str | None:
    if case.device == "cpu":
        return "cuDNN needs an NVIDIA GPU"
    if not 0 < case.rows * case.cols <= MOST_ELEMENTS:
        return f"cuDNN takes at least one row, and has no engine for more than {MOST_ELEMENTS} elements"
    if case.zero_centred:
        return "cuDNN has no zero-centred weight"
    if case.norm == "rms" and (not case.weight or case.weight_dtype != case.dtype):
        return "cuDNN's RMSNorm always has a weight, and takes it in x's dtype only"
    if not case.features:
        return "without a residual its plan is the operator's" if variant == "graph" else None
    return _refuses_residual(variant)


def _refuses_residual(variant: Variant) -> str | None:
    if variant == "operator":
        return "no operator of cuDNN's adds a residual's gradient"
    return None if _fuses() else "cuDNN adds a residual's gradient from 9.21 on"


def _fuses() -> bool:
    """By the package of cuDNN: a list of implementations loads none."""
    for package in ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"):
        with suppress(PackageNotFoundError):
            return tuple(map(int, version_of(package).split(".")[:2])) >= FUSES_FROM
    return False


def notes(case: NormCase, variant: Variant) -> list[str]:
    if case.norm == "rms":
        return ["no operator has the fused addition: the first plan of its graph"] if variant == "graph" else []
    traps: list[str] = []
    if case.weight and case.weight_dtype != "fp32":
        traps.append("takes an fp32 weight (converted, untimed) and gives dweight and dbias in fp32 (not converted)")
    unwanted = [wanted for wanted, has in (("dweight", case.weight), ("dbias", case.bias)) if not has]
    if unwanted:
        traps.append(f"computes {' and '.join(unwanted)} all the same")
    return traps


def configs(case: NormCase, _variant: Variant) -> Mapping[str, dict[str, str]]:
    """The first plan of the heuristics, which the operators take, and every plan that the heuristics list."""
    import torch

    _load()
    scale_dtype = torch.float32 if case.norm == "layer" else torch_dtype(case.weight_dtype)
    activation = torch.empty(case.rows, case.cols, 1, 1, dtype=torch_dtype(case.dtype), device="meta")
    scale = torch.empty(1, case.cols, 1, 1, dtype=scale_dtype, device="meta")
    statistic = torch.empty(case.rows, 1, 1, 1, dtype=torch.float32, device="meta")
    statistics = (statistic, statistic) if case.norm == "layer" else (statistic,)
    dres = (activation,) if case.features else ()
    names = plan_names(case.norm, (activation, activation, scale, *statistics, *dres))
    return {"default": {}} | {name: {"plan": name} for name in names}


def prepare(inputs: Inputs, _variant: Variant, config: Mapping[str, str] | None = None) -> Callable[[], Grads]:
    _load()
    norm, operands = inputs.case.norm, _saved(inputs)
    if inputs.case.features:
        operands = (*operands, _rows(inputs.dres))
    if config or inputs.case.features:
        plan = run_plan(norm, (_rows(inputs.dy), *operands), (config or {}).get("plan"))
        return _backward(inputs, lambda dy: plan(dy, *operands))
    backward = _backward(inputs, _operator(norm, operands))
    backward()  # the first call builds the plan, which the operators keep by shape and dtype
    return backward


def _backward(inputs: Inputs, call: Callable[..., Any]) -> Callable[[], Grads]:
    case = inputs.case

    def backward() -> Grads:
        dx, dweight, *dbias = call(_rows(inputs.dy))
        return Grads(
            dx.view_as(inputs.x), dweight.view(-1) if case.weight else None, dbias[0].view(-1) if case.bias else None
        )

    return backward


def _operator(norm: str, operands: Sequence[torch.Tensor]) -> Callable[[torch.Tensor], Any]:
    """The library's own operator, given dy."""
    import torch

    if norm == "layer":
        return lambda dy: torch.ops.cudnn.layernorm_bwd(dy, *operands)
    return lambda dy: torch.ops.cudnn.rmsnorm_bwd(dy, *operands, False)


def _saved(inputs: Inputs) -> tuple[torch.Tensor, ...]:
    """x, the weight and what the library's own forward saves, as its operators take them.

    A weight or bias that the case lacks is ones or zeros, as in the library's own `layer_norm`.
    """
    import torch

    x = _rows(inputs.x)
    if inputs.case.norm == "rms":
        assert inputs.weight is not None  # unsupported() has seen to it
        scale = inputs.weight.view(1, -1, 1, 1)
        _, rstd = torch.ops.cudnn.rmsnorm(x, scale, inputs.eps)
        return x, scale, rstd
    ones = torch.ones(1, inputs.case.cols, 1, 1, dtype=torch.float32, device=x.device)
    scale = ones if inputs.weight is None else inputs.weight.float().view(1, -1, 1, 1)
    bias = torch.zeros_like(ones) if inputs.bias is None else inputs.bias.float().view(1, -1, 1, 1)
    _, mean, rstd = torch.ops.cudnn.layernorm(x, scale, bias, inputs.eps)
    return x, scale, mean, rstd


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """As the library's own autograd functions hand tensors on."""
    rows = contiguous_rows(tensor)
    return rows.view(*rows.shape, 1, 1)


def _load() -> None:
    """Import the operators, with libcudnn already in the process.

    The frontend searches its own folder and LD_LIBRARY_PATH, so it misses the libcudnn of a torch in another
    site-packages. Loaded here by its full path, the library is then known by its name.
    """
    if "cudnn" not in sys.modules and find_spec("cudnn") is None:
        raise ModuleNotFoundError(name="cudnn")  # without the seconds that torch takes
    import_module("torch")  # brings its own libcudnn, where it links to it
    for folder in _cudnn_folders():
        for library in sorted(Path(folder, "lib").glob("libcudnn.so.*")):
            ctypes.CDLL(str(library))
    cudnn: Any = import_module("cudnn")
    cudnn.backend_version()  # raises where no library was found
    for operators in ("cudnn.ops.norm.rmsnorm", "cudnn.ops.norm.layernorm"):
        share_built_plans(import_module(operators))


def _cudnn_folders() -> list[str]:
    try:
        spec = find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return []  # a cuDNN of the system's
    return list(spec.submodule_search_locations or ()) if spec else []
