"""What becomes of each contender in a context, with a device that does nothing and captures that are scripted."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from harness.cases import Grads, NormCase
from harness.cases.traffic import ADD_NAME
from harness.devices.capture import Captured, CaptureError
from harness.errors import UnavailableError
from harness.records.reasons import Reason
from harness.records.schema import HolderRecord, Timing
from harness.records.settings import Settings
from harness.timing.engine import WARM_UP_SAMPLES, CandidateError
from harness.timing.step_contexts import CALLS
from harness.worker import training_step
from harness.worker.interleave import TimingJob
from harness.worker.training_step import TrainingStep
from tests.fake_device import FakeDevice
from tests.timing.test_step_contexts import FakeHolder
from tests.wording import judged, worded

NAMES = ("torch-eager", "quack")
AGAIN = "torch-eager (again)"
SETTINGS = Settings(baseline="torch-eager", min_blocks=2, max_blocks=2, budget_s=1e9)


class Step:
    """A case on a GPU that is not there; `span_us` and `host_us` are the device's, `judge` is asked of each answer.

    `alone_us` is what each takes alone. Captures are scripted: `contents` by name, what is `prepared` in place of a
    call, and the `answer` that a replay leaves as it is.
    """

    def __init__(
        self,
        monkeypatch,
        device="cuda",
        judge=lambda name, answer: None,
        returns=None,
        states=(),
        settings=SETTINGS,
        alone_us=20.0,
        prepared=None,
        answer=None,
        **scripted,
    ):
        self.device = FakeDevice(**scripted)
        self.holder = FakeHolder(self.device.events, states or ("running",))
        self.holder.threads, self.holder.shared_kib = 640, 200
        monkeypatch.setattr(training_step, "make_device", lambda *arguments: self.device)
        monkeypatch.setattr(training_step, "_holder", lambda what: self.holder)
        monkeypatch.setattr(training_step.torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(training_step, "capture", self._capture)
        self.contents = {}
        self.answer = answer
        x, self.dy = torch.zeros(4, 8), torch.ones(4, 8)
        inputs = SimpleNamespace(
            case=NormCase("rms", 4, 8, device=device), x=x, dy=x, tensors=lambda: {"x": x, "dy": self.dy}
        )
        inputs.with_tensors = lambda tensors: SimpleNamespace(**vars(inputs) | {"tensors": lambda: tensors})
        run = returns or {}
        candidates = [
            self.device.candidate(name, prepare=prepared, **({"returns": run[name]} if name in run else {}))
            for name in NAMES
        ]
        alone = {name: Timing(group="g", flush="clean", samples_us=[alone_us], blocks=[0]) for name in NAMES}
        self.step = TrainingStep(TimingJob(inputs, candidates, settings, "g7", judge=judge), alone)

    def _capture(self, prepare):
        run = prepare()
        run()
        name = self.device.samples()[-1] if self.device.samples() else ADD_NAME
        content = self.contents.get(name, Counter(kernel=2, memset=1))
        if isinstance(content, Exception):
            raise content
        return Captured(lambda: self.device.events.append("replay"), self.answer, content, run)

    def time_in(self, context):
        return self.step.time_in(context)

    def timed_spans(self):
        """What happened between each start mark and its end mark, but for the add, which is no candidate's."""
        events = self.device.events
        starts = [place for place, event in enumerate(events) if event == "start"]
        spans = [events[place + 1 : events.index("end", place)] for place in starts]
        return [span for span in spans if span]


def test_all_are_timed_and_the_holder_is_recorded(monkeypatch):
    records = Step(monkeypatch).time_in("beside:8")
    assert set(records.records) == {*NAMES, AGAIN, ADD_NAME}
    assert {record.status for record in records.records.values()} == {"ok"}
    assert records.records["quack"].timing.group == "g7-beside:8"
    assert records.holder == HolderRecord(programs=8, threads=640, shared_kib=200)


def test_replay_that_writes_nothing_is_wrong(monkeypatch):
    """The gradients are right as they are captured; no replay writes them."""
    right = Grads(torch.ones(4, 8), torch.ones(8))

    def judge(name, answer):
        return "dx is off" if answer.dx.isnan().any() else None

    records = Step(monkeypatch, answer=right, judge=judge).time_in("graph").records
    assert judged(records["quack"]) == ("wrong", "in a timed call, dx is off")


def test_hot_dy_keeps_its_values(monkeypatch):
    step = Step(monkeypatch)
    events = step.device.events

    def write(tensor, by):
        events.append(f"dy times {by}" if tensor.data_ptr() == step.dy.data_ptr() else "another")

    monkeypatch.setattr(torch.Tensor, "mul_", write)
    step.time_in("hot-dy")
    starts = [place for place, event in enumerate(events) if event == "start"]
    assert {events[place - 1] for place in starts} == {"dy times 1"}
    assert events.count("dy times 1") == len(starts)
    assert "another" not in events


def test_in_a_row_a_call_elsewhere_precedes_each(monkeypatch):
    def in_place(dy):
        step.device.events.append(f"dy {dy.min():g}")
        dy.mul_(2)

    step = Step(monkeypatch, prepared=lambda elsewhere: lambda: in_place(elsewhere.tensors()["dy"]))
    events, records = step.device.events, step.time_in("in-a-row").records
    assert {record.status for record in records.values()} == {"ok"}
    runs = [place for place, event in enumerate(events) if event.startswith("run ")]
    assert {tuple(events[at - 6 : at]) for at in runs} == {("hold 100", "dy 1", "dy 2", "dy 4", "dy 8", "start")}


def test_the_host_is_timed_over_calls_in_a_row(monkeypatch):
    step = Step(monkeypatch)
    step.time_in("host")
    assert {len(span) for span in step.timed_spans()} == {CALLS}
    assert "flush clean" not in step.device.events


def test_waiting_samples_are_counted(monkeypatch):
    waiting = {"quack": 2700.0}
    step = Step(monkeypatch, span_us=lambda name, run: waiting.get(name, 20.0))
    records = step.time_in("beside:8").records
    assert {name: records[name].timing.waited for name in ("quack", "torch-eager")} == {"quack": 2, "torch-eager": 0}


def test_capture_is_described_by_its_nodes(monkeypatch):
    records = Step(monkeypatch).time_in("graph").records
    assert worded(records["quack"].notes) == ["captured: 2 kernels, 1 memset"]


def test_capture_error_is_unsupported(monkeypatch):
    step = Step(monkeypatch)
    step.contents["quack"] = CaptureError("RuntimeError: it allocates")
    records = step.time_in("graph").records
    assert judged(records["quack"]) == ("unsupported", "cannot be captured: RuntimeError: it allocates")
    assert records["torch-eager"].timing is not None


def test_wrong_answer_in_a_context(monkeypatch):
    step = Step(monkeypatch, judge=lambda name, answer: "dx is off" if name == "quack" else None)
    records = step.time_in("hot-dy").records
    assert judged(records["quack"]) == ("wrong", "in a timed call, dx is off")
    assert records["torch-eager"].status == "ok"


def test_host_that_waited_has_no_times(monkeypatch):
    records = Step(monkeypatch, host_us={"quack": 1e9}).time_in("host").records
    assert (records["quack"].timing, records["quack"].untimed) == (None, Reason("host_waited"))
    assert records["torch-eager"].timing.proven


def test_raising_in_a_context_costs_only_that(monkeypatch):
    calls = Counter()

    def fails():
        calls["quack"] += 1
        if calls["quack"] > WARM_UP_SAMPLES:
            raise RuntimeError("no kernel image")

    records = Step(monkeypatch, returns={"quack": fails}).time_in("beside:8").records
    assert judged(records["quack"]) == ("crashed", "RuntimeError: no kernel image")
    assert len(records["torch-eager"].timing.samples_us) == 2


def test_lost_device_is_a_candidate_error(monkeypatch):
    def fails():
        raise RuntimeError("illegal memory access")

    step = Step(monkeypatch, returns={"quack": fails})
    monkeypatch.setattr(training_step.torch.cuda, "synchronize", fails)
    with pytest.raises(CandidateError, match="quack"):
        step.time_in("hot-dy")


def test_no_competing_kernel_is_a_plain_reason(monkeypatch):
    def refuse(what):
        raise UnavailableError("the kernel that holds multiprocessors cannot run here")

    step = Step(monkeypatch)
    monkeypatch.setattr(training_step, "_holder", refuse)
    records = step.time_in("beside:8").records
    assert {(record.status, worded(record.reason)) for record in records.values()} == {
        ("unsupported", "the kernel that holds multiprocessors cannot run here")
    }
    assert step.device.events == []


def test_forward_and_backward_are_one_call_where_an_adapter_gives_both(monkeypatch):
    step = Step(monkeypatch)
    eager, _ = step.step.job.candidates
    calls = []
    eager.forward_backward = lambda: lambda: calls.append("both")
    records = step.time_in("fwd+bwd").records
    assert records["torch-eager"].timing is not None
    assert records[AGAIN].timing is not None
    assert records["quack"].status == "unsupported"
    assert records["quack"].reason.code == "no_forward"
    assert ADD_NAME not in records
    assert len(calls) > 4
