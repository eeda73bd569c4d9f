"""The protocols of arrivals.py and groups.py in every order of programs, with every old word that memory may show.

Launches are as small as can be: what is shown is that no order goes wrong. Larger ones run in orders of chance, as
those of test_arrivals.py and test_compiled.py do. What kernels do between the calls of both files is repeated here.
"""

from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from impls.inhouse import arrivals, exchange, groups
from tests.impls.every_order import OLD_READS, Launch, Program, Stuck, Trapped, Wrong

EPOCH = 5


class Number(int):
    """A number of Triton's."""

    def to(self, _):
        return self


class Language:
    """What both files take of Triton's language: places are numbers, and a tensor is numpy's."""

    int32 = int64 = None

    def __init__(self):
        self.program = None

    def arange(self, first, end):
        return np.arange(first, end)

    def cdiv(self, one, other):
        return Number(-(-one // other))

    def cast(self, value, _):
        return value

    def where(self, condition, one, other):
        found = np.where(condition, one, other)
        return found.item() if found.ndim == 0 else found

    def device_assert(self, condition, text):
        assert condition, text

    def minimum(self, one, other):
        return min(one, other)

    def maximum(self, one, other):
        return max(one, other)

    def min(self, tensor, _):
        return int(np.min(tensor))

    def max(self, tensor, _):
        return int(np.max(tensor))

    def load(self, places, mask=True, other=0, volatile=False):
        assert volatile
        places, mask = np.broadcast_arrays(places, mask)
        found = np.full(places.shape, other)
        found[mask] = self.program.load(*map(word, places[mask]))
        return found

    def store(self, places, values, mask=True):
        for place, value, wanted in zip(*np.broadcast_arrays(np.atleast_1d(places), values, mask), strict=True):
            if wanted:
                self.program.store(word(place), int(value))

    def atomic_add(self, place, value, sem):
        if value == 0 and self.program.may_find_old():  # the compiler makes a load of it
            return self._to_all(self.program.load(word(place), thread=0)[0])
        return self._to_all(self.program.atomic(word(place), "add", int(value), sem=sem))

    def atomic_cas(self, place, expected, wanted, sem):
        return self._to_all(self.program.atomic(word(place), "cas", int(expected), int(wanted), sem=sem))

    def _to_all(self, found):
        self.program.barrier()
        return found

    def debug_barrier(self):
        self.program.barrier()

    def inline_asm_elementwise(self, text, _constraints, given, **_options):
        text = text.value
        if text == arrivals.TRAP.value:
            if given[0] > arrivals.MOST_STRANGE:
                raise Trapped
            return 0
        sem, *_ = [each for each in ("acq_rel", "acquire", "relaxed", "bar.red") if each in text]
        if sem == "bar.red":
            self.program.barrier()
            return bool(np.all(given[0]))
        if "atom" in text:
            *read, place, added = given
            read = [self.program.load(word(each), thread=0)[0] for each in read]
            found = self.program.atomic(word(place), "add", int(added), sem=sem)
            return (*read, found) if read else found
        place, target, *seen = given
        if not seen:  # the high half is waited for
            target <<= 32
        found = seen[0] if seen and seen[0] >= target else self.program.wait(word(place), target, sem)
        return found > target


def word(place):
    return "word", int(place)


@contextmanager
def in_place_of_triton(module, language, replaced):
    functions = {name: each.fn for name, each in vars(module).items() if hasattr(each, "fn")}
    numbers = {name: each.value for name, each in vars(module).items() if type(getattr(each, "value", None)) is int}
    with ExitStack() as stack:
        stack.enter_context(patch.object(exchange, "tl", language))  # of all_agree
        for name, each in (functions | numbers | {"tl": language} | replaced).items():
            stack.enter_context(patch.object(module, name, each))
        yield


def ends(module, program, programs, words, slots, walks, replaced):
    """How a launch may end, in every order, or so many of chance; `replaced` is what takes the place of the module's.

    Of the programs, `program(now, number)`, so many are there at a time.
    """
    language = Language()

    def step(number):
        def run(now):
            language.program = now
            program(now, number)

        return run

    with in_place_of_triton(module, language, replaced):
        launch = Launch([step(number) for number in range(programs)], words, slots)
        launch.wander(walks) if walks else launch.explore()
    return launch.ends


# ------------------------------------------------------------------------------------------------ arrivals


def program_of_arrivals(now, number, programs, work):
    """A program of one pass, `work` its sums and pieces."""
    arrivals.start(0, number, programs)
    for each in work[number : number + 1]:
        now.store(each, "done")
    started, seen = arrivals.arrive(0, number, programs, False)
    left, piece = 0, number
    if not arrivals.wait_for_all(0, started, seen, False):
        left = arrivals.wait_or_leave(0, number, programs, False)
        piece = arrivals.first_piece(0, number, programs, left)
    while piece < programs:
        for each in work[:programs]:
            now.only(each, "done")
        for each in work[programs + piece :][:1]:
            now.store(each, "done")
        piece = arrivals.next_piece(0, programs, left)


def launch_of_arrivals(programs, slots, walks=0, fault=None):
    """Raise Wrong or Stuck where a launch of one pass ends so."""
    work = [(what, each) for what in ("sums", "piece") for each in range(programs)]
    most = most_of(programs)
    replaced = {"MOST": most, "PATIENCE": 1, "MOST_STRANGE": OLD_READS} | (fault or {})
    program = partial(program_of_arrivals, programs=programs, work=work)
    for end in ends(arrivals, program, programs, arrival_words(EPOCH, most), slots, walks, replaced):
        check(end, arrival_words(EPOCH + 1, most), work)


def most_of(programs):
    return 1 << (programs - 1).bit_length()


def arrival_words(launches, most):
    """The words as so many launches leave them."""
    numbers = {"STARTED": launches * most, "ARRIVED": launches * most * arrivals.WORTH.value, "TAKEN": 0, "ASKED": 0}
    return {word(getattr(arrivals, name).value): number for name, number in numbers.items()}


def check(end, left, work):
    """Raise Wrong unless words are left so, and all work is done once."""
    if left | {place: value for place, value, _ in end if place in left} != left:
        raise Wrong(f"words are left as {end}")
    if {place: times for place, _, times in end if place not in left} != dict.fromkeys(work, 1):
        raise Wrong(f"not all is done once: {end}")


@pytest.mark.parametrize(("programs", "slots"), [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_arrivals_in_every_order(programs, slots):
    launch_of_arrivals(programs, slots)


@pytest.mark.parametrize(("programs", "slots"), [(3, 2), (3, 3), (4, 2), (6, 5)])
def test_arrivals_in_orders_of_chance(programs, slots):
    launch_of_arrivals(programs, slots, walks=60)


def launches_at_once(count, programs, walks, most_strange=8):
    """Raise Stuck where launches by the same words, with room for one of them, do not end; a trap is an end."""

    def program(now, number):
        with suppress(Trapped):
            program_of_arrivals(now, number % programs, programs, ())

    def await_arrivals(words, target, seen):
        for _ in range(9):
            if seen >= target:
                return seen > target
            seen = arrivals.tl.atomic_add(arrivals.ARRIVED, 0, sem="relaxed")
        raise Trapped

    most = most_of(programs)
    replaced = {"MOST": most, "PATIENCE": 1, "MOST_STRANGE": most_strange, "await_arrivals": await_arrivals}
    ends(arrivals, program, count * programs, arrival_words(EPOCH, most), programs, walks, replaced)


@pytest.mark.parametrize(("count", "programs"), [(2, 2), (2, 3), (5, 3), (3, 5)])
def test_launches_at_once_end_in_orders_of_chance(count, programs):
    launches_at_once(count, programs, walks=60)


def test_launches_at_once_without_a_limit_are_stuck():
    with pytest.raises(Stuck):
        launches_at_once(5, 3, walks=60, most_strange=1000)


def test_a_program_that_looks_after_all_others_have_ended_leaves():
    """Two of three are to leave, which it has not seen: it has asked when one was."""
    started, arrived, barrier = 4 * EPOCH, 4 * EPOCH * arrivals.WORTH.value, None
    target = arrived + 4 * arrivals.WORTH.value
    found = [(started + 3,), barrier, (arrived + 1,), barrier, 1, barrier]  # one leaves, and its own number is 1
    found += [(started + 4,), barrier, target, barrier, target, barrier]
    language = Language()
    language.program = Program(found)
    with in_place_of_triton(arrivals, language, {"MOST": 4, "PATIENCE": 1}):
        assert arrivals.wait_or_leave(0, 0, 3, False) == 4
    assert not language.program.found


def text_without(text, order):
    return SimpleNamespace(value=text.value.replace(order, "relaxed"))


def in_two_steps(change):
    """What an atomic access is where others may come between."""

    def access(self, place, *values, sem):
        (before,) = self.load(np.array([place]), volatile=True)
        self.store(place, change(int(before), *values))
        return self._to_all(int(before))

    return access


def swapped(before, expected, wanted):
    return wanted if before == expected else before


STALE = {"debug_barrier": lambda self: None}
arrive = arrivals.arrive.fn


def unseen(*asked):
    """What `arrive` returns, but that all have to be waited for."""
    started, seen = arrive(*asked)
    return started, seen * 0


def uncapped(_self, one, _other):
    """Let all leave."""
    return one


ARRIVAL_FAULTS = {  # what takes the place of names in arrivals.py, and of what it takes of Triton's language
    "an addition is lost": ({}, {"atomic_add": in_two_steps(lambda before, added: before + added)}),
    "a swap is none": ({}, {"atomic_cas": in_two_steps(swapped)}),
    "what was taken is left": ({"take": lambda *_: arrivals.tl.atomic_add(arrivals.TAKEN, 1, sem="relaxed")}, {}),
    "all leave": ({}, {"minimum": uncapped}),
    "no release": ({"ARRIVAL": text_without(arrivals.ARRIVAL, "acq_rel")}, {}),
    "no acquire": ({"WAIT": text_without(arrivals.WAIT, "acquire"), "arrive": unseen}, {}),
    "threads do not meet": ({}, STALE),
    "nobody waits": ({"wait_for_all": lambda words, started, *_: arrivals.all_started(started)}, {}),
}


def launches_of_arrivals(fault):
    """Some that have room for one program at a time, and one that has room for both."""
    launch_of_arrivals(5, 1, walks=5, fault=fault)
    for slots in (1, 2):
        launch_of_arrivals(2, slots, walks=1000, fault=fault)


@pytest.mark.parametrize("fault", ARRIVAL_FAULTS)
def test_a_fault_of_arrivals_is_seen(fault, monkeypatch):
    replaced, language = ARRIVAL_FAULTS[fault]
    for name, each in language.items():
        monkeypatch.setattr(Language, name, each)
    with pytest.raises((Wrong, Stuck)):
        launches_of_arrivals(replaced)


# ------------------------------------------------------------------------------------------------ groups


SUMS, BASE, MOST_PARTS = 1, 7, 8  # items of sums a chain; units that launches before have done


def program_of_group(now, number, chain_count, parts):
    """A program of a launch of shared rows."""
    chain, part = divmod(number, parts)
    own, programs, units = groups.CHAINS + chain, chain_count * parts, 0
    groups.join_group(own)
    epoch = int(groups.tl.load(np.array([groups.EPOCH]), volatile=True)[0])
    seen = groups.tl.load(np.array([own]), volatile=True)
    if groups.await_group(0, own, seen, part == 0, parts):
        now.store(("ring", number), epoch, thread=0)
        for other in range(chain * parts, (chain + 1) * parts):
            now.wait(("ring", other), epoch, "relaxed")
        now.store(("piece", chain * MOST_PARTS + part), "done")
        units = 1
    index = np.arange(chain_count)
    units += work_of_others(now, number, index, parts)
    before = groups.report(groups.DONE, units)
    if before & 0xFFFFFFFF == programs - 1:
        groups.clear(0, index, chain_count, programs, epoch + 3, BASE + programs)
    if units:
        groups.wait_for(groups.DONE, BASE + programs)
        for each in range(programs):
            now.only(("piece", each // parts * MOST_PARTS + each % parts), "done")


def work_of_others(now, number, index, parts):
    """Work at opened chains; return the units done."""
    units, items = 0, np.full(len(index), SUMS + parts)
    while True:
        seen = groups.read_chains(0, index, len(index), parts)
        other, found = groups.find_work(seen, index, items, number, parts, 8)
        if other < 0:
            return units
        chain, sent = groups.CHAINS + other, groups.SENT + other
        found = groups.release(chain, found, parts)
        while (item := groups.claim(chain, found)) < items[0]:
            if item < SUMS:
                now.store(("sums", other), "sent")
                groups.report(sent, 1)
            else:
                groups.wait_for(sent, SUMS)
                now.only(("sums", other), "sent")
                now.store(("piece", other * MOST_PARTS + item - SUMS), "done")
                units += 1


def launch_of_groups(chain_count, parts, slots, walks=0, fault=None):
    """Raise Wrong or Stuck where a launch of shared rows ends so."""
    programs = chain_count * parts
    pieces = [("piece", chain * MOST_PARTS + part) for chain in range(chain_count) for part in range(parts)]
    rings = {("ring", number): 0 for number in range(programs)}

    def program(now, number):
        program_of_group(now, number, chain_count, parts)

    def left(launches, units):
        words = {groups.EPOCH.value: launches, groups.START.value: units << 32, groups.DONE.value: units << 32}
        rows = {place.value + chain: 0 for place in (groups.CHAINS, groups.SENT) for chain in range(chain_count)}
        return {word(place): value for place, value in (words | rows).items()}

    first, replaced = left(EPOCH, BASE) | rings, {"MOST_POLLS": 1} | (fault or {})
    for end in ends(groups, program, programs, first, slots, walks, replaced):
        check([each for each in end if each[0][0] in ("word", "piece")], left(EPOCH + 3, BASE + programs), pieces)


@pytest.mark.parametrize(
    ("chain_count", "parts", "slots"),
    [
        (1, 1, 1),
        (1, 2, 1),
        (2, 1, 1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(1, 2, 2), (2, 1, 2)]),
    ],
)
def test_groups_in_every_order(chain_count, parts, slots):
    launch_of_groups(chain_count, parts, slots)


@pytest.mark.parametrize(("chain_count", "parts", "slots"), [(2, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 4)])
def test_groups_in_orders_of_chance(chain_count, parts, slots):
    launch_of_groups(chain_count, parts, slots, walks=60)


RELEASED, ITEM = groups.RELEASED.value, groups.ITEM.value


@pytest.mark.parametrize(
    ("chain", "is_found"),
    [
        (0, True),
        (1, True),  # joined by one of two: whoever has no work releases it, and does not wait until its own give up
        (2, False),
        (RELEASED + 1, True),
        (RELEASED + 1 + 2 * ITEM, True),
        (RELEASED + 1 + 3 * ITEM, False),
    ],
)
def test_work_is_that_of_incomplete_groups_and_items_that_are_left(chain, is_found):
    with in_place_of_triton(groups, Language(), {}):
        found = groups.find_work(np.array([2, chain]), np.arange(2), np.full(2, 3), 0, 2, 8)
    assert found == ((1, chain) if is_found else (-1, 0))


report = groups.report.fn
PAIR, PAIRS = (1, 2, 2), (2, 2, 3)  # launches: chains, parts and programs at a time
GROUP_FAULTS = {  # as those of arrivals, then the launch, and how many orders of chance show it; 0 is every order
    "an item is claimed twice": ({}, {"atomic_add": in_two_steps(lambda before, added: before + added)}, (2, 1, 2), 0),
    "no release": (
        {},
        {"atomic_add": lambda self, place, value, sem: self._to_all(self.program.atomic(word(place), "add", value))},
        (2, 1, 2),
        0,
    ),
    "no acquire": ({"WAIT": text_without(groups.WAIT, "acquire")}, {}, (2, 1, 2), 0),
    "threads do not meet": ({}, STALE, (2, 1, 2), 0),
    "a group is waited for without end": ({"MOST_POLLS": 1 << 30}, {}, (1, 2, 1), 1),
    "nobody waits for sums and partials": ({"wait_for": lambda *_: None}, {}, PAIRS, 100),
    "the words are left as they are": ({"clear": lambda *_: None}, {}, PAIR, 10),
    "what was done is forgotten": ({"report": lambda done, _units: report(done, 0)}, {}, PAIR, 10),
}


@pytest.mark.parametrize("fault", GROUP_FAULTS)
def test_a_fault_of_groups_is_seen(fault, monkeypatch):
    replaced, language, launch, walks = GROUP_FAULTS[fault]
    for name, each in language.items():
        monkeypatch.setattr(Language, name, each)
    with pytest.raises((Wrong, Stuck)):
        launch_of_groups(*launch, walks=walks, fault=replaced)
