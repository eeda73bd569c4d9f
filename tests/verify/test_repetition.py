import pytest

from harness.cases import Grads, NormCase, make_inputs
from harness.verify.repetition import SHARES, Repetition, stale, with_new_dy
from harness.verify.robustness import Pristine
from tests.mutants.maths import gradients

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
    found = Repetition(inputs, Pristine.of(inputs), backward, gradients(inputs))
    found.plain(5)
    assert (found.repeats, found.differences, found.differing_in) == (6, [["dx"], ["dx"]], ["dx"])


def test_inputs_are_put_back_before_every_run():
    inputs = make_inputs(RMS, 1)

    def backward():
        grads = gradients(inputs)
        inputs.dy.zero_()
        return grads

    found = Repetition(inputs, Pristine.of(inputs), backward, gradients(inputs))
    found.plain(3)
    assert found.differences == []


def test_a_cpu_has_one_condition_and_plain_runs():
    found = repetition()
    found.under_conditions(13)
    assert found.repeats == 13
    assert [(check.condition, check.runs, check.differing) for check in found.conditions] == [
        ("shuffled allocator", 2, 0)
    ]


def test_differences_under_a_condition_count_in_all():
    inputs = make_inputs(RMS, 1)
    addresses = set()

    def depends_on_its_address():
        grads = gradients(inputs)
        addresses.add(grads.dx.data_ptr())
        grads.dweight[0] = float(len(addresses))
        return grads

    found = Repetition(inputs, Pristine.of(inputs), depends_on_its_address, gradients(inputs))
    found.under_conditions(24)
    (check,) = found.conditions
    assert (check.runs, check.differing, check.differing_in) == (4, 4, ["dweight"])
    assert len(found.differences) == 23


def test_the_shares_of_conditions_leave_some_for_plain_runs():
    assert 0 < sum(SHARES.values()) < 1


@pytest.mark.parametrize("kind", ["normal", "expanded-dy", "summed-dy", "transposed-dy", "3-d", "nan-dy"])
def test_new_dy_is_written_in_place_and_taken_back(kind):
    case = NormCase("rms", 16, 32, device="cpu", inputs=kind)
    inputs = make_inputs(case, 1)
    pristine = Pristine.of(inputs)
    old = gradients(inputs)
    assert with_new_dy(inputs, pristine, lambda: gradients(inputs)) is None
    assert pristine.changed(inputs, in_place=False) == []
    said = with_new_dy(inputs, pristine, lambda: old)
    assert said == "dx, dweight did not follow new contents of dy at the same address"


def test_where_it_did_not_follow_is_said():
    inputs = make_inputs(RMS, 1)
    wrong = gradients(inputs)
    wrong.dx.neg_()
    assert stale(inputs, wrong, "in a graph replay") == (
        "dx did not follow new contents of dy at the same address in a graph replay"
    )
    assert stale(inputs, Grads(gradients(inputs).dx, gradients(inputs).dweight)) is None
