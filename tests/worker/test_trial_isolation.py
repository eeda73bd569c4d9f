"""What one implementation does must not cost another its row."""

from dataclasses import replace

import pytest
import torch

from harness.cases import Grads
from harness.worker import interleave, trial
from tests.mutants.maths import gradients, implementation
from tests.worker.test_trial import RMS, SETTINGS, Session, session

UNTIMED = SETTINGS.changed(timed=False)


def test_overwritten_statistics_are_put_back():
    def prepare(inputs):
        def backward():
            inputs.rstd.zero_()
            return gradients(inputs)

        return backward

    def from_rstd(inputs):
        def backward():
            grads = gradients(inputs)
            return grads if inputs.rstd.count_nonzero() == inputs.rstd.numel() else None

        return backward

    done = session(implementation("faulty", prepare), implementation("trusting", from_rstd))
    assert done.row("trusting").status == "ok"
    assert (done.row("faulty").status, done.row("faulty").reason) == ("wrong", "the backward changed its input rstd")


@pytest.mark.parametrize("function", ["unsupported", "notes", "untimed"])
def test_functions_that_raise_cost_their_own_row(function):
    def fail(case):
        raise KeyError("surprise")

    row = session(implementation("faulty", **{function: fail})).row("faulty")
    assert (row.status, row.reason) == ("crashed", "KeyError: 'surprise'")


def test_without_memory_for_the_flush_rows_are_untimed(monkeypatch):
    def no_memory(flush_bytes):
        raise torch.OutOfMemoryError("tried to allocate the flush buffers")

    monkeypatch.setattr(interleave, "CpuDevice", no_memory)
    done = Session(implementation("honest"), implementation("bystander")).run()
    for name in ("honest", "bystander"):
        row = done.row(name)
        assert (row.status, row.timing) == ("ok", None)
        assert row.untimed == "OutOfMemoryError: tried to allocate the flush buffers"


def test_without_memory_for_the_add_rows_stay_ok(monkeypatch):
    done = Session(implementation("honest"), implementation("bystander"))

    def add(x, dy):
        raise torch.OutOfMemoryError("tried to allocate dx")

    monkeypatch.setattr(trial.torch, "add", add)
    done.run()
    assert [done.row(name).status for name in ("honest", "bystander")] == ["ok", "ok"]


def test_cheating_in_timed_calls_is_caught():
    def prepare(inputs):
        remembered = []

        def backward():
            if all(stage != "time" for _, stage in done.stages):
                return gradients(inputs)
            if not remembered:
                remembered.append(gradients(inputs))
            return remembered[0]

        return backward

    done = Session(implementation("honest"), implementation("faulty", prepare))
    done.run()
    assert done.row("honest").status == "ok"
    assert done.row("faulty").status == "wrong"


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


def test_an_adapter_that_its_own_change_of_x_breaks_is_wrong():
    def prepare(inputs):
        backward = through_autograd(inputs)

        def changes_x():
            grads = backward()
            inputs.x.mul_(2)  # autograd would refuse the next call
            return grads

        return changes_x

    case = replace(RMS, dtype="fp32", weight_dtype="fp32")
    row = session(implementation("faulty", prepare), case=case).row("faulty")
    assert (row.status, row.reason) == ("wrong", "the backward changed its input x")


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


def test_running_out_of_memory_is_no_refusal():
    def prepare(inputs):
        raise torch.OutOfMemoryError("tried to allocate 9 GiB")

    done = Session(implementation("large", prepare), case=replace(RMS, inputs="strided-x"), settings=UNTIMED).run()
    assert done.row("large").status == "oom"


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
