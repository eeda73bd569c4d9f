"""How programs that share rows take turns at the words they exchange: none lost, none taken for another."""

import ast
from itertools import pairwise
from random import Random

import pytest

from impls.inhouse import parts, rows
from tests.impls.turns import KERNEL, LOOKS, RECEIVE, SEND, Overwritten, Programs, Stuck, body_of, call_in

SLOTS = parts.SLOTS.value
LAUNCHES = [(24, 1, 2, 2), (7, 2, 1, 5), (3, 3, 2, 2), (40, 2, 1, 3), (1, 1, 1, 4), (25, 1, 2, 3)]  # rows, groups, R, S


def take_turns(delay, slots, less=0):
    """Launch after launch of several shapes over one memory, as on one stream; the epoch advances by `less` less."""
    for seed in range(30):
        memory, epoch = {}, 0
        for shape in LAUNCHES:
            epoch = Programs(memory, epoch, *shape, delay, slots).run(seed) - less


@pytest.mark.parametrize("delay", [1, 2])
def test_no_word_is_overwritten_before_all_have_read_it(delay):
    take_turns(delay, SLOTS)


@pytest.mark.parametrize("delay", [1, 2])
def test_with_one_slot_less_than_it_takes_a_word_is_overwritten(delay):
    """The planted fault, and that the model finds where the limit is."""
    take_turns(delay, 2 * delay + 2)
    with pytest.raises(Overwritten):
        take_turns(delay, 2 * delay + 1)


def test_an_epoch_that_lags_lets_a_word_of_an_earlier_launch_be_taken():
    with pytest.raises((AssertionError, Stuck)):
        take_turns(1, SLOTS, less=5)


def test_the_kernel_looks_sends_and_receives_in_the_order_of_the_model():
    looks = [ast.unparse(look) for look in LOOKS]
    assert ast.unparse(RECEIVE.args[1]) == "before"
    assert looks == ["look(before, LOOK, LOADS)"] * 2  # in a turn that sends, and in one that does not
    assert LOOKS[0].lineno < SEND.lineno < LOOKS[1].lineno < RECEIVE.lineno
    lines = ast.unparse(body_of(KERNEL))
    meet, sums = call_in(KERNEL, "meet"), call_in(KERNEL, "finish_in_turn")
    order = ["epoch = gl.load(state + 1)", "for turn in", ast.unparse(meet), ast.unparse(sums)]
    places = [lines.index(each) for each in order]
    assert places == sorted(places)
    assert ast.unparse(meet.args[0]) == "state"


def test_nobody_sums_partials_before_all_have_stored_theirs():
    """A launch that sums its own waits before; one of rows.py, which sends no tags, leaves the epoch alone."""
    branches = []
    for kernel in (KERNEL, rows.backward_rows):
        ends = (each for each in ast.walk(body_of(kernel)) if isinstance(each, ast.If))
        branches += [each for each in ends if "finish_in_turn(" in ast.unparse(each)]
    of_parts, of_rows = branches
    assert ast.unparse(call_in(KERNEL, "meet").args[2]) == ast.unparse(of_parts.test)
    waits, *_, sums = of_rows.body
    assert ast.unparse(waits) == "meet(state)"
    assert ast.unparse(sums).startswith("finish_in_turn(")


def tags_of(launches, less=0):
    """The tags that each launch sends."""
    epoch, tags = 0, []
    for shape in launches:
        programs = Programs({}, epoch, *shape, SLOTS)
        tags.append(set().union(*(programs.tags(group) for group in range(shape[1]))))
        epoch = programs.value("next") - less
    return tags


def some_launches(seed):
    random = Random(seed)
    for _ in range(40):
        groups, R = random.randint(1, 60), random.choice((1, 2))
        tiles = random.choice((groups, random.randint(groups, 40 * groups)))
        yield R * tiles - random.randint(0, R - 1), groups, R, 8, random.choice((1, 2))


def overlap(tags):
    return any(min(late) <= max(early) for early, late in pairwise(tags))


@pytest.mark.parametrize("seed", range(5))
def test_no_tag_comes_again_whatever_shapes_follow_each_other(seed):
    launches = [*some_launches(seed)]
    tags = tags_of(launches)
    assert 0 not in tags[0]  # what new memory holds
    assert not overlap(tags)
    assert overlap(tags_of(launches, less=2))
