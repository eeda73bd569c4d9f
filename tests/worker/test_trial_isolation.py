"""What one implementation does must not cost another its row."""

import gc
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from harness.cases import Grads
from harness.verify import verifier
from harness.verify.verifier import HOST_LEAK_RUNS, LEAK_RUNS
from harness.worker import interleave, serve, trial
from harness.worker.messages import Row, Try
from harness.worker.rows import SpoiltError
from tests.mutants.maths import gradients, implementation
from tests.worker.test_trial import RMS, SETTINGS, Session, session

UNTIMED = SETTINGS.changed(timed=False)


@pytest.mark.parametrize("function", ["unsupported", "notes", "untimed"])
def test_functions_that_raise_cost_their_own_row(function):
    def fail(case):
        raise KeyError("surprise")

    row = session(implementation("faulty", **{function: fail})).row("faulty")
    assert (row.status, row.reason) == ("crashed", "KeyError: 'surprise'")


@pytest.mark.parametrize("function", ["unsupported", "notes", "untimed"])
def test_answers_of_the_wrong_type_cost_their_own_row(function):
    answer = {"unsupported": 5, "notes": "a text", "untimed": True}[function]
    row = session(implementation("faulty", **{function: lambda case: answer})).row("faulty")
    assert row.status == "crashed"
    assert row.reason.startswith(f"TypeError: {function} must return a ")
    assert row.reason.endswith(f"it returned {answer!r}")


def test_a_prepare_that_gives_no_backward():
    row = session(implementation("faulty", lambda inputs: None)).row("faulty")
    reason = "TypeError: prepare must return the backward, a function; it returned NoneType"
    assert (row.status, row.reason) == ("crashed", reason)


@pytest.mark.parametrize(
    ("replace_dx", "reason"),
    [
        (lambda dx: dx.float().numpy(), "dx is a ndarray, not a plain tensor"),
        (lambda dx: dx.to_sparse(), "dx is a torch.sparse_coo tensor, not a dense one"),
    ],
)
def test_a_gradient_that_has_no_address_is_wrong(replace_dx, reason):
    def prepare(inputs):
        return lambda: replace(gradients(inputs), dx=replace_dx(gradients(inputs).dx))

    row = session(implementation("faulty", prepare)).row("faulty")
    assert (row.status, row.reason) == ("wrong", reason)


def test_a_memory_leak_is_wrong_on_a_cpu_too():
    kept = []

    def prepare(inputs):
        def backward():
            kept.append(torch.empty(1 << 26, dtype=torch.uint8))
            return gradients(inputs)

        return backward

    row = session(implementation("faulty", prepare)).row("faulty")
    assert row.status == "wrong"
    assert re.search("^every call keeps 6[0-9]{7} bytes of memory$", row.reason)


@pytest.mark.parametrize(("calls", "status"), [(LEAK_RUNS + 1, "ok"), (HOST_LEAK_RUNS + 1, "wrong")])
def test_memory_that_grows_a_few_times_on_a_busy_host_is_no_leak(monkeypatch, calls, status):
    grown = iter([*range(calls), *[calls] * 1000])
    monkeypatch.setattr(verifier, "held_bytes", lambda device: next(grown) << 25)
    settings = UNTIMED.changed(repeats=HOST_LEAK_RUNS + 5)
    assert Session(implementation("honest"), settings=settings).run().row("honest").status == status


def test_where_an_adapter_raised_is_in_the_log_of_the_worker(capfd):
    def prepare(inputs):
        raise KeyError("surprise")

    assert session(implementation("faulty", prepare)).row("faulty").reason == "KeyError: 'surprise'"
    log = capfd.readouterr().err
    assert f'File "{__file__}"' in log
    assert "in prepare" in log


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
    """An adapter with a thread that goes on changing x, from a moment at which it was found right itself."""
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


def test_a_thread_that_changes_inputs_is_nobody_elses_fault(end, pool):
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
    assert row.reason == "a thread that it left at work goes on changing the inputs: meddles"
    assert done.stages[-1][0] == "faulty"  # which is whom the parent believes to be at work


def test_functions_that_a_backward_replaces_are_put_back():
    was = torch.nn.functional.layer_norm, time.perf_counter_ns

    def prepare(inputs):
        def backward():
            torch.nn.functional.layer_norm = time.perf_counter_ns = lambda *_: 0
            return gradients(inputs)

        return backward

    row = session(implementation("faulty", prepare)).row("faulty")
    replaced = "torch.nn.functional.layer_norm, time.perf_counter_ns"
    assert (row.status, row.reason) == ("wrong", f"the backward changed {replaced}")
    assert (torch.nn.functional.layer_norm, time.perf_counter_ns) == was


def test_without_memory_for_the_flush_rows_are_untimed(monkeypatch):
    def no_memory(flush_bytes):
        raise torch.OutOfMemoryError("tried to allocate the flush buffers")

    monkeypatch.setattr(interleave, "CpuDevice", no_memory)
    done = Session(implementation("honest"), implementation("bystander")).run()
    for name in ("honest", "bystander"):
        row = done.row(name)
        assert (row.status, row.timing) == ("ok", None)
        assert row.untimed == "OutOfMemoryError: tried to allocate the flush buffers"


def test_inputs_spoilt_before_raising_are_put_back():
    def prepare(inputs):
        inputs.x.zero_()
        raise RuntimeError("after the damage was done")

    def with_a_forward(inputs):
        answer = gradients(inputs)  # as kernels do that save something of x in the forward
        return lambda: gradients(inputs) if answer.dweight.count_nonzero() else None

    done = session(implementation("faulty", prepare), implementation("trusting", with_a_forward))
    assert (done.row("faulty").status, done.row("trusting").status) == ("crashed", "ok")


def through_autograd(inputs):
    """An honest backward whose graph keeps x, which autograd refuses to use once x was written to."""
    x = inputs.x.detach().requires_grad_()
    weight = inputs.weight.detach().requires_grad_()
    y = torch.nn.functional.rms_norm(x, (inputs.case.cols,), weight, inputs.eps)
    return lambda: Grads(*torch.autograd.grad(y, (x, weight), inputs.dy, retain_graph=True))


def test_an_adapter_that_changes_x_costs_nobody_else_a_row():
    def prepare(inputs):
        def backward():
            grads = gradients(inputs)
            inputs.x.mul_(2)
            return grads

        return backward

    case = replace(RMS, dtype="fp32", weight_dtype="fp32")
    innocent = [implementation(name, through_autograd) for name in ("before", "after")]
    done = session(innocent[0], implementation("faulty", prepare), innocent[1], case=case)
    assert (done.row("faulty").status, done.row("faulty").reason) == ("wrong", "the backward changed its input x")
    for name in ("before", "after"):
        assert (done.row(name).status, done.row(name).reason) == ("ok", None)
        assert len(done.row(name).timing.samples_us) == 4


@pytest.mark.parametrize(
    ("names", "reason"),
    [(("x",), "the backward changed its input x"), (("x", "weight"), "the backward changed its input x, weight")],
)
def test_inputs_changed_in_timed_calls_are_noticed(names, reason):
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
    assert (done.row("faulty").status, done.row("faulty").reason) == ("wrong", f"in a timed call, {reason}")
    for name in ("honest", "bystander"):
        assert (done.row(name).status, done.row(name).reason) == ("ok", None)


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("strided-x", "unsupported", "refused: ValueError: x must be contiguous"),
        ("3-d", "unsupported", "refused: ValueError: x must be contiguous"),
        ("normal", "crashed", "ValueError: x must be contiguous"),
        ("nan-x", "crashed", "ValueError: x must be contiguous"),
    ],
)
def test_an_error_on_an_unusual_layout_is_a_refusal(kind, status, reason):
    def prepare(inputs):
        raise ValueError("x must be contiguous")

    done = Session(implementation("strict", prepare), case=replace(RMS, inputs=kind), settings=UNTIMED).run()
    assert (done.row("strict").status, done.row("strict").reason) == (status, reason)


def test_settings_changed_by_prepare_are_put_back():
    def prepare(inputs):
        torch.set_default_dtype(torch.float64)
        return lambda: gradients(inputs)

    done = Session(implementation("loud", prepare), implementation("next"), settings=UNTIMED).run()
    assert [row.status for row in done.rows] == ["ok", "ok"]
    assert torch.get_default_dtype() == torch.float32


def test_untimed_rows_are_written_as_soon_as_they_are_known():
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


@pytest.mark.parametrize("kept", [True, False])
def test_memory_that_a_failure_keeps_spoils_a_worker_and_garbage_does_not(monkeypatch, kept):
    held = {"garbage": 0, "kept": 0}

    def prepare(inputs):
        held["kept" if kept else "garbage"] += 2 * trial.MOST_HELD_BYTES
        raise ValueError("no such kernel")

    def collect():
        held["garbage"] = 0
        return 0

    monkeypatch.setattr(trial, "_device_bytes", lambda case: sum(held.values()))
    monkeypatch.setattr(gc, "collect", collect)
    done = Session(implementation("faulty", prepare), implementation("honest"))
    if kept:
        with pytest.raises(SpoiltError):
            done.run()
    else:
        done.run()
        assert done.row("honest").status == "ok"
    assert done.row("faulty").status == "crashed"


def test_a_worker_looks_for_garbage_once_it_has_answered(monkeypatch):
    looked, told = [], []
    monkeypatch.setattr(gc, "collect", lambda: looked.append(len(told)) or 0)
    known = {each.name: each for each in (implementation("one"), implementation("two"))}
    try:
        serve.answer(Try(RMS, tuple(known), "group", SETTINGS), known, SimpleNamespace(send=told.append))
        rows_told = sum(isinstance(each, Row) for each in told)
        assert (len(looked), rows_told >= 2, gc.get_freeze_count() > 0) == (1, True, True)
    finally:
        gc.unfreeze()
