"""What one implementation does must not cost another its row."""

import pytest
import torch

from harness import interleave, trial
from tests.mutants.maths import gradients, implementation
from tests.verify.test_trial import Session, session


def test_statistics_that_an_adapter_overwrites_are_put_back_for_the_next():
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
def test_an_adapter_whose_own_functions_raise_costs_its_own_row(function):
    def fail(case):
        raise KeyError("surprise")

    row = session(implementation("faulty", **{function: fail})).row("faulty")
    assert (row.status, row.reason) == ("crashed", "KeyError: 'surprise'")


def test_a_device_without_memory_for_the_flush_leaves_verified_rows_untimed(monkeypatch):
    def no_memory(flush_bytes):
        raise torch.OutOfMemoryError("tried to allocate the flush buffers")

    monkeypatch.setattr(interleave, "CpuDevice", no_memory)
    done = Session(implementation("honest"), implementation("bystander")).run()
    for name in ("honest", "bystander"):
        row = done.row(name)
        assert (row.status, row.timing) == ("ok", None)
        assert row.untimed == "OutOfMemoryError: tried to allocate the flush buffers"


def test_a_floor_that_does_not_fit_leaves_verified_rows_untimed(monkeypatch):
    done = Session(implementation("honest"), implementation("bystander"))

    def add(x, dy):
        raise torch.OutOfMemoryError("tried to allocate dx")

    monkeypatch.setattr(trial.torch, "add", add)
    done.run()
    assert [done.row(name).status for name in ("honest", "bystander")] == ["ok", "ok"]


def test_an_implementation_that_cheats_once_it_is_timed_is_caught():
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


def test_inputs_that_an_adapter_spoils_before_it_raises_are_put_back_for_the_next():
    def prepare(inputs):
        inputs.x.zero_()
        raise RuntimeError("after the damage was done")

    def with_a_forward(inputs):
        answer = gradients(inputs)  # as kernels do that save something of x in the forward
        return lambda: gradients(inputs) if answer.dweight.count_nonzero() else None

    done = session(implementation("faulty", prepare), implementation("trusting", with_a_forward))
    assert (done.row("faulty").status, done.row("trusting").status) == ("crashed", "ok")
