"""The program that calls implementations: the judged one in a sandbox, or peers; nothing here is trusted.

All that it says can be forged: the parent believes the bytes that lie in its memory at the moment when it is stopped.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import synchronize
from pathlib import Path
from typing import Any, cast

import torch

from harness.cases import Grads, Inputs, torch_dtype
from harness.cases.tensors import gradients_of
from harness.errors import UnsupportedError
from harness.judge import memory, sandbox
from harness.judge.messages import (
    NOTHING,
    Answered,
    AnswerPlace,
    Entered,
    Failed,
    Go,
    JudgeMessage,
    Prepare,
    Ready,
    RunnerReady,
    StartRunner,
    serve,
)
from harness.records.reasons import Reason, raised
from harness.verify.precision import malformed
from harness.worker import discovery
from harness.worker.channel import Channel
from harness.worker.rows import status_of
from harness.worker.serve import CPU_ENVIRONMENT

Backward = Callable[[], Grads]


class StretchServer:
    """An implementation of one case, with a backward for each call of a stretch, each on inputs of its own."""

    def __init__(self, start: StartRunner, memories: Sequence[int]) -> None:
        self._start = start
        self._memories = memories
        self._case = start.case

    def open(self) -> JudgeMessage:
        """Load the implementation."""
        start, gpu = self._start, self._case.device != "cpu"
        spans, size = memory.layout(self._case, start.calls, "input", "statistic")
        queues = False
        if gpu:
            self._block = torch.zeros(size + memory.GATE_BYTES, dtype=torch.uint8, device="cuda")
            self._gate = self._block.data_ptr() + size
            with suppress(RuntimeError, AttributeError):  # a driver that cannot
                memory.wait_for(self._gate, 0)
                queues = True
        else:
            os.environ.update(CPU_ENVIRONMENT)
            self._block = memory.host_block(self._memories[0], size)
        tensors = [memory.views(self._block, each) for each in spans]
        self._inputs = [Inputs.of(each, case=self._case, eps=self._case.eps) for each in tensors]
        own = self._implementation = self._load()
        handle = memory.exported(self._block.data_ptr())[0] if gpu else ""
        if own is None:
            return RunnerReady(name=NOTHING, handle=handle, queues=queues)
        in_place, version, saves = bool(own.in_place), int(own.version), (own.saves(self._case) or "")[:200]
        return RunnerReady(
            name=own.name[:100], in_place=in_place, saves=saves, version=version, handle=handle, queues=queues
        )

    def prepare(self, _request: Any) -> JudgeMessage:
        """Prepare the implementation for each of the inputs."""
        implementation = self._implementation
        if implementation is None:
            answers = [self._nothing(each) for each in self._inputs]
            self._backwards: list[Backward] = [lambda answer=answer: answer for answer in answers]
            if self._case.device != "cpu":  # a process's first kernel waits until the GPU has turned to the process
                self._backwards[0] = lambda: (answers[0].dx[:1].zero_(), answers[0])[1]
            return Ready()
        if missing := implementation.missing():
            return Failed(status="missing", reason=Reason("missing", {"text": missing}))
        try:
            if why := implementation.unsupported(self._case):
                return Failed(status="unsupported", reason=Reason("unsupported", {"text": why}))
            implementation.import_ahead()  # as `bench` does
            self._backwards = [implementation.prepare(each.views()) for each in self._inputs]
            gc.freeze()  # a collection in a stretch takes as long for a peer as for one that imports more
        except UnsupportedError as error:
            return Failed(status="unsupported", reason=Reason("unsupported", {"text": str(error)}))
        except Exception as error:
            return failed(error)
        return Ready()

    def go(self, request: Go) -> JudgeMessage:
        """Call each backward once, and say where the gradients lie."""
        try:
            self._copies: list[Any] = []
            self._answers: list[Any] = []  # of the last stretch: their memory is free for this one
            if request.queued:
                memory.wait_for(self._gate, request.word)
            self._answers += [backward() for backward in self._backwards]
            places = [self._places(call, answer) for call, answer in enumerate(self._answers)]  # may copy
            if request.queued:
                memory.write(self._gate + memory.WORD_BYTES, request.word)
            elif self._case.device != "cpu":
                torch.cuda.synchronize()
            return Answered(number=request.number, answers=places)
        except Malformed as fault:
            return Failed(status="wrong", reason=fault.args[0])
        except Exception as error:
            return failed(error)

    def _places(self, call: int, answer: Any) -> list[AnswerPlace]:
        """The places of one call's gradients; `answer` keeps them alive until the next stretch."""
        places: list[AnswerPlace] = []
        for gradient in gradients_of(self._case):
            tensor: Any = getattr(answer, gradient.name, None) if isinstance(answer, Grads) else None
            asked = torch_dtype(gradient.dtype_in(self._case))
            fits = type(tensor) is torch.Tensor and tensor.shape == gradient.shape(self._case)
            if not fits or tensor.dtype not in (asked, torch.float32) or tensor.device.type != self._case.device:
                not_grads = Reason("not_grads", {"type": type(answer).__name__})
                raise Malformed(malformed(self._inputs[call], answer) or not_grads)
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
                self._copies.append(tensor)  # in the time of the one who returned it
            address, handle = tensor.data_ptr(), ""
            if self._case.device != "cpu":
                handle, address = memory.exported(address)
            places.append(AnswerPlace(name=gradient.name, address=address, handle=handle, wide=tensor.dtype != asked))
        return places

    def _nothing(self, inputs: Inputs) -> Grads:
        zeros: dict[str, torch.Tensor] = {}
        for each in gradients_of(self._case):
            dtype = torch_dtype(each.dtype_in(self._case))
            zeros[each.name] = torch.zeros(each.shape(self._case), dtype=dtype, device=inputs.x.device)
        return Grads.of(zeros)

    def _load(self) -> Any:
        setattr(Path, "touch", _touched)  # noqa: B010  Python's makes no file where setting a time seems to work
        # Locks of processes lie in /dev/shm, where nothing may be written; libraries make one and never share it.
        for name in ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event"):
            setattr(synchronize, name, _without_context(getattr(threading, name)))
        if self._start.file is not None:
            return discovery.of_file(Path(self._start.file))[0]
        by_name = {each.name: each for each in discovery.discover()}
        return None if self._start.peer == NOTHING else by_name[self._start.peer]


def _touched(path: Path, mode: int = 0o666, exist_ok: bool = True) -> None:
    os.close(os.open(path, os.O_CREAT | (0 if exist_ok else os.O_EXCL), mode))


def _without_context(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **_context: make(*given)


class Malformed(Exception):  # noqa: N818
    """An answer that is no set of gradients, and why."""


def failed(error: BaseException) -> Failed:
    """An exception as the outcome of an implementation."""
    return Failed(status=status_of(error), reason=raised(error))


def run(channel: Channel[Any], memories: Sequence[int]) -> None:
    """Serve the parent at the other end of the channel."""
    start = cast("StartRunner", channel.receive(None))
    server, on_gpu = StretchServer(start, memories), start.case.device != "cpu"
    try:
        channel.send(Entered(layers=sandbox.enter(Path(start.scratch), start.protected, on_gpu, start.without)))
        hello = server.open()
    except (Exception, SystemExit) as error:
        hello = Failed(status="crashed", reason=raised(error))
    channel.send(hello)
    serve(channel, {Prepare: server.prepare, Go: server.go})
