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

if TYPE_CHECKING:
    import torch

WARMUPS = 3
REPEATS = 15
FLUSHED_BYTES = 1 << 28  # written before every run: more than any L2 holds
HELD_CYCLES = 400_000  # how long the device is kept waiting while the host queues a run


@dataclass(frozen=True)
class Plans:
    """The graph, with the plan to run built and selected; `chosen` names it. `uids` are of inputs, then outputs."""

    graph: Any
    handle: Any
    uids: tuple[int, ...]
    chosen: str

    def run(self, *operands: torch.Tensor) -> list[torch.Tensor]:
        """Return dx and the gradients of the parameters, of dy, x, scale and what the forward saved, in that order."""
        return _execute(self.graph, self.handle, self.uids, operands)


def fastest(norm: str, operands: Sequence[torch.Tensor]) -> Plans:
    """Build all plans that the heuristics name, time each on these operands, and keep the fastest."""
    cudnn: Any = import_module("cudnn")
    handle = cudnn.create_handle()
    graph, uids = _graph(cudnn, handle, norm, operands)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
    graph.check_support()
    times_us: dict[int, float] = {}
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
            times_us[index] = _time_us(graph, handle, uids, operands)
        except (RuntimeError, NotImplementedError):  # a plan that cannot be built or run here
            continue
    best = min(times_us, key=times_us.__getitem__)
    graph.build_plan_at_index(best)
    chosen = f"{graph.get_plan_name_at_index(best)}, number {best + 1} of the heuristic's {len(times_us)} plans"
    return Plans(graph, handle, uids, chosen)


def _graph(cudnn: Any, handle: Any, norm: str, operands: Sequence[torch.Tensor]) -> tuple[Any, tuple[int, ...]]:
    """One node: the backward of LayerNorm or RMSNorm, whose inputs and outputs are numbered in the order of `uids`."""
    import torch

    types = cudnn.data_type
    dtypes = {torch.float16: types.HALF, torch.bfloat16: types.BFLOAT16, torch.float32: types.FLOAT}
    graph = cudnn.pygraph(handle=handle, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT)
    names = ("grad", "input", "scale", "mean", "inv_variance")
    if norm == "rms":
        names = ("grad", "input", "scale", "inv_variance")
    given = {
        name: graph.tensor(
            name=name,
            dim=list(operand.shape),
            stride=list(operand.stride()),
            data_type=dtypes[operand.dtype],
            uid=number,
        )
        for number, (name, operand) in enumerate(zip(names, operands, strict=True), start=1)
    }
    if norm == "layer":
        outputs = graph.layernorm_backward(name="layernorm_bwd", **given)
    else:
        outputs = graph.rmsnorm_backward(name="rmsnorm_bwd", has_dbias=False, **given)[:2]
    for number, (output, like) in enumerate(zip(outputs, _likes(operands), strict=False), start=len(given) + 1):
        output.set_uid(number).set_output(True).set_data_type(dtypes[like.dtype])
    return graph, tuple(range(1, len(given) + len(outputs) + 1))


def _likes(operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the outputs are like: dx like x, dweight and dbias like the scale."""
    _, x, scale, *_ = operands
    return [x, scale, scale]


def _execute(graph: Any, handle: Any, uids: Sequence[int], operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    import torch

    cudnn: Any = import_module("cudnn")
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    outputs = [torch.empty_like(like) for like in _likes(operands)[: len(uids) - len(operands)]]
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=operands[0].device)
    graph.execute([*operands, *outputs], workspace, handle=handle, tensor_uids=tuple(uids))
    return outputs


def _time_us(graph: Any, handle: Any, uids: Sequence[int], operands: Sequence[torch.Tensor]) -> float:
    """The median time of a plan from a cold cache, by events, while the host is kept out of the interval."""
    import torch

    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=operands[0].device)
    for _ in range(WARMUPS):
        _execute(graph, handle, uids, operands)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    for start, end in events:
        flushed.zero_()
        torch.cuda._sleep(HELD_CYCLES)
        start.record()
        _execute(graph, handle, uids, operands)
        end.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(end) * 1e3 for start, end in events)
