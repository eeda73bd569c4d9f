"""The program that calls implementations: the judged one in a sandbox, or peers; nothing here is trusted.

All that it says can be forged: the parent believes the bytes that lie in its memory at the moment when it is stopped.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cases import Grads, Inputs
from harness.cases.tensors import gradients_of
from harness.judge import memory, sandbox
from harness.judge.children import end_with_parent
from harness.judge.messages import (
    REQUESTS,
    Answered,
    AnswerPlace,
    Channel,
    Failed,
    Message,
    Prepare,
    Ready,
    RunnerReady,
    StartRunner,
    serve,
)
from harness.records.reasons import Reason, raised

NOTHING = "nothing"  # the implementation that does no work: what is left is the judge's own time
Backward = Callable[[], Grads]


class StretchServer:
    """Implementations of one case, with a backward for each call of a stretch, all on inputs of their own."""

    def __init__(self, start: StartRunner) -> None:
        self._start = start
        self._case = start.case
        self.layers: dict[str, bool] = {}
        self._backwards: dict[str, list[Backward]] = {}

    def open(self) -> Message:
        """Load the implementations, in the sandbox where there is a judged file."""
        gpu, file = self._case.device != "cpu", self._start.file
        if file is not None:
            scratch = Path(self._start.scratch)
            self.layers = sandbox.enter(scratch, self._start.protected, gpu, self._start.without)
        import torch

        spans, size = memory.layout(self._case, self._start.calls, "input", "statistic")
        if self._start.memory_fd is None:
            self._block = torch.zeros(size, dtype=torch.uint8, device="cuda")
        else:
            self._block = memory.host_block(self._start.memory_fd, size)
        tensors = [memory.views(self._block, each) for each in spans]
        self._inputs = [Inputs.of(each, case=self._case, eps=self._case.eps) for each in tensors]
        self._implementations = {each.name: each for each in self._load(file)}
        first = next(iter(self._implementations.values()))
        return RunnerReady(
            layers=self.layers,
            names=list(self._implementations),
            in_place=bool(first.in_place),
            version=int(first.version),
            handle=memory.exported(self._block.data_ptr())[0] if gpu else "",
        )

    def prepare(self, request: Prepare) -> Message:
        """Prepare an implementation, and call it once, which may compile it."""
        if request.impl == NOTHING:
            answers = [self._nothing(each) for each in self._inputs]
            self._backwards[NOTHING] = [lambda answer=answer: answer for answer in answers]
            return Ready()
        implementation = self._implementations[request.impl]
        if missing := implementation.missing():
            return Failed(status="missing", reason=Reason("missing", {"text": missing}))
        try:
            if why := implementation.unsupported(self._case):
                return Failed(status="unsupported", reason=Reason("unsupported", {"text": why}))
            self._backwards[request.impl] = [implementation.prepare(each.views()) for each in self._inputs]
        except Exception as error:
            return failed(error)
        return Ready()

    def go(self, request: Any) -> Message:
        """Call each backward once, and say where the gradients lie."""
        backwards = self._backwards[request.impl]
        try:
            self._copies: list[Any] = []
            self._answers = [backward() for backward in backwards]
            if self._case.device != "cpu":
                self._wait()
            return Answered(answers=[self._places(number, answer) for number, answer in enumerate(self._answers)])
        except Malformed as fault:
            return Failed(status="wrong", reason=fault.reason)
        except Exception as error:
            return failed(error)

    def _wait(self) -> None:
        import torch

        torch.cuda.synchronize()

    def _places(self, number: int, answer: Any) -> list[AnswerPlace]:
        """The places of one call's gradients; `answer` keeps them alive until the next stretch."""
        import torch

        from harness.cases import torch_dtype

        places: list[AnswerPlace] = []
        for gradient in gradients_of(self._case):
            tensor = getattr(answer, gradient.name, None) if isinstance(answer, Grads) else None
            asked = torch_dtype(gradient.dtype_in(self._case))
            fits = type(tensor) is torch.Tensor and tensor.shape == gradient.shape(self._case)
            if not fits or tensor.dtype not in (asked, torch.float32) or tensor.device.type != self._case.device:
                raise Malformed(self._fault(number, answer))
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
                self._copies.append(tensor)  # in the time of the one who returned it
            address, handle = tensor.data_ptr(), ""
            if self._case.device != "cpu":
                handle, address = memory.exported(address)
            places.append(AnswerPlace(name=gradient.name, address=address, handle=handle, wide=tensor.dtype != asked))
        return places

    def _fault(self, number: int, answer: Any) -> Reason:
        from harness.verify.precision import malformed

        return malformed(self._inputs[number], answer) or Reason("not_grads", {"type": type(answer).__name__})

    def _nothing(self, inputs: Inputs) -> Grads:
        import torch

        from harness.cases import torch_dtype

        device = inputs.x.device
        return Grads.of(
            {
                gradient.name: torch.zeros(
                    gradient.shape(self._case), dtype=torch_dtype(gradient.dtype_in(self._case)), device=device
                )
                for gradient in gradients_of(self._case)
            }
        )

    def _load(self, file: str | None) -> list[Any]:
        from harness.worker import discovery

        if file is not None:
            return discovery.of_file(Path(file))
        by_name = {each.name: each for each in discovery.discover()}
        return [by_name[name] for name in self._start.peers]


class Malformed(Exception):  # noqa: N818
    """An answer that is no set of gradients."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def failed(error: BaseException) -> Failed:
    """An exception as the outcome of an implementation."""
    import torch

    memory_short = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
    return Failed(status="oom" if memory_short else "crashed", reason=raised(error))


def run(descriptor: int) -> None:
    """Serve the parent at the other end of a socket."""
    end_with_parent()
    channel = Channel(socket.socket(fileno=descriptor), REQUESTS)
    channel.send(Ready(figures={"pid": os.getpid()}))
    runner = StretchServer(channel.receive())
    try:
        hello = runner.open()
    except (Exception, SystemExit) as error:
        hello = Failed(status="crashed", reason=raised(error))
    channel.send(hello)
    serve(channel, {"prepare": runner.prepare, "go": runner.go})


if __name__ == "__main__":
    run(int(sys.argv[1]))
