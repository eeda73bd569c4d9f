"""The messages between the parent and its processes: JSON lines with a schema and a limit on size, never a pickle."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.records.reasons import Reason
from harness.records.schema import StoredCase
from harness.worker.channel import Channel

LONGEST_LINE = 1 << 18  # bytes; the longest honest one, of 64 calls on a GPU, takes a fifth
NOTHING = "nothing"  # the implementation that does no work: what is left is the judge's own time
LATE = "late"  # what the reference says of a stretch that did not end
STRETCH_LIMIT_S = 30.0
ALMOST = 1 << 60  # with a seed, which is less: its draw, but for the sign of a row of dy
Number = Annotated[int, Field(ge=0, lt=1 << 64)]
Seed = Annotated[int, Field(ge=0, lt=1 << 62)]
MostCalls = Annotated[int, Field(ge=1, le=64)]


class JudgeMessage(BaseModel):
    """The base of all messages: a field or type that the schema does not have is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, ser_json_inf_nan="strings")


class StartRunner(JudgeMessage):
    """To a runner, first: the judged `file`, or the name of a `peer`; it enters the sandbox before it loads either."""

    case: StoredCase
    calls: MostCalls
    file: str | None = None
    peer: str = ""
    scratch: str = ""
    protected: list[int] = []
    without: list[str] = []


class Prepare(JudgeMessage):
    """To a runner: prepare for the inputs that lie in its memory now, a backward for each call."""


class Go(JudgeMessage):
    """To a runner: make the calls of a stretch, one on each of the inputs; the number cannot be known before.

    With `queued`, on a GPU, they wait there until the word of the number opens the gate.
    """

    number: Seed
    queued: bool = False

    @property
    def word(self) -> int:
        """32 bits of the number, never 0."""
        return 1 + self.number % 0x7FFFFFFF


class Open(JudgeMessage):
    """To the reference, first."""

    case: StoredCase
    calls: MostCalls


class Attach(JudgeMessage):
    """To the reference: the memory of a runner, by a path or a handle of CUDA IPC."""

    runner: Number
    handle: str


class Draw(JudgeMessage):
    """To the reference: write inputs for a runner from a seed for each call, or fresh dy alone; `swaps` is of x."""

    runner: Number
    seeds: list[Seed]
    fresh: bool
    swaps: bool = False


class AnswerPlace(JudgeMessage):
    """Where a gradient lies: an address of the runner's, or an offset from a handle of CUDA IPC; `wide` is fp32."""

    name: str = Field(max_length=16)
    address: Number
    handle: str = Field(default="", max_length=100)
    wide: bool = False


class Reveal(JudgeMessage):
    """To the reference, on a GPU: hand the last draw to its runner, and open the gate.

    With the `answers` of calls that are queued behind it: how long these take from here, by this process's own events.
    """

    runner: Number
    word: int = 0  # for no gate
    answers: list[list[AnswerPlace]] = Field(default=[], max_length=64)


class Commit(JudgeMessage):
    """To the reference, on a GPU: copy these answers now."""

    runner: Number
    answers: list[list[AnswerPlace]] = Field(max_length=64)


class Compare(JudgeMessage):
    """To the reference: compare these calls' answers of the last stretch with float64, and hash them all.

    `in_place` says that dy may have been overwritten; `wide` names the gradients of each call that are fp32.
    """

    which: list[int]
    wide: list[list[str]]
    in_place: bool


class Calm(JudgeMessage):
    """To the reference, on a GPU: how long a known kernel takes now."""


class Ready(JudgeMessage):
    """The last request is done. From the reference: what it read, in `figures`."""

    figures: dict[str, float] = Field(default={}, max_length=16)
    title: str = Field(default="", max_length=200)


class Entered(JudgeMessage):
    """From a runner, before it loads anything of a stranger's: the layers that are in force."""

    layers: dict[str, bool] = Field(max_length=16)


class RunnerReady(JudgeMessage):
    """From a runner: what it runs and `saves` of x, its memory on a GPU, and whether calls can wait there."""

    name: str = Field(max_length=100)
    in_place: bool = False
    saves: str = Field(default="", max_length=200)
    version: int = 0
    handle: str = Field(default="", max_length=100)
    queues: bool = False


class Answered(JudgeMessage):
    """From a runner: where the gradients of each call lie, with the number of the request."""

    number: Seed
    answers: list[list[AnswerPlace]] = Field(max_length=64)


class Compared(JudgeMessage):
    """From the reference: what is wrong, rho by gradient, and a hash of the bits by gradient for each call."""

    fault: Reason | None = None
    rho: dict[str, float] = {}
    hashes: list[dict[str, str]]


class Failed(JudgeMessage):
    """From a runner: it cannot go on with an implementation."""

    status: Literal["wrong", "crashed", "oom", "unsupported", "missing"]
    reason: Reason


REQUESTS = (StartRunner, Prepare, Go, Open, Attach, Draw, Reveal, Commit, Compare, Calm)
ANSWERS = (Ready, Entered, RunnerReady, Answered, Compared, Failed)


def channel_of(end: socket.socket, kinds: tuple[type[JudgeMessage], ...]) -> Channel[JudgeMessage]:
    """One end of a socket, at which these kinds of messages may come in."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)  # a byte out of band would announce what no read returns
    return Channel(end, kinds, LONGEST_LINE)


def serve(channel: Channel[Any], answers: dict[type[Any], Callable[[Any], JudgeMessage]]) -> None:
    """Answer requests by their kind until the other end is closed."""
    try:
        while True:
            request = channel.receive(None)
            channel.send(answers[type(request)](request))
    except (EOFError, OSError):
        return
