"""The project's own Triton kernels: fp32 partial gradients, summed in a fixed order, mostly by one launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cases import DeviceKind, Grads, Inputs, NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.cases.variants import FEATURES
from harness.errors import UnsupportedError

from .inhouse.launch import Launch
from .inhouse.limits import WIDEST
from .inhouse.problem import LAUNCHES, SM_MARGIN, margin_of_environment, problem_of
from .libraries.recorded import forward_and_backward

if TYPE_CHECKING:
    import torch

    from .inhouse.tensors import Extras

name = "triton-inhouse"
version = 5
requires = ("triton",)
compiles_ahead = True
handles = frozenset(FEATURES)


def misconfigured(device: DeviceKind) -> str | None:
    """Say what is wrong with the margin and the file of launches that the environment names, or None."""
    if not (os.environ.get(SM_MARGIN) or os.environ.get(LAUNCHES)):
        return None  # without the seconds that torch takes
    import torch

    from .inhouse.device import gpu_of, name_of

    here = torch.device(device)
    try:
        if margin := margin_of_environment():
            gpu_of(here, margin)
        path = os.environ.get(LAUNCHES)
        if not path:
            return None
        from .inhouse.tuned import read_for

        read_for(path, name_of(here), None if device == "cpu" else gpu_of(here).multiprocessors)
    except ValueError as error:
        return str(error)
    return None


def unsupported(case: NormCase) -> str | None:
    """Say why this case cannot run, or None."""
    if case.cols > WIDEST:
        return f"rows of at most {WIDEST} columns"
    if case.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        return "on a CPU only in the Triton interpreter: set TRITON_INTERPRET=1"
    if case.device == "cpu" and case.dtype == "bf16" and case.inputs.startswith("subnormal"):
        return "Triton's interpreter loses bits of subnormal bf16 numbers as it loads them; a GPU does not"
    return None


def untimed(case: NormCase) -> str | None:
    """Say why this case must not be timed, or None."""
    return "verified in the Triton interpreter, which is never timed" if case.device == "cpu" else None


def notes(case: NormCase) -> list[str]:
    """What the environment changes: a margin, or a file that its launch comes from in place of the usual choice."""
    if margin := margin_of_environment():
        return [f"leaves {margin} multiprocessors to others, by {SM_MARGIN}"]
    path = os.environ.get(LAUNCHES)
    if not path:
        return []
    if INPUT_KINDS[case.inputs].layout != "contiguous":
        return [f"launches of {Path(path).name} where the layout is one that was tuned"]
    from .inhouse.device import gpu_of, name_of
    from .inhouse.tuned import find

    device = torch_device(case)
    tuned = find(path, name_of(device), problem_of(case), gpu_of(device))
    if tuned is None:
        return []
    near = f", tuned for {tuned.tuned_for} rows" if tuned.tuned_for != case.rows else ""
    return [f"launch of {tuned.file}{near}: {tuned.launch.describe()}"]


def torch_device(case: NormCase) -> torch.device:
    """The device that a case's tensors are on."""
    import torch

    return torch.device("cuda", torch.cuda.current_device()) if case.device == "cuda" else torch.device("cpu")


def configs(case: NormCase) -> dict[str, dict[str, Any]]:
    """The launch chosen for a case, and launches near it that may be faster on the device here, as plain fields."""
    tuned = case.rows and "frozen" not in case.features and INPUT_KINDS[case.inputs].layout == "contiguous"
    if not tuned or unsupported(case):
        return {}
    if os.environ.get(LAUNCHES):
        raise ValueError(f"launches are compared with those that are chosen without a file; unset {LAUNCHES}")
    from .inhouse.device import gpu_of
    from .inhouse.regimes.choice import choose, neighbours

    problem, gpu = problem_of(case), gpu_of(torch_device(case))
    default, *others = neighbours(problem, gpu, choose(problem, gpu))
    return {"default": default.as_fields()} | {other.difference(default): other.as_fields() for other in others}


def release() -> None:
    """Free what the kernels keep between calls, which the next case then counts as its own."""
    from .inhouse.bound import release_memory

    release_memory()


def prepare(inputs: Inputs, config: Mapping[str, Any] | None = None) -> Callable[[], Grads]:
    """The kernels take the statistics that this project's own forward saves of each row; nothing else is saved.

    A launch of `configs` runs once here. Raises UnsupportedError for one that must not run on these tensors, and for
    one that spills more registers than the kernel's own choice, whatever its time.
    """
    if config is None:
        return launching(inputs)
    from .inhouse.backward import problem_for
    from .inhouse.device import gpu_of
    from .inhouse.regimes.choice import choose
    from .inhouse.tensors import rows_or_heads
    from .inhouse.tuned import from_fields

    layer, bias = inputs.case.norm == "layer", inputs.bias is not None
    (x, dy), extras = rows_or_heads(x=inputs.x, dy=inputs.dy), extras_of(inputs).as_rows(inputs.x.shape)
    problem = problem_for(dy, x, inputs.weight, bias, layer=layer, extras=extras)
    gpu = gpu_of(inputs.x.device)
    launch = from_fields(config)
    if violation := launch.violation(problem, gpu):
        raise UnsupportedError(f"this launch must not run here: {violation}")
    backward = launching(inputs, launch)
    if spilled := _spilled(backward):
        own = _spilled(launching(inputs, choose(problem, gpu)))
        if spilled > own:
            raise UnsupportedError(f"spills {spilled} registers" + (f", the default {own}" if own else ""))
    return backward


def forward_backward(inputs: Inputs) -> Callable[[], Grads]:
    from .inhouse.model import layer_norm, rms_norm

    case = inputs.case
    options: dict[str, Any] = {"eps": case.eps, "zero_centred": case.zero_centred}
    if case.norm == "layer":
        return forward_and_backward(inputs, lambda x, weight, bias: layer_norm(x, weight, bias, **options))
    return forward_and_backward(inputs, lambda x, weight, bias: rms_norm(x, weight, **options))  # noqa: ARG005


def _spilled(backward: Callable[..., Grads]) -> int:
    """Registers a thread that the kernels of a launch keep in memory; what Triton interprets has none."""
    kernels: list[Any] = []
    backward(kernels)
    return max((kernel.n_spills for kernel in kernels if kernel is not None), default=0)


def launching(inputs: Inputs, launch: Launch | None = None) -> Callable[..., Grads]:
    """The backward by this launch, or by default by that of the kernel's own choice.

    The result takes a list, or nothing, and adds the compiled kernels to it.
    """
    from .inhouse.backward import backward_with_extras, norm_backward

    case, extras = inputs.case, extras_of(inputs)
    mean, rstd = statistics_of(inputs)
    given = inputs.dy, inputs.x, inputs.weight, mean, rstd
    options: dict[str, Any] = {"has_bias": inputs.bias is not None, "zero_centred": case.zero_centred}
    options |= {"dx_alone": "frozen" in case.features, "launch": launch}

    def backward(launched: list[Any] | None = None) -> Grads:
        return Grads(*norm_backward(*given, **options, launched=launched))

    def backward_with(launched: list[Any] | None = None) -> Grads:
        found = backward_with_extras(*given, extras, **options, launched=launched)
        more = {name: each for name, each in found._asdict().items() if name in found._fields[3:] and each is not None}
        return Grads(*found[:3], more)

    return backward_with if set(case.features) - {"qk", "frozen"} else backward


def statistics_of(inputs: Inputs) -> tuple[torch.Tensor | None, torch.Tensor]:
    """What this project's own forward saves of what is normalised, which is x, or x * silu(z)."""
    from .inhouse.model.forward import norm_forward
    from .inhouse.model.operands import NormOptions, Operands

    case, layer = inputs.case, inputs.case.norm == "layer"
    x = inputs.x if case.heads else inputs.x.view(-1, case.cols)
    z = inputs.tensors()["z"] if case.gate_first else None
    options = NormOptions(layer, inputs.eps, case.zero_centred, norm_before_gate=False)
    outputs = norm_forward(Operands(x, inputs.weight, inputs.bias, z=z), options)
    return outputs.mean, outputs.rstd


def extras_of(inputs: Inputs) -> Extras:
    """What a case has around its norm, as the kernels take it."""
    from .inhouse.tensors import Extras

    case, named = inputs.case, inputs.tensors()
    given: dict[str, Any] = {name: named.get(name) for name in Extras._fields if name in named and name != "bias"}
    norm_first = "gated-norm-first" in case.features
    return Extras(**given, p=case.dropout_p, norm_first=norm_first, bias=inputs.bias if norm_first else None)
