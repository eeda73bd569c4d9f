from types import SimpleNamespace

import pytest
import torch

from harness.cases import Grads, NormCase, make_inputs
from harness.verify.determinism import fingerprint
from harness.verify.repetition import Repetition, stale, with_new_dy
from harness.verify.robustness import Pristine
from tests.mutants.maths import gradients
from tests.wording import worded

RMS = NormCase("rms", 16, 32, device="cpu")


def repetition(backward=None, case=RMS):
    inputs = make_inputs(case, 1)
    backward = backward or (lambda: gradients(inputs))
    return Repetition(inputs, Pristine.of(inputs), backward, gradients(inputs))


def test_plain_runs_are_counted_with_the_first():
    same = repetition()
    same.plain(4)
    assert (same.repeats, same.differences, same.differing_in) == (5, [], [])


def test_a_run_that_differs_is_counted_and_named():
    calls = []

    def backward():
        calls.append(None)
        grads = gradients(inputs)
        if len(calls) in (2, 3):
            grads.dx[0, 0] += 1
        return grads

    inputs = make_inputs(RMS, 1)
    repeated = Repetition(inputs, Pristine.of(inputs), backward, gradients(inputs))
    repeated.plain(5)
    assert (repeated.repeats, repeated.differences, repeated.differing_in) == (6, [["dx"], ["dx"]], ["dx"])


def test_inputs_are_put_back_before_every_run():
    inputs = make_inputs(RMS, 1)

    def backward():
        grads = gradients(inputs)
        inputs.dy.zero_()
        return grads

    repeated = Repetition(inputs, Pristine.of(inputs), backward, gradients(inputs))
    repeated.plain(3)
    assert repeated.differences == []


def test_differences_under_a_condition_count_in_all():
    inputs = make_inputs(RMS, 1)
    addresses = set()

    def depends_on_its_address():
        grads = gradients(inputs)
        addresses.add(grads.dx.data_ptr())
        grads.dweight[0] = float(len(addresses))
        return grads

    repeated = Repetition(inputs, Pristine.of(inputs), depends_on_its_address, gradients(inputs))
    repeated.under_conditions(24)
    (check,) = repeated.conditions
    assert (check.runs, check.differing, check.differing_in) == (4, 4, ["dweight"])
    assert len(repeated.differences) == 23


@pytest.mark.parametrize("kind", ["normal", "expanded-dy", "summed-dy", "transposed-dy", "3-d", "nan-dy"])
def test_new_dy_is_written_and_restored(kind):
    case = NormCase("rms", 16, 32, device="cpu", inputs=kind)
    inputs = make_inputs(case, 1)
    pristine = Pristine.of(inputs)
    old = gradients(inputs)
    assert with_new_dy(inputs, pristine, lambda: gradients(inputs)) is None
    assert pristine.changed(inputs, in_place=False) == []
    said = worded(with_new_dy(inputs, pristine, lambda: old))
    assert said == "dx, dweight did not follow new contents of dy at the same address"


def test_multiple_of_verified_bits_needs_no_reference(monkeypatch):
    inputs = make_inputs(RMS, 1)
    pristine, right = Pristine.of(inputs), fingerprint(gradients(inputs))
    monkeypatch.setattr("harness.verify.repetition.stale", lambda *_: "compared")
    assert with_new_dy(inputs, pristine, lambda: gradients(inputs), right) is None
    assert with_new_dy(inputs, pristine, lambda: gradients(inputs)) == "compared"
    old, zero = gradients(inputs), gradients(inputs)
    zero.dx.zero_()
    assert with_new_dy(inputs, pristine, lambda: old, right) == "compared"
    assert with_new_dy(inputs, pristine, lambda: zero, right) == "compared"
    answers = iter([gradients(inputs), zero])
    assert with_new_dy(inputs, pristine, lambda: next(answers), right) == "compared"
    assert pristine.changed(inputs, in_place=False) == []


def test_stale_gradients_are_named():
    inputs = make_inputs(RMS, 1)
    wrong = gradients(inputs)
    wrong.dx.neg_()
    assert worded(stale(inputs, wrong, in_replay=True)) == (
        "dx did not follow new contents of dy at the same address in a graph replay"
    )
    assert stale(inputs, Grads(gradients(inputs).dx, gradients(inputs).dweight)) is None


class FakeHolder:
    """A kernel beside a backward on a CPU; `state` is how it looks once the backward has ended."""

    multiprocessors = 132

    def __init__(self, state, starts=True):
        self.occupied, self.left, self._state, self._starts = [], 0, state, starts

    def occupy(self, programs, for_us):
        self.occupied.append(programs)

    def started(self):
        return self._starts

    def state(self):
        return self._state

    def release(self):
        self.left += 1


def beside(monkeypatch, state, runs=4, starts=True):
    holder, repeated = FakeHolder(state, starts), repetition()
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    monkeypatch.setattr("harness.verify.repetition.Holder", lambda threads, shared_kib: holder)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    repeated._try("held multiprocessors", repeated._with_competing_kernel, runs)
    return holder, repeated


def test_bits_are_compared_beside_a_competing_kernel(monkeypatch):
    holder, repeated = beside(monkeypatch, "running")
    assert (holder.occupied, holder.left) == ([8, 32, 8, 32], 4)
    assert (repeated.repeats, repeated.differences, worded(repeated.waits)) == (5, [], None)


@pytest.mark.parametrize("state", ["over", "ended early"])
def test_waiting_for_the_competing_kernel_is_named(monkeypatch, state):
    holder, repeated = beside(monkeypatch, state)
    assert (holder.occupied, holder.left, repeated.repeats) == ([8], 1, 1)
    assert worded(repeated.waits) == (
        "waits for other kernels: it did not end within 0.1 s while another kernel held 8 of 132 multiprocessors"
    )


def test_runs_without_the_competing_kernel_do_not_count(monkeypatch):
    _, repeated = beside(monkeypatch, "running", starts=False)
    (check,) = repeated.conditions
    assert (check.runs, worded(check.skipped)) == (0, "the kernel that holds multiprocessors did not start")
