"""What one implementation does must not cost another its row."""

import os
import re
import signal
import subprocess
import threading
import time
from _thread import start_new_thread
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate, cycle
from pathlib import Path

import pytest
import torch

from harness.cases import Grads
from harness.verify import left_processes, verifier
from harness.verify.verifier import LEAK_RUNS
from harness.worker.rows import SpoiltError
from tests.mutants.maths import gradients, implementation
from tests.wording import judged, worded
from tests.worker.test_trial import RMS, SETTINGS, Session, session

UNTIMED = SETTINGS.changed(timed=False)


@pytest.mark.parametrize("function", ["unsupported", "notes", "untimed"])
def test_functions_that_raise_cost_their_own_row(function):
    def fail(case):
        raise KeyError("surprise")

    row = session(implementation("faulty", **{function: fail})).row("faulty")
    assert judged(row) == ("crashed", "KeyError: 'surprise'")


@pytest.mark.parametrize("function", ["unsupported", "notes", "untimed"])
def test_answer_of_wrong_type_costs_its_own_row(function):
    answer = {"unsupported": 5, "notes": "a text", "untimed": True}[function]
    row = session(implementation("faulty", **{function: lambda case: answer})).row("faulty")
    assert row.status == "crashed"
    assert worded(row.reason).startswith(f"TypeError: {function} must return a ")
    assert worded(row.reason).endswith(f"it returned {answer!r}")


def test_a_memory_leak_is_wrong_on_a_cpu_too():
    kept = []

    def prepare(inputs):
        def backward():
            kept.append(torch.empty(1 << 26, dtype=torch.uint8))
            return gradients(inputs)

        return backward

    row = session(implementation("faulty", prepare)).row("faulty")
    assert row.status == "wrong"
    assert re.search("^every call keeps 6[0-9]{7} bytes of memory$", worded(row.reason))


@pytest.mark.parametrize(("calls", "status"), [(LEAK_RUNS["cuda"] + 1, "ok"), (LEAK_RUNS["cpu"] + 1, "wrong")])
def test_few_growths_on_a_busy_host_are_no_leak(monkeypatch, calls, status):
    grown = iter([*range(calls), *[calls] * 1000])
    monkeypatch.setattr(verifier, "bytes_in_use", lambda device: next(grown) << 25)
    settings = UNTIMED.changed(repeats=LEAK_RUNS["cpu"] + 5)
    assert Session(implementation("honest"), settings=settings).run().row("honest").status == status


@pytest.fixture
def end():
    """Set when a test is over, so that no thread of its outlives it."""
    over = threading.Event()
    yield over
    over.set()
    for thread in threading.enumerate():
        if thread.name == "meddles":
            thread.join()


def meddling(end, in_prepare):
    """An adapter with a thread that goes on changing x, from a moment after its own verification."""
    begin = threading.Event()

    def meddle(inputs):
        begin.wait()
        while not end.wait(0.0001):
            inputs.x.mul_(1.5)

    def prepare(inputs):
        thread = threading.Thread(target=meddle, args=(inputs,), name="meddles")
        if in_prepare:
            thread.start()

        def backward():
            if not in_prepare and not thread.is_alive():
                thread.start()
                begin.set()
            return gradients(inputs)

        return backward

    return implementation("faulty", prepare), begin


@pytest.fixture
def pool():
    with ThreadPoolExecutor() as executor:
        yield executor


def test_thread_that_changes_inputs_is_blamed(end, pool):
    faulty, begin = meddling(end, in_prepare=True)

    def begins(inputs):
        def backward():
            begin.set()
            time.sleep(0.01)
            return gradients(inputs)

        return backward

    elsewhere = "def prepare(inputs):\n    pool.submit(int).result()\n    return lambda: gradients(inputs)"
    names = {"gradients": gradients, "pool": pool}
    exec(compile(elsewhere, "a library", "exec"), names)
    pooled = implementation("pooled", names["prepare"])
    done = Session(implementation("honest"), pooled, faulty, implementation("unlucky", begins))
    with pytest.raises(SpoiltError):
        done.run()
    (row,) = done.rows  # the others have to be tried again in another process
    assert (row.impl, row.status) == ("faulty", "wrong")
    assert worded(row.reason) == "a thread that it left at work goes on changing the inputs: meddles"
    assert done.stages[-1][0] == "faulty"  # which is whom the parent believes to be at work


@pytest.fixture
def leaving():
    """Makes adapters that leave a process behind, once, in a session of its own; all end with the test."""
    left = []

    def make(name, script):
        def prepare(inputs):
            if name not in [process.args[-1] for process in left]:
                left.append(subprocess.Popen(["sh", "-c", script, name], start_new_session=True))
            return lambda: gradients(inputs)

        return implementation(name, prepare)

    yield make
    for process in left:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("script", ["while :; do :; done", "(while :; do :; done) & sleep 100"])
def test_process_left_at_work_is_blamed(monkeypatch, leaving, script):
    monkeypatch.setattr(left_processes, "LOOKS", 3)
    adapters = implementation("honest"), leaving("pooled", "sleep 100"), leaving("faulty", script)
    done = Session(*adapters, settings=SETTINGS.changed(seeds=1))
    with pytest.raises(SpoiltError):
        done.run()
    (row,) = done.rows  # the others have to be timed again in another process
    assert (row.impl, row.status) == ("faulty", "wrong")
    assert worded(row.reason).startswith("what it left at work slows all that is timed: sh -c")


def test_thread_that_python_does_not_know_is_blamed(monkeypatch):
    started, stop = [], threading.Event()
    monkeypatch.setattr(left_processes, "LOOKS", 3)

    def prepare(inputs):
        started.append(started or start_new_thread(lambda: any(iter(stop.is_set, True)), ()))
        return lambda: gradients(inputs)

    done = Session(implementation("faulty", prepare), implementation("honest"), settings=SETTINGS.changed(seeds=1))
    with pytest.raises(SpoiltError):
        done.run()
    stop.set()
    assert worded(done.row("faulty").reason).startswith("what it left at work slows all that is timed: thread ")


@pytest.mark.parametrize(("at_work", "found"), [([1, 0, 0], ["2"]), ([0, 0, 0], []), ([1, 0, 0, 0], [])])
def test_work_that_comes_in_bursts_is_seen(monkeypatch, at_work, found):
    ticks = accumulate(cycle(at_work))
    monkeypatch.setattr(left_processes, "LOOK_S", 0)
    monkeypatch.setattr(left_processes, "_ticks", lambda process: next(ticks))
    assert list(left_processes.stay_busy([Path("/nowhere/2")]).values()) == found


def through_autograd(inputs):
    """An honest backward whose graph keeps x, which autograd refuses to use once x was written to."""
    x = inputs.x.detach().requires_grad_()
    weight = inputs.weight.detach().requires_grad_()
    y = torch.nn.functional.rms_norm(x, (inputs.case.cols,), weight, inputs.eps)
    return lambda: Grads(*torch.autograd.grad(y, (x, weight), inputs.dy, retain_graph=True))


def test_changed_x_costs_only_its_own_row():
    def prepare(inputs):
        def backward():
            grads = gradients(inputs)
            inputs.x.mul_(2)
            return grads

        return backward

    case = replace(RMS, dtype="fp32", weight_dtype="fp32")
    innocent = [implementation(name, through_autograd) for name in ("before", "after")]
    done = session(innocent[0], implementation("faulty", prepare), innocent[1], case=case)
    assert judged(done.row("faulty")) == ("wrong", "the backward changed its input x")
    for name in ("before", "after"):
        assert judged(done.row(name)) == ("ok", None)
        assert len(done.row(name).timing.samples_us) == 4


@pytest.mark.parametrize(
    ("names", "reason"),
    [(("x",), "the backward changed its input x"), (("x", "weight"), "the backward changed its input x, weight")],
)
def test_inputs_changed_in_timed_calls_are_wrong(names, reason):
    def prepare(inputs):
        def backward():
            grads = gradients(inputs)
            if any(stage == "time" for _, stage in done.stages):
                for name in names:
                    getattr(inputs, name).mul_(2)
            return grads

        return backward

    done = Session(implementation("honest"), implementation("faulty", prepare), implementation("bystander"))
    done.run()
    assert judged(done.row("faulty")) == ("wrong", f"in a timed call, {reason}")
    for name in ("honest", "bystander"):
        assert judged(done.row(name)) == ("ok", None)


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("strided-x", "unsupported", "refused: ValueError: x must be contiguous"),
        ("3-d", "unsupported", "refused: ValueError: x must be contiguous"),
        ("normal", "crashed", "ValueError: x must be contiguous"),
        ("nan-x", "crashed", "ValueError: x must be contiguous"),
    ],
)
def test_error_on_unusual_layout_is_a_refusal(kind, status, reason):
    def prepare(inputs):
        raise ValueError("x must be contiguous")

    done = Session(implementation("strict", prepare), case=replace(RMS, inputs=kind), settings=UNTIMED).run()
    assert judged(done.row("strict")) == (status, reason)


def test_untimed_rows_are_written_at_once():
    """So that a worker that dies of one implementation does not take the others' rows with it."""
    known = []

    def prepare(inputs):
        known.append([row.impl for row in done.rows])
        return lambda: gradients(inputs)

    done = Session(
        implementation("one", prepare), implementation("two", prepare), settings=SETTINGS.changed(timed=False, seeds=1)
    )
    done.run()
    assert known == [[], ["one"]]
