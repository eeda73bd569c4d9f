"""How programs that share rows find each other, and help: groups.py, run in orders of chance with room for a few."""

from contextlib import ExitStack
from itertools import product
from random import Random
from threading import Semaphore, Thread
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from impls.inhouse import groups
from tests.impls.ptx import Endless, Memory, Warp, operands_fit

PARTS, PIECES, SUMS = 3, 2, 4  # programs a group, units of a part, items of sums a chain
SCAN = 8  # chains that are looked at: as many as there may be
FUNCTIONS = {name: each.fn for name, each in vars(groups).items() if hasattr(each, "fn")}
NUMBERS = {name: each.value for name, each in vars(groups).items() if isinstance(getattr(each, "value", None), int)}
WAIT = groups.WAIT.value


class Stuck(Exception):
    """Nobody gets on."""


class Wrong(Exception):
    """Work was done twice, too early or not at all."""


class Ended(BaseException):
    """The launch is over, and this thread too."""


class Launch:
    """All programs of a launch, a thread each; one runs at a time, until it accesses the words again.

    `words` last from launch to launch. `done` is what programs have done, in order.
    """

    MOST_TURNS = 5000

    def __init__(self, words, chains, seed):
        self.words, self.chains, self.random = words, chains, Random(seed)
        self.programs = chains * PARTS
        self.go = [Semaphore(0) for _ in range(self.programs)]
        self.back, self.error, self.over = Semaphore(0), None, False
        self.began, self.sums, self.done = [], [], []

    def run(self, slots):
        """Start programs in order, at most `slots` of them at a time."""
        to_come, self.live = list(range(self.programs))[::-1], []
        try:
            for _ in range(self.MOST_TURNS):
                while to_come and len(self.live) < slots:
                    self.live.append(to_come.pop())
                    Thread(target=self._thread, args=self.live[-1:], daemon=True).start()
                if not self.live:
                    break
                self.running = self.random.choice(self.live)
                self.go[self.running].release()
                self.back.acquire()
                if self.error:
                    raise self.error
            else:
                raise Stuck
        finally:
            self.over = True
            for number in self.live:
                self.go[number].release()
        if sorted(self.done) != [*product(range(self.chains), range(PARTS * PIECES))]:
            raise Wrong("each piece is to be done once")

    def _thread(self, number):
        self.go[number].acquire()
        try:
            if not self.over:
                self.program(number)
        except Ended:
            return
        except Exception as error:
            self.error = error
        self.live.remove(number)
        self.back.release()

    def turn(self):
        """Let others run."""
        number = self.running
        self.back.release()
        self.go[number].acquire()
        if self.over:
            raise Ended

    # ------------------------------------------------------------------------------------------------ the program

    def program(self, number):
        """What the kernel of shared rows does with groups.py, without its numbers."""
        words, index = 0, np.arange(SCAN)
        chain, part = divmod(number, PARTS)
        epoch, word = int(self.words[groups.EPOCH]), words + groups.CHAINS + chain
        units = 0
        groups.come(word)
        seen = np.array([self.load(word, volatile=True) for _ in range(self.random.choice((1, 2)))])
        if groups.come_together(words, word, seen, part == 0, PARTS):
            self.began.append(number)
            while not {*range(chain * PARTS, (chain + 1) * PARTS)} <= {*self.began}:
                self.turn()  # for the others' sums
            self.done += [(chain, part * PIECES + piece) for piece in range(PIECES)]
            units = PIECES
        began = self.atomic(groups.START, lambda before: before)
        if began & 0xFFFFFFFF != self.chains:
            units += self.help(number, words, index)
        target = (began >> 32) + self.programs * PIECES
        before = groups.report(groups.DONE, units)
        if before & 0xFFFFFFFF == self.programs - 1:
            groups.clear(words, index, self.chains, self.programs, epoch + 5, target)
        if units:
            groups.wait_for(groups.DONE, target)
            if len(self.done) != self.programs * PIECES:
                raise Wrong("summed without all partials")

    def help(self, number, words, index):
        """Work at opened chains; return the units done."""
        units, items = 0, np.full(SCAN, SUMS + PARTS * PIECES)
        while True:
            seen = groups.look_at_chains(words, index, self.chains, PARTS)
            other, now = groups.find_work(seen, index, items, number, PARTS, SCAN)
            if other < 0:
                return units
            chain, sent = (words + place + other for place in (groups.CHAINS, groups.SENT))
            now = groups.opened(chain, now, PARTS)
            while (item := groups.claim(chain, now)) < items[0]:
                if item < SUMS:
                    self.turn()
                    self.sums.append((other, item))
                    groups.report(sent, 1)
                else:
                    groups.wait_for(sent, SUMS)
                    if [each for each, _ in self.sums].count(other) != SUMS:
                        raise Wrong("finished without all sums")
                    self.turn()
                    self.done.append((other, item - SUMS))
                    units += 1

    # ------------------------------------------------------------------------------------------------ its language

    def language(self):
        """What groups.py takes of Triton's language: places are numbers, and a tensor is numpy's."""
        return SimpleNamespace(
            load=self.load,
            store=self.store,
            atomic_add=lambda place, value, sem: self.atomic(place, lambda before: before + value),
            atomic_cas=lambda place, old, new, sem: self.atomic(place, lambda before: new if before == old else before),
            where=lambda condition, one, other: plain(np.where(condition, one, other)),
            min=lambda tensor, _: int(np.min(tensor)),
            max=lambda tensor, _: int(np.max(tensor)),
            cast=lambda value, _: value,
            debug_barrier=lambda: None,
            int32=None,
            int64=None,
        )

    def atomic(self, place, change):
        self.turn()
        before = int(self.words[place])
        self.words[place] = change(before)
        return before

    def load(self, places, mask=True, other=0, volatile=False):
        assert volatile
        self.turn()
        return np.where(mask, self.words[places], other)

    def store(self, places, values, mask=True):
        self.turn()
        places, values, mask = np.broadcast_arrays(places, values, mask)
        self.words[places[mask]] = values[mask]

    def wait_for(self, done, target):
        while self.atomic(done, lambda before: before) >> 32 < target:
            pass


def plain(value):
    return value.item() if value.ndim == 0 else value


def launch_all(seeds, faults=None):
    """Launches of several sizes that follow each other, each with room for some of its programs."""
    for seed in range(seeds):
        words, random = np.zeros(8 + 2 * 1024, np.int64), Random(seed)
        for chains in (1, 3, 8, 2):
            launch = Launch(words, chains, seed)
            replaced = FUNCTIONS | NUMBERS | {"tl": launch.language(), "wait_for": launch.wait_for}
            replaced["all_agree"] = lambda condition: bool(np.all(condition))
            replaced |= {name: fault(replaced[name], launch) for name, fault in (faults or {}).items()}
            with ExitStack() as stack:
                for name, each in replaced.items():
                    stack.enter_context(patch.object(groups, name, each))
                launch.run(random.choice((1, 2, 3, launch.programs - 1, launch.programs)) or 1)
        assert words[groups.EPOCH.value] == 4 * 5
        assert words[groups.START.value] == words[groups.DONE.value] == 14 * PARTS * PIECES << 32
        assert not words[groups.CHAINS.value :].any()


def test_all_is_done_once_however_few_may_run():
    launch_all(40)


FAULTS = {
    # A chain is opened although its group is complete: some of its programs have begun.
    "opened": lambda right, launch: (
        lambda chain, now, S: launch.atomic(chain, lambda before: before | 1 << 16) | 1 << 16
    ),
    # Two programs may claim the same item.
    "claim": lambda right, launch: lambda chain, now: claimed_in_two_steps(launch, chain, now),
    # A program waits for its group for ever.
    "LOOKS": lambda right, launch: 1 << 30,
    # Nobody waits for sums and partials.
    "wait_for": lambda right, launch: lambda done, target: None,
    # The last program leaves the words as they are.
    "clear": lambda right, launch: lambda *rest: None,
    # A program forgets what it has done.
    "report": lambda right, launch: lambda done, units: right(done, min(units, 1)),
    # No chain but those that nobody has begun with is looked for.
    "find_work": lambda right, launch: lambda seen, *rest: right(np.where(seen & 0xFFFF, PARTS, seen), *rest),
}


def claimed_in_two_steps(launch, chain, now):
    if not now & 1 << 16:
        return 1 << 30
    before = int(launch.load(chain, volatile=True))
    launch.store(chain, before + (1 << 32))
    return before >> 32


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault):
    with pytest.raises((Stuck, Wrong, AssertionError)):
        launch_all(40, {fault: FAULTS[fault]})


# ------------------------------------------------------------------------------------------------ the assembly


def wait(high, target, later=None, limit=20):
    memory = Memory([high << 32 | 7], later)
    Warp(memory, limit=limit).run(WAIT, [np.uint32], np.uint64(Memory.BASE), np.uint32(target % 2**32))
    return memory.loads


@pytest.mark.parametrize(("high", "target"), [(5, 5), (6, 5), (0, 0), (3, -2), (0x80000001, 0x7FFFFFFF)])
def test_nobody_waits_for_what_is_done(high, target):
    assert wait(high, target) == 1


@pytest.mark.parametrize(("high", "target"), [(4, 5), (0xFFFFFFFF, 1), (0x7FFFFFFF, 0x80000001)])
def test_it_waits_until_all_is_done(high, target):
    assert wait(high, target, {3: [(0, target << 32)]}) == 4
    with pytest.raises(Endless):
        wait(high, target)


def test_other_warps_leave_the_waiting_to_the_first():
    memory = Memory([0])
    Warp(memory, 32).run(WAIT, [np.uint32], np.uint64(Memory.BASE), np.uint32(1))
    assert memory.loads == 0


def test_operands_fit_the_text():
    assert operands_fit(WAIT, ["=r", "l", "r"], 2, 1)
