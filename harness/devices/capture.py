"""Captures a call in a CUDA graph, and counts the nodes of the graph."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

Answer = TypeVar("Answer")

# CUgraphNodeType and hipGraphNodeType give the first numbers the same meaning.
NODE_KINDS = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host call", 4: "graph", 5: "empty node"}
NODES_OF: dict[bool, tuple[str, str, str]] = {  # the library, and how it lists nodes and says what one is; by "on ROCm"
    False: ("libcuda.so.1", "cuGraphGetNodes", "cuGraphNodeGetType"),
    True: ("libamdhip64.so", "hipGraphGetNodes", "hipGraphNodeGetType"),
}


class CaptureError(Exception):
    """A call cannot be captured in a CUDA graph; the message says why."""


@dataclass(frozen=True)
class Captured(Generic[Answer]):
    """A captured call: `replay` runs it again and writes `answer` anew; `nodes` counts what it holds, by kind.

    `nodes` is None where the driver does not tell. The `call` itself is kept: its replay reads what it has saved.
    """

    replay: Callable[[], None]
    answer: Answer
    nodes: Counter[str] | None
    call: Callable[[], Answer]

    @property
    def content(self) -> str:
        """The nodes in words, such as `2 kernels, 1 memset`."""
        if self.nodes is None:
            return "an unknown number of nodes"
        return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in sorted(self.nodes.items())) or "nothing"


def capture(prepare: Callable[[], Callable[[], Answer]]) -> Captured[Answer]:
    """Prepare a call on a stream of its own, make it once, and capture it there; needs a GPU.

    It has to be prepared on the stream of the capture, because autograd runs a backward on the stream of its forward.
    Raises CaptureError where that fails.
    """
    graph, stream, pool = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    torch.cuda.synchronize()
    try:
        with torch.cuda.stream(stream):
            call = prepare()
            call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            answer = call()
        graph.instantiate()
    except Exception as error:  # an implementation may refuse it; the next call shows whether it did harm
        _abandon(pool)
        raise CaptureError(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}") from error
    return Captured(graph.replay, answer, _nodes(graph), call)


def _abandon(pool: object) -> None:
    """Tell the allocator that a failed capture has ended: torch 2.11 does not, and aborts much later."""
    torch.cuda.synchronize()
    private: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    with suppress(RuntimeError, AttributeError):
        private._cuda_endAllocateToPool(torch.cuda.current_device(), pool)


def _nodes(graph: torch.cuda.CUDAGraph) -> Counter[str] | None:
    """The number of nodes of a graph by kind, as the driver lists them; None where it has no such function."""
    library, list_nodes, kind_of = NODES_OF[torch.version.hip is not None]
    try:
        driver = ctypes.CDLL(library)
        get_nodes, get_kind = getattr(driver, list_nodes), getattr(driver, kind_of)
    except (OSError, AttributeError):
        return None
    handle, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t(0)
    if get_nodes(handle, None, ctypes.byref(count)):
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if count.value and get_nodes(handle, nodes, ctypes.byref(count)):
        return None
    kinds: Counter[str] = Counter()
    for node in nodes[: count.value]:
        kind = ctypes.c_int(-1)
        get_kind(ctypes.c_void_p(node), ctypes.byref(kind))
        kinds[NODE_KINDS.get(kind.value, "other node")] += 1
    return kinds
