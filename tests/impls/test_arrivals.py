"""How the programs of a launch come to their last sum: arrivals.py, compiled and run by the tests' machine.

The machine starts programs in order and holds a limited number of them, as a GPU of which others hold a part does; it
runs them in orders of chance. Launches of different numbers of programs follow each other over one memory, as on one
stream.
"""

import contextlib
import json
import sys
from functools import partial
from itertools import product
from unittest.mock import patch

import pytest

from impls.inhouse.arrivals import ARRIVED, MOST, STARTED, WORTH
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.workspace import FIXED_WORDS
from tests.impls.gpuless import in_child, instead_of_launches
from tests.impls.inhouse_cases import cpu_case, gradients, reference, rho

fp32 = partial(cpu_case, dtype="fp32", weight_dtype="fp32")  # so that no bit is rounded away
CASES = {
    "eight programs": (fp32("layer", 13, 60, bias=True), OnePass(1, 1, 64, 1, 8, fold=True, fused=True)),
    "four programs": (fp32("rms", 11, 64), OnePass(1, 1, 64, 1, 4, fold=True, fused=True)),
    "three programs, narrow": (fp32("rms", 40, 60), OnePass(4, 1, 64, 1, 3, fold=False, fused=True)),
    "one program": (fp32("rms", 3, 64), OnePass(1, 1, 64, 1, 1, fold=True, fused=True)),
    "eight alignments": (cpu_case("layer", 32, 61, bias=True), OnePass(1, 1, 128, 1, 8, fold=True, fused=True)),
    "two warps": (fp32("rms", 11, 64), OnePass(1, 1, 64, 2, 5, fold=True, fused=True)),
}
pytestmark = pytest.mark.slow
THERE = (None, 1, 3, 2)  # programs at a time; None is all


def words_after(launches):
    """The words as so many launches are to leave them."""
    import torch

    words = torch.zeros(FIXED_WORDS, dtype=torch.int64)
    words[STARTED.value] = launches * MOST.value
    words[ARRIVED.value] = launches * MOST.value * WORTH.value
    return words


def outcome(names, seeds, fault=None, there=THERE):
    """What is first wrong with launches that follow each other, or None; `fault` is a text and what replaces it."""
    import torch

    from harness.cases import make_inputs
    from impls.inhouse import backward
    from impls.inhouse.tensors import CallTensors
    from tests.impls.every_order import Stuck
    from tests.impls.test_compiled import OnMachine

    inputs = {name: make_inputs(CASES[name][0], seed=0) for name in names}
    exact = {name: reference(each) for name, each in inputs.items()}
    launches, first = 2**31 - 2, {}  # so that no part of a word is thought to be enough
    words = words_after(launches)
    nan = lambda *shape: torch.full(shape, float("nan"))  # noqa: E731
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(backward, "output", lambda like, shape: nan(*shape)))
        stack.enter_context(patch.object(CallTensors, "empty", lambda self, shape: nan(*shape)))
        for seed, slots, name in product(seeds, there, names):
            on_machine = partial(OnMachine, seed=seed, fault=fault, most_idle=3000, slots=slots)
            told = f"{name}, {slots} there, seed {seed}: "
            with instead_of_launches(("cuda", 90, 32), on_machine, words):
                try:
                    found = [each for each in gradients(inputs[name], launch=CASES[name][1]) if each is not None]
                except Stuck:
                    return told + "stuck"
            launches += 1
            wanted = first.setdefault(name, found)
            if not all(rho(*pair) < 16 for pair in zip(found, exact[name], strict=False)):
                return told + "wrong"
            if not all(torch.equal(*pair) for pair in zip(found, wanted, strict=True)):
                return told + "other bits"
            if not torch.equal(words, words_after(launches)):
                return told + "words that no launch should leave behind"
    return None


def test_the_same_bits_whoever_works():
    assert in_child(__name__, "outcome", [[*CASES], [0]]) == [None]


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_in_many_orders(name):
    assert in_child(__name__, "outcome", [[name], [*range(12)], None, [1, 2, None, 4, 3]]) == [None]


def test_a_last_sum_before_all_have_arrived_is_seen():
    """The planted fault: nobody waits. test_orders.py has those of the protocol."""
    (seen,) = in_child(__name__, "outcome", [["eight programs"], [1], ["bra LOOK;", ""], [None]])
    assert seen is not None


LOST, TOO_MANY = (-WORTH.value, None), (MOST.value * WORTH.value, 1)  # arrivals, and how many programs are there


def words_of_others(name, arrivals, slots):
    """What comes of a launch on words that other launches change."""
    from harness.cases import make_inputs
    from tests.impls.every_order import Trapped
    from tests.impls.test_compiled import OnMachine

    words = words_after(1)
    words[ARRIVED.value] += arrivals
    with instead_of_launches(("cuda", 90, 32), partial(OnMachine, most_idle=30000, slots=slots), words):
        try:
            gradients(make_inputs(CASES[name][0], seed=0), launch=CASES[name][1])
        except Trapped:
            return "trapped"


def test_a_wait_without_end_ends_in_a_trap(monkeypatch):
    monkeypatch.setenv("NORMBWD_CHECKS", "50")
    calls = [[name, *LOST] for name in CASES] + [[name, *TOO_MANY] for name in CASES if name != "one program"]
    assert in_child(__name__, "words_of_others", *calls) == ["trapped"] * len(calls)
    monkeypatch.setenv("NORMBWD_CHECKS", "0")
    with pytest.raises(AssertionError, match="Stuck"):
        in_child(__name__, "words_of_others", ["two warps", *LOST])


if __name__ == "__main__":
    function, *calls = json.loads(sys.argv[1])
    print(json.dumps([globals()[function](*call) for call in calls]))
