"""Launches of the in-house kernels beside a kernel that holds multiprocessors: each ends before that does.

Nothing is timed: the holder is asked, when a launch has ended, whether all of its programs still run.
"""

from random import Random

import pytest
import torch

from harness.devices.holder import Holder
from impls.inhouse import workspace
from impls.inhouse.arrivals import ARRIVED, ASKED, STARTED, TAKEN, WORTH
from tests.impls.test_inhouse_gpu import FLAT, SHARED, WIDER, WIDEST, Calls, Replays, case, two_of_each

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]

LONG_US, SHORT_US = 200_000, 300
FEW_TURNS = case("rms", 512, 16384)
WHOLE_ROWS = [
    FLAT,
    case("rms", 2048, 4096),
    case("layer", 1024, 8192),
    case("layer", 4096, 256),
    case("layer", 8192, 768),
]
FAST = [SHARED, FEW_TURNS, case("layer", 1360, 11008), WIDER, WIDEST, *WHOLE_ROWS]


@pytest.fixture(scope="module")
def holder():
    holder = Holder(640, 200)
    yield holder
    holder.release()


@pytest.fixture(scope="module")
def streams(holder):
    """Three for all tests: torch has 32, and would sooner or later give out the holder's own."""
    return [torch.cuda.Stream() for _ in range(3)]


@pytest.fixture
def hold(holder):
    """Hold so many multiprocessors, and return how to ask for the end."""

    def begin(held, us=LONG_US):
        holder.occupy(held, us)
        assert holder.started()
        return lambda: holder.running() == held and holder.state() == "running"

    yield begin
    holder.release()


def words_are_settled():
    """Whether finished launches left the words of every stream as the next one is to find them."""
    torch.cuda.synchronize()
    for memory in workspace._by_stream.values():
        words = memory[: workspace.FIXED_WORDS].tolist()
        started, arrived, taken, asked = (words[place.value] for place in (STARTED, ARRIVED, TAKEN, ASKED))
        if taken or asked or arrived != started * WORTH.value:
            return False
    return True


@pytest.mark.parametrize("held", [1, 2, 8, 32, -1])
@pytest.mark.parametrize("case", FAST, ids=lambda case: case.key)
def test_ends_with_few_multiprocessors(case, held, holder, streams, hold):
    """All but one are held where `held` is negative."""
    calls = Calls(two_of_each(case), streams[0])
    calls.next()  # what is allocated, is allocated
    calls.stream.synchronize()
    still_held = hold(held % holder.multiprocessors)
    for _ in range(6):
        calls.next()
    assert calls.all_right()
    assert still_held()


@pytest.mark.parametrize("held", [8, 100])
def test_several_streams_beside_it(held, streams, hold):
    pairs = [(SHARED, WIDER), (WIDEST, SHARED), (FEW_TURNS, FEW_TURNS)]
    all_calls = [Calls(two_of_each(*pair), stream) for pair, stream in zip(pairs, streams, strict=True)]
    for calls in all_calls:
        calls.next()
        calls.stream.synchronize()
    still_held = hold(held)
    for _ in range(4):
        for calls in all_calls:
            calls.next()
    assert all(calls.all_right() for calls in all_calls)
    assert still_held()


@pytest.mark.parametrize("held", [8, 100])
def test_a_graph_replays_beside_it(held, streams, hold):
    cases = SHARED, FEW_TURNS
    replays = [Replays(two_of_each(case), stream) for case, stream in zip(cases, streams, strict=False)]
    still_held = hold(held)
    for _ in range(6):
        for each in replays:
            each.next()
    assert all(each.all_right() for each in replays)
    assert still_held()


def test_3000_calls_beside_one_that_comes_and_goes(holder, streams):
    random, calls = Random(0), Calls(two_of_each(FEW_TURNS, SHARED, FLAT), streams[0])
    for number in range(3000):
        if number % 30 == 0:
            holder.occupy(random.choice((1, 8, 32, 100, holder.multiprocessors - 1)), random.choice((50, SHORT_US)))
        calls.next()
    assert calls.all_right()
    holder.release()
    assert words_are_settled()
