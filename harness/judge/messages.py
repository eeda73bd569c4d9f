"""The messages between the parent and its processes: JSON lines with a schema and a limit on size, never a pickle."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.records.reasons import Reason
from harness.records.schema import StoredCase
from harness.worker.channel import BadMessageError

LONGEST_LINE = 1 << 18  # bytes; the longest honest one, of 64 calls on a GPU, takes a fifth
Number = Annotated[int, Field(ge=0, lt=1 << 64)]
Seed = Annotated[int, Field(ge=0, lt=1 << 62)]
MostCalls = Annotated[int, Field(ge=1, le=64)]


class JudgeMessage(BaseModel):
    """The base of all messages: a field or type that the schema does not have is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, ser_json_inf_nan="strings")


class StartRunner(JudgeMessage):
    """To a runner, first: the judged `file`, or the name of a `peer`; it enters the sandbox before it loads either."""

    kind: Literal["start"] = "start"
    case: StoredCase
    calls: MostCalls
    file: str | None = None
    peer: str = ""
    scratch: str = ""
    protected: list[int] = []
    without: list[str] = []


class Prepare(JudgeMessage):
    """To a runner: prepare for the inputs that lie in its memory now, a backward for each call."""

    kind: Literal["prepare"] = "prepare"


class Go(JudgeMessage):
    """To a runner: make the calls of a stretch, one on each of the inputs."""

    kind: Literal["go"] = "go"


class Open(JudgeMessage):
    """To the reference, first."""

    kind: Literal["open"] = "open"
    case: StoredCase
    calls: MostCalls


class Attach(JudgeMessage):
    """To the reference: the memory of a runner on a GPU, where that is not a descriptor."""

    kind: Literal["attach"] = "attach"
    runner: Number
    handle: str


class Draw(JudgeMessage):
    """To the reference: write inputs for a runner from a seed for each call; all of them, or those that are `fresh`."""

    kind: Literal["draw"] = "draw"
    runner: Number
    seeds: list[Seed]
    fresh: bool


class Reveal(JudgeMessage):
    """To the reference, on a GPU: hand the last draw to its runner."""

    kind: Literal["reveal"] = "reveal"
    runner: Number


class AnswerPlace(JudgeMessage):
    """Where a gradient lies: an address of the runner's, or an offset from a handle of CUDA IPC; `wide` is fp32."""

    name: str = Field(max_length=16)
    address: Number
    handle: str = Field(default="", max_length=100)
    wide: bool = False


class Commit(JudgeMessage):
    """To the reference, on a GPU: copy these answers now."""

    kind: Literal["commit"] = "commit"
    runner: Number
    answers: list[list[AnswerPlace]] = Field(max_length=64)


class Compare(JudgeMessage):
    """To the reference: compare these calls' answers of the last stretch with float64, and hash them all.

    `in_place` says that dy may have been overwritten; `wide` names the gradients of each call that are fp32.
    """

    kind: Literal["check"] = "check"
    which: list[int]
    wide: list[list[str]]
    in_place: bool


class Calm(JudgeMessage):
    """To the reference, on a GPU: how long a known kernel takes now."""

    kind: Literal["calm"] = "calm"


class Ready(JudgeMessage):
    """The last request is done. From the reference: what it read, in `figures`."""

    kind: Literal["ready"] = "ready"
    figures: dict[str, float] = Field(default={}, max_length=16)
    title: str = Field(default="", max_length=200)


class RunnerReady(JudgeMessage):
    """From a runner, first: the layers that are in force, what it runs, and its memory on a GPU."""

    kind: Literal["hello"] = "hello"
    layers: dict[str, bool] = Field(default={}, max_length=16)
    name: str = Field(max_length=100)
    in_place: bool = False
    version: int = 0
    handle: str = Field(default="", max_length=100)


class Answered(JudgeMessage):
    """From a runner: where the gradients of each call lie."""

    kind: Literal["done"] = "done"
    answers: list[list[AnswerPlace]] = Field(max_length=64)


class Compared(JudgeMessage):
    """From the reference: what is wrong, rho by gradient, and a hash of the bits by gradient for each call."""

    kind: Literal["checked"] = "checked"
    fault: Reason | None = None
    rho: dict[str, float] = {}
    hashes: list[dict[str, str]]


class Failed(JudgeMessage):
    """From a runner: it cannot go on with an implementation."""

    kind: Literal["failed"] = "failed"
    status: Literal["wrong", "crashed", "oom", "unsupported", "missing"]
    reason: Reason


Request = Annotated[
    StartRunner | Prepare | Go | Open | Attach | Draw | Reveal | Commit | Compare | Calm, Field(discriminator="kind")
]
Answer = Annotated[Ready | RunnerReady | Answered | Compared | Failed, Field(discriminator="kind")]
REQUESTS: TypeAdapter[Any] = TypeAdapter(Request)
ANSWERS: TypeAdapter[Any] = TypeAdapter(Answer)


class LineChannel:
    """One end of a socket that carries a message a line; `schema` says which messages may come in."""

    def __init__(self, end: socket.socket, schema: TypeAdapter[Any]) -> None:
        self._end = end
        self._schema = schema
        self._read = b""

    def send(self, message: JudgeMessage) -> None:
        """Send a message; raises OSError where nobody reads."""
        self._end.sendall(message.model_dump_json().encode() + b"\n")

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message, or None after `timeout_s`; raises EOFError at the end, BadMessageError for garbage."""
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._read:
            if len(self._read) > LONGEST_LINE:
                raise BadMessageError
            left_s = None if ends_s is None else max(0.0, ends_s - time.monotonic())
            if not select.select([self._end], [], [], left_s)[0]:
                return None
            try:
                came = os.read(self._end.fileno(), 1 << 16)
            except ConnectionError:
                came = b""
            if not came:
                raise EOFError
            self._read += came
        line, _, self._read = self._read.partition(b"\n")
        try:
            return self._schema.validate_json(line)
        except ValidationError as error:
            raise BadMessageError from error

    def is_silent(self) -> bool:
        """Whether nothing has come since the last message."""
        return not self._read and not select.select([self._end], [], [], 0)[0]

    def close(self) -> None:
        """Close it."""
        self._end.close()


def serve(channel: LineChannel, answers: dict[str, Callable[[Any], JudgeMessage | None]]) -> None:
    """Answer requests by their kind until the other end is closed."""
    try:
        while True:
            request = channel.receive()
            if (answer := answers[request.kind](request)) is not None:
                channel.send(answer)
    except (EOFError, OSError):
        return
