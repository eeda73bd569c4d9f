"""A norm's backward as a graph of cuDNN's frontend, run by the fastest of its execution plans.

docs of the frontend: build_plan_policy.ALL, get_execution_plan_count, build_plan_at_index and execute. Its torch
operators take the first plan that its heuristic names instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any

from harness.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

WARMUPS = 3
REPEATS = 15
FLUSHED_BYTES = 1 << 28  # written before every run, and as many others read: more than any L2 holds
HELD_CYCLES = 400_000  # how long the device is kept waiting while the host queues a run


@dataclass(frozen=True)
class Plans:
    """A graph, of which the plan to run is built and selected; `uids` are of its inputs, then of its outputs."""

    cudnn: Any
    graph: Any
    handle: Any
    uids: tuple[int, ...]

    def run(self, *operands: torch.Tensor) -> list[torch.Tensor]:
        """Return dx, dweight and, for LayerNorm, dbias, of dy, x, scale and what the forward saved, in that order."""
        import torch

        self.cudnn.set_stream(handle=self.handle, stream=_current_stream())
        outputs = [torch.empty_like(like) for like in _likes(operands)[: len(self.uids) - len(operands)]]
        workspace = torch.empty(max(1, self.graph.get_workspace_size()), dtype=torch.uint8, device=operands[0].device)
        self.graph.execute([*operands, *outputs], workspace, handle=self.handle, tensor_uids=self.uids)
        return outputs


def fastest(norm: str, operands: Sequence[torch.Tensor]) -> tuple[Plans, str]:
    """Build all plans that the heuristics name, time each on these operands, and select the fastest; with its name."""
    plans = _planned(norm, operands)
    graph, times_us = plans.graph, dict[int, float]()
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
            times_us[index] = _time_us(plans, operands)
        except (_refusal(plans.cudnn), RuntimeError):  # a plan that cannot be built or run here
            continue
    if not times_us:
        raise UnsupportedError("cuDNN lists plans for this shape, none of which can be built and run here")
    best = min(times_us, key=times_us.__getitem__)
    graph.build_plan_at_index(best)
    return plans, f"{graph.get_plan_name_at_index(best)}, plan {best + 1} of {graph.get_execution_plan_count()}"


def _planned(norm: str, operands: Sequence[torch.Tensor]) -> Plans:
    """The backward as a graph of one node, with its plans listed and none built."""
    cudnn: Any = import_module("cudnn")
    handle = cudnn.create_handle()
    types, heuristics = cudnn.data_type, cudnn.heur_mode
    graph = cudnn.pygraph(handle=handle, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT)
    uids = _node(types, graph, norm, operands)
    graph.validate()
    graph.build_operation_graph()
    try:
        graph.create_execution_plans([heuristics.A, heuristics.B, heuristics.FALLBACK])
        graph.check_support()
    except _refusal(cudnn) as error:
        raise UnsupportedError(f"cuDNN has no plan for this shape: {error}") from error
    return Plans(cudnn, graph, handle, uids)


def _refusal(cudnn: Any) -> type[Exception]:
    """What the frontend raises for what it does not have; the class is derived from Exception alone."""
    return getattr(cudnn, "cudnnGraphNotSupportedError", NotImplementedError)


def _node(types: Any, graph: Any, norm: str, operands: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Add the backward to a graph; its inputs, then its outputs, are numbered from 1."""
    import torch

    dtypes = {torch.float16: types.HALF, torch.bfloat16: types.BFLOAT16, torch.float32: types.FLOAT}
    mean = ("mean",) if norm == "layer" else ()
    given = {
        name: graph.tensor(
            name=name,
            dim=list(operand.shape),
            stride=list(operand.stride()),
            data_type=dtypes[operand.dtype],
            uid=number,
        )
        for number, (name, operand) in enumerate(
            zip(("grad", "input", "scale", *mean, "inv_variance"), operands, strict=True), start=1
        )
    }
    if norm == "layer":
        outputs = graph.layernorm_backward(name="layernorm_bwd", **given)
    else:
        outputs = graph.rmsnorm_backward(name="rmsnorm_bwd", has_dbias=False, **given)[:2]
    for number, (output, like) in enumerate(zip(outputs, _likes(operands), strict=False), start=len(given) + 1):
        output.set_uid(number).set_output(True).set_data_type(dtypes[like.dtype])
    return tuple(range(1, len(given) + len(outputs) + 1))


def _likes(operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the outputs are like: dx like x, dweight and dbias like the scale."""
    _, x, scale, *_ = operands
    return [x, scale, scale]


def _time_us(plans: Plans, operands: Sequence[torch.Tensor]) -> float:
    """The median time of the selected plan from a cold cache, by events, while the host is kept out of the interval."""
    import torch

    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=operands[0].device)
    read, sink = flushed.clone().view(torch.int32), torch.empty((), dtype=torch.int64, device=flushed.device)
    for _ in range(WARMUPS):
        plans.run(*operands)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    for start, end in events:
        flushed.zero_()
        torch.sum(read, 0, out=sink)  # lines that were written are owed to memory, and what is read is not
        torch.cuda._sleep(HELD_CYCLES)  # pyright: ignore[reportPrivateUsage]  # torch offers no other
        start.record()
        plans.run(*operands)
        end.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(end) * 1e3 for start, end in events)


def _current_stream() -> int:
    import torch

    return torch.cuda.current_stream().cuda_stream
