"""The project's own Triton kernels: fp32 partial gradients, summed in a fixed order, mostly by one launch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cases import DeviceKind, Grads, Inputs, NormCase
from harness.cases.input_kinds import INPUT_KINDS
from harness.errors import UnsupportedError

from .inhouse.launch import Launch
from .inhouse.limits import WIDEST
from .inhouse.problem import LAUNCHES, problem_of

if TYPE_CHECKING:
    import torch

name = "triton-inhouse"
requires = ("triton",)
compiles_ahead = True


def misconfigured(device: DeviceKind) -> str | None:
    """Say what is wrong with the file of launches that the environment names, or None."""
    path = os.environ.get(LAUNCHES)
    if not path:
        return None
    import torch

    from .inhouse.device import gpu_of, name_of
    from .inhouse.tuned import read_for

    here = torch.device(device)
    try:
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
    """Which file its launch comes from, where it is not the one that is chosen without measuring."""
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
    if not case.rows or INPUT_KINDS[case.inputs].layout != "contiguous" or unsupported(case):
        return {}
    if os.environ.get(LAUNCHES):
        raise ValueError(f"launches are compared with those that are chosen without a file; unset {LAUNCHES}")
    from .inhouse.device import gpu_of
    from .inhouse.regimes.choice import choose, neighbours

    problem, gpu = problem_of(case), gpu_of(torch_device(case))
    default, *others = neighbours(problem, gpu, choose(problem, gpu))
    return {"default": default.as_fields()} | {other.difference(default): other.as_fields() for other in others}


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
    from .inhouse.tuned import from_fields

    layer, bias = inputs.case.norm == "layer", inputs.bias is not None
    problem, gpu = problem_for(inputs.dy, inputs.x, inputs.weight, bias, layer=layer), gpu_of(inputs.x.device)
    launch = from_fields(config)
    if flaw := launch.flaw(problem, gpu):
        raise UnsupportedError(f"this launch must not run here: {flaw}")
    backward = launching(inputs, launch)
    if spilled := _spilled(backward):
        own = _spilled(launching(inputs, choose(problem, gpu)))
        if spilled > own:
            raise UnsupportedError(f"spills {spilled} registers" + (f", the default {own}" if own else ""))
    return backward


def _spilled(backward: Callable[..., Grads]) -> int:
    """Registers a thread that the kernels of a launch keep in memory; what Triton interprets has none."""
    kernels: list[Any] = []
    backward(kernels)
    return max((kernel.n_spills for kernel in kernels if kernel is not None), default=0)


def launching(inputs: Inputs, launch: Launch | None = None, *, sm_margin: int | None = None) -> Callable[..., Grads]:
    """The backward by this launch, or by default by that of the kernel's own choice, with such a margin.

    The result takes a list, or nothing, and adds the compiled kernels to it.
    """
    from .inhouse.backward import norm_backward
    from .inhouse.model.forward import norm_forward

    case, layer = inputs.case, inputs.case.norm == "layer"
    x = inputs.x.view(-1, case.cols)
    _, mean, rstd = norm_forward(x, inputs.weight, inputs.bias, inputs.eps, layer=layer, zero_centred=case.zero_centred)

    def backward(launched: list[Any] | None = None) -> Grads:
        gradients = norm_backward(
            inputs.dy,
            inputs.x,
            inputs.weight,
            mean if layer else None,
            rstd,
            has_bias=inputs.bias is not None,
            zero_centred=case.zero_centred,
            sm_margin=sm_margin,
            launch=launch,
            launched=launched,
        )
        return Grads(*gradients)

    return backward
