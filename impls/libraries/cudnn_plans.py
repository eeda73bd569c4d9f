"""Graphs of cuDNN's frontend: a backward whose plans are listed and run by name, and plans that processes share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.cases import RUN_FOLDER
from harness.errors import UnsupportedError

if TYPE_CHECKING:
    import torch


def plan_names(norm: str, operands: Sequence[torch.Tensor]) -> list[str]:
    """The plans that the heuristics list for operands of these shapes and dtypes, the first choice first."""
    try:
        graph, _, _ = _planned(norm, operands)
    except UnsupportedError:
        return []
    return [graph.get_plan_name_at_index(index) for index in range(graph.get_execution_plan_count())]


def run_plan(norm: str, operands: Sequence[torch.Tensor], name: str | None) -> Callable[..., list[torch.Tensor]]:
    """Build the plan of this name, or the first; return the call of it with operands such as these.

    It gives dx, dweight and, for LayerNorm, dbias, of dy, x, scale, what the forward saved and, with a residual, dres.
    """
    import torch

    cudnn: Any = import_module("cudnn")
    graph, handle, uids = _planned(norm, operands)
    names = [graph.get_plan_name_at_index(index) for index in range(graph.get_execution_plan_count())]
    name = name or next(iter(names), "")
    if name not in names:
        raise UnsupportedError(f"cuDNN has no plan {name} of this shape here")
    try:
        graph.build_plan_at_index(names.index(name))
    except (_refusal(cudnn), RuntimeError) as error:
        raise UnsupportedError(f"cuDNN cannot build plan {name} here: {error}") from error

    def run(*operands: torch.Tensor) -> list[torch.Tensor]:
        cudnn.set_stream(handle=handle, stream=_current_stream())
        outputs = [torch.empty_like(like) for like in _likes(operands)[: len(uids) - len(operands)]]
        workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=operands[0].device)
        graph.execute([*operands, *outputs], workspace, handle=handle, tensor_uids=uids)
        return outputs

    return run


def _planned(norm: str, operands: Sequence[torch.Tensor]) -> tuple[Any, Any, tuple[int, ...]]:
    """A graph of the backward, with its plans listed and none built; its handle, and the numbers of its tensors."""
    cudnn: Any = import_module("cudnn")
    handle = cudnn.create_handle()
    types, heuristics = cudnn.data_type, cudnn.heur_mode
    graph = cudnn.pygraph(handle=handle, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT)
    uids = _add_backward(types, graph, norm, operands)
    graph.validate()
    try:
        graph.build_operation_graph()
        graph.create_execution_plans([heuristics.A, heuristics.B, heuristics.FALLBACK])
        graph.check_support()
    except (_refusal(cudnn), RuntimeError) as error:
        raise UnsupportedError(f"cuDNN has no plan for this shape: {error}") from error
    return graph, handle, uids


def _refusal(cudnn: Any) -> type[Exception]:
    """What the frontend raises for what it does not have; the class is derived from Exception alone."""
    return getattr(cudnn, "cudnnGraphNotSupportedError", NotImplementedError)


def _add_backward(types: Any, graph: Any, norm: str, operands: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Add the backward to a graph; return the numbers of its inputs, then of its outputs, from 1 on."""
    import torch

    dtypes = {torch.float16: types.HALF, torch.bfloat16: types.BFLOAT16, torch.float32: types.FLOAT}
    mean = ("mean",) if norm == "layer" else ()
    names = ("grad", "input", "scale", *mean, "inv_variance")
    with_dres = len(operands) > len(names)
    names = (*names, "dres") if with_dres else names
    inputs: dict[str, Any] = {}
    for uid, (name, operand) in enumerate(zip(names, operands, strict=True), start=1):
        shape, stride, dtype = list(operand.shape), list(operand.stride()), dtypes[operand.dtype]
        inputs[name] = graph.tensor(name=name, dim=shape, stride=stride, data_type=dtype, uid=uid)
    dres = inputs.pop("dres", None)
    if norm == "layer":
        outputs = graph.layernorm_backward(name="layernorm_bwd", **inputs)
    else:
        outputs = graph.rmsnorm_backward(name="rmsnorm_bwd", has_dbias=False, **inputs)[:2]
    if with_dres:
        outputs[0].set_data_type(dtypes[operands[1].dtype])  # as x: a sum of another dtype is refused
        outputs = [graph.add(a=outputs[0], b=dres, name="dx"), *outputs[1:]]
    for uid, (output, like) in enumerate(zip(outputs, _likes(operands), strict=False), start=len(names) + 1):
        output.set_uid(uid).set_output(True).set_data_type(dtypes[like.dtype])
    return tuple(range(1, len(names) + len(outputs) + 1))


def _likes(operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the outputs are like: dx like x, dweight and dbias like the scale."""
    _, x, scale, *_ = operands
    return [x, scale, scale]


def _current_stream() -> int:
    import torch

    return torch.cuda.current_stream().cuda_stream


def share_built_plans(operators: ModuleType) -> None:
    """Let these operators load the plans that other processes of the run built, and leave them those built here.

    To build one takes seconds, to load it 65 ms; what is loaded is the plan that the operators chose by themselves.
    """
    for name in ("_build_fprop_graph", "_build_bprop_graph"):
        build = getattr(operators, name, None)
        if RUN_FOLDER in os.environ and build is not None and not isinstance(build, partial):
            setattr(operators, name, partial(_loaded_or_built, build))


def _loaded_or_built(build: Callable[..., tuple[Any, int]], handle: Any, *operands: Any) -> tuple[Any, int]:
    """A graph with its plan, and the bytes of its workspace; built where no plan can be loaded, and then left behind.

    The second choice is not left: this process may have lacked the memory for the first. Nor is a Python engine's plan.
    """
    alike = [(each.shape, each.stride(), each.dtype) if hasattr(each, "stride") else each for each in operands]
    key = f"{build.__module__} {build.__name__} {alike}"
    file = Path(os.environ[RUN_FOLDER], f"cudnn-{sha256(key.encode()).hexdigest()[:24]}")
    cudnn: Any = import_module("cudnn")
    with suppress(Exception):
        graph = cudnn.pygraph(handle=handle)
        graph.deserialize(handle, file.read_bytes())
        return graph, graph.get_workspace_size()
    graph, workspace_bytes = build(handle, *operands)
    with suppress(Exception):
        if (graph.selected_engine, graph._plan_index) == (None, 0):
            written = file.with_suffix(f".{os.getpid()}")
            written.write_bytes(bytes(graph.serialize()))
            written.rename(file)
    return graph, workspace_bytes
