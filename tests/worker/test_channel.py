"""Messages between the parent and a worker: what arrives is what was sent, and nothing but messages arrives."""

import os
from dataclasses import replace
from multiprocessing import Pipe
from typing import get_args

import pytest

from harness.cases import NormCase
from harness.devices.facts import DeviceFacts
from harness.records.reasons import Reason
from harness.records.run_records import ImplRecord
from harness.records.schema import Budget, ConditionsRecord, SelfTestRecord
from harness.records.settings import Settings
from harness.worker.channel import BadMessageError, Channel
from harness.worker.messages import (
    Aside,
    Began,
    Done,
    Event,
    Hello,
    ListConfigs,
    Load,
    Offer,
    Offered,
    Refused,
    Request,
    Row,
    Try,
    Warm,
)
from tests.results_factory import row, timing

CASE = NormCase("layer", 3, 8, "fp16", "fp32", bias=True, eps=1e-5, features=("residual",), device="cpu")
BUDGET = Budget(t0_us=0.1, fixed_us=2.0, relative=0.01, ratio=1 / 3)
NOT_FINITE = Reason("text", {"of": float("inf"), "names": ["a\u2028b", "\n"]}, [Reason("missing", {"text": "é"})])
MESSAGES = [
    Try(CASE, ("a", "b"), "g1", Settings(shapes="3x8", context=("cold", "beside:8")), process=2, studied=True),
    Warm(CASE, "a", 7),
    Load(CASE, ("a", "b")),
    ListConfigs("a", (CASE, replace(CASE, rows=4))),
    Hello(
        [DeviceFacts("cuda", "GPU", "sm_90", memory_bytes=1 << 40, uuid="1", others=(3, 4))],
        [ImplRecord(name="a", family="a", source="a.py", missing=NOT_FINITE)],
        {"torch": "2"},
        {"a": "no file"},
    ),
    Refused("no adapter", 2),
    Began(None, "inputs"),
    Row(row("a", 10.0, CASE, timed=timing(1 / 3, group="g1"))),
    Row(row("a", None, CASE, "crashed", reason="text \u20ac | <b>")),
    Aside(ConditionsRecord(case=CASE, group="g1", process=1)),
    Aside(SelfTestRecord(when="before", process=1, budget=BUDGET, checks=[])),
    Offered([Offer({"first": {"tile": [1, 2], "deep": {"x": None}}}), Offer(refusal="no")]),
    Done(),
]
KINDS = (*get_args(Request), *get_args(Event))


@pytest.fixture
def ends():
    ours, theirs = Pipe()
    with ours, theirs:
        yield Channel(ours, KINDS), Channel(theirs, KINDS), theirs


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_arrives_is_what_was_sent(ends, message):
    ours, theirs, _ = ends
    theirs.send(message)
    theirs.send(Done())
    assert ours.receive(0.0) == message
    assert ours.receive(None) == Done()
    assert ours.receive(0.0) is None


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"Done 3\n", "Done with a body: "),
        (b"Hello {}\n", "Hello with available: Field required"),
        (b'Began {"impl": null, "stage": "else"}\n', "Began with stage: "),
        (b"Began " + b"[" * 10_000 + b"\n", "Began with a body: "),
        (b"os.system {}\n", "one that begins with b'os.system'"),
        (b"\xff\x80\n", "one that begins with"),
        (b"x" * 3000, "one of more than"),
    ],
)
def test_what_is_no_message_is_refused(sent, fault):
    our_end, their_end = Pipe()
    with our_end, their_end:
        ours, theirs = Channel(our_end, KINDS, largest_bytes=2000), Channel(their_end, KINDS)
        theirs.send(Done())
        os.write(their_end.fileno(), sent)
        assert ours.receive(0.0) == Done()
        with pytest.raises(BadMessageError, match=f"^{fault}"):
            ours.receive(0.0)


def test_a_message_may_come_in_parts(ends):
    ours, _, end = ends
    for part in (b"Began {", b'"impl": "a", ', b'"stage": "time"}'):
        os.write(end.fileno(), part)
        assert ours.receive(0.01) is None
    os.write(end.fileno(), b"\nDone {}\n")
    assert [ours.receive(0.0), ours.receive(0.0)] == [Began("a", "time"), Done()]


def test_the_end_of_a_stream(ends):
    ours, _, end = ends
    end.close()
    with pytest.raises(EOFError):
        ours.receive(None)
    with pytest.raises(OSError, match="pipe"):
        ours.send(Done())
