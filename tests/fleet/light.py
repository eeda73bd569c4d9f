"""Workers that measure nothing: what they say of their host, and the rows that they give, are scripted."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from harness.devices.facts import DeviceFacts
from harness.records.run_records import ImplRecord
from harness.records.schema import Budget, SelfTestRecord
from harness.run.process import WorkerProcess
from harness.worker.channel import Channel
from harness.worker.messages import Aside, Began, Done, Hello, Request, Row, SelfTest, Try
from harness.worker.own_process import end_with_parent, ignore_interrupts
from tests.results_factory import row, timing

NAMES = {"h200": "NVIDIA H200", "b200": "NVIDIA B200"}
SM = {"h200": "sm_90", "b200": "sm_100"}
BUDGET = Budget(t0_us=1.0, fixed_us=2.0, relative=0.01, ratio=0.02)


@dataclass(frozen=True)
class Script:
    """What the workers do; `folder` is where each says what it is asked, a file a request.

    `hangs` and `blocks` name an implementation: one is silent for ever, the other until there is a file `go`. `torch`
    is the version on each host.
    """

    folder: Path
    kind: str = "h200"
    uuid: str = "0"
    host: str = ""
    torch: Mapping[str, str] = field(default_factory=dict)
    hangs: str = ""
    blocks: str = ""
    others: tuple[int, ...] = ()

    def hello(self):
        return Hello(
            available=[DeviceFacts("cuda", NAMES[self.kind], SM[self.kind], uuid=self.uuid, others=self.others)],
            implementations=[
                ImplRecord(name=name, family=name, source=f"impls/{name}.py") for name in ("torch-eager", "quack")
            ],
            libraries={"torch": self.torch.get(self.host, "2.11.0")},
        )

    def answers(self, request):
        """The events of a request; None in them is silence for the rest of it."""
        match request:
            case SelfTest():
                yield Aside(SelfTestRecord(when=request.when, process=request.process, budget=BUDGET, checks=[]))
            case Try():
                yield from self._tried(request)
        yield Done()

    def _tried(self, request):
        (self.folder / f"{time.time_ns()} {self.uuid} {request.process} {request.case.rows}").touch()
        for impl in request.impls:
            yield Began(impl, "time")
            if impl == self.hangs:
                yield None
            while impl == self.blocks and not (self.folder / "go").exists():
                time.sleep(0.02)
            timed = timing(10.0, group=request.group)
            yield Row(row(impl, 10.0, request.case, timed=timed, process=request.process))


def asked(folder):
    """What was tried, in order: (GPU, process, rows of the case)."""
    parts = [path.name.split() for path in sorted(folder.glob("* *"))]
    return [(gpu, int(process), int(rows)) for _, gpu, process, rows in parts]


class InProcess:
    """A worker in this process, whose events never come two at once."""

    def __init__(self, script):
        self._events = iter([script.hello()])
        self._script = script

    def send(self, request):
        self._events = self._script.answers(request)

    def receive(self, timeout_s):
        return next(self._events) if timeout_s else None

    def kill(self):
        pass


class LightProcess(WorkerProcess):
    """A worker in a process of its own, which imports neither torch nor an implementation."""

    def __init__(self, script):
        super().__init__(script, Path(), play)


def play(connection, script, _):
    """The body of a LightProcess."""
    ignore_interrupts()
    end_with_parent()
    channel = Channel(connection, get_args(Request))
    channel.send(script.hello())
    while True:
        try:
            request = channel.receive(None)
        except EOFError:
            return
        for event in script.answers(request):
            while event is None:
                time.sleep(1)
            channel.send(event)


def rows_of(results):
    """The rows of a run as (process, rows of the case, implementation)."""
    return sorted((row.process, row.case.rows, row.impl) for row in results.rows)
