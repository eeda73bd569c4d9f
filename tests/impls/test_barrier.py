"""How all programs of a launch wait for each other: barrier.py's `meet`, run by an emulator, in orders of chance."""

from itertools import product
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from impls.inhouse import barrier
from tests.impls.ptx import LANES, Endless, Memory, Warp, operands_fit

WARPS = 4
LAUNCHES = [3, 1, 8, 1, 1, 2, 40, 5]  # programs of launches that follow each other
TEXTS = {text: getattr(barrier, text).value for text in ("MEET", "MEET_AND_ADVANCE", "ADVANCE")}
WAYS = {"MEET": {"epoch": None}, "MEET_AND_ADVANCE": {}, "ADVANCE": {"WAIT": False}}  # arguments of `meet`
WAITING = ["MEET", "MEET_AND_ADVANCE"]
ADVANCING = ["MEET_AND_ADVANCE", "ADVANCE"]


class TooEarly(Exception):
    """A warp went on before all had come."""


def said(program, programs, epoch, way):
    """What every warp of a program does in `meet`: None where its warps wait for each other, else assembly."""
    steps = []

    def assembly(text, constraints, inputs, *, dtype, is_pure, pack):
        assert (dtype, is_pure, pack) == ("int32", False, 1)
        steps.append((text.value, constraints.split(","), inputs))

    language = SimpleNamespace(
        debug_barrier=lambda: steps.append(None),
        program_id=[program].__getitem__,
        num_programs=[programs].__getitem__,
        where=lambda condition, one, other: one if condition else other,
        inline_asm_elementwise=assembly,
        int32="int32",
    )
    with patch.object(barrier, "tl", language):
        barrier.meet.fn(**{"state": Memory.BASE, "epoch": epoch} | WAYS[way])
    return steps


class State(Memory):
    """What `meet` is given, 0 as it is made; which warp added to it, and which stored, a lane each."""

    def __init__(self):
        super().__init__([0])
        self.arrivals, self.epoch = 0, 1  # places of numbers of 32 bits
        self.running = None
        self.forget()

    def __getitem__(self, place):
        return int(self.words.view(np.uint32)[place])

    def forget(self):
        self.done = []

    def add(self, addresses, values):
        self.done += [("add", *self.running)] * len(values)
        return super().add(addresses, values)

    def store(self, addresses, values):
        self.done += [("store", *self.running)] * len(values)
        super().store(addresses, values)


class Launch:
    """The warps of all programs, each of which yields before every access to memory."""

    TURNS = 200_000

    def __init__(self, state, programs, epoch, way, *, spoil=lambda steps: steps, told=lambda *each: each):
        """`told` is what each program takes for its own and for their number, and `spoil` changes what they do."""
        self.state, self.waits = state, way in WAITING
        self.said = [spoil(said(*told(program, programs), epoch, way)) for program in range(programs)]
        self.came = [0] * programs  # warps
        self.at_barriers = [0] * programs

    def warp(self, program, warp):
        yield
        self.came[program] += 1
        for step in self.said[program]:
            if step is None:
                yield from self.together(program)
            else:
                text, constraints, inputs = step
                kinds = [{"l": np.uint64, "r": np.uint32}[each] for each in constraints if "=" not in each]
                numbers = [kind(each % (np.iinfo(kind).max + 1)) for kind, each in zip(kinds, inputs, strict=True)]
                yield from Warp(self.state, LANES * warp, limit=1250).steps_of(text, [np.uint32], *numbers)
        if self.waits and self.came != [WARPS] * len(self.came):
            raise TooEarly

    def together(self, program):
        self.at_barriers[program] += 1
        full = -(-self.at_barriers[program] // WARPS) * WARPS
        while self.at_barriers[program] < full:
            yield

    def run(self, random):
        """One warp runs for a while, long or short, and then another."""
        left = [(each, self.warp(*each)) for each in product(range(len(self.said)), range(WARPS))]
        for _ in range(self.TURNS):
            if not left:
                return
            place = random.randrange(len(left))
            self.state.running, running = left[place]
            for _ in range(random.choice((1, 3, 10))):
                if next(running, left) is left:
                    del left[place]
                    break
        raise Endless


def launch_all(way, seed=0, **spoiled):
    """Launch after launch over one state; what each must leave behind is there."""
    state, random, epoch = State(), Random(seed), 0
    for number, programs in enumerate(LAUNCHES, 1):
        state.forget()
        Launch(state, programs, epoch + 10 * number, way, **spoiled).run(random)
        *added, last = [each for each in state.done if each[0] == "add"]
        assert sorted([*added, last]) == [("add", program, 0) for program in range(programs)]
        assert state[state.arrivals] == number % 2 << 31
        if way in ADVANCING:
            epoch += 10 * number
            assert state.done[programs:] == [("store", *last[1:])]  # once, by the last, when all had come
        assert state[state.epoch] == epoch
        assert way in ADVANCING or len(state.done) == programs


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_nobody_leaves_before_all_have_come(way, seed):
    launch_all(way, seed)


@pytest.mark.parametrize("way", WAYS)
def test_one_warp_of_a_program_does_it_for_all(way):
    """Where there is no memory, an access is an error."""
    ((text, _, inputs),) = (step for step in said(1, 2, 1, way) if step)
    numbers = [np.uint64(inputs[0]), *map(np.uint32, inputs[1:])]
    for warp in range(1, 32):
        Warp(Memory([]), LANES * warp).run(text, [np.uint32], *numbers)
    with pytest.raises(IndexError):
        Warp(Memory([]), 0).run(text, [np.uint32], *numbers)
    with pytest.raises(IndexError):  # the planted fault: threads of another warp take themselves for the first
        Warp(Memory([]), LANES).run(text.replace("%tid.x", "%laneid"), [np.uint32], *numbers)
    if way in WAITING:
        with pytest.raises(IndexError):  # and another warp that looks
            Warp(Memory([]), LANES).run(text.replace("@!first bra MET;\n", ""), [np.uint32], *numbers)


# ------------------------------------------------------------------------------------------------ planted faults


def replaced(old, new=""):
    """What it does with another text."""

    def spoil(steps):
        assert sum(old in step[0] for step in steps if step) == 1
        return [step and (step[0].replace(old, new), *step[1:]) for step in steps]

    return spoil


@pytest.mark.parametrize("way", WAITING)
@pytest.mark.parametrize(
    ("told", "error"),
    [
        (lambda program, programs: (program, programs + 1), Endless),  # one less
        (lambda program, programs: (program, programs - 1), (TooEarly, AssertionError)),  # one more
        (lambda program, programs: (program + 1, programs), Endless),  # 1, as all others do
        (lambda program, programs: (0, programs), (TooEarly, AssertionError)),  # nobody adds 1
    ],
)
def test_a_first_that_adds_another_number_is_seen(way, told, error):
    with pytest.raises(error):
        launch_all(way, told=told)


@pytest.mark.parametrize("way", WAITING)
@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (replaced("and.b32 before, before, 2147483648;\n"), TooEarly),  # the highest bit alone counts
        (replaced("and.b32 now, now, 2147483648;\n"), TooEarly),
        (replaced("@true bra WAIT;\n"), TooEarly),
        (replaced("setp.eq.u32 true, now, before;", "setp.ne.u32 true, now, before;"), (TooEarly, Endless)),
        (replaced("shfl.sync.idx.b32 before, before, 0, 31, 0xffffffff;\n"), AssertionError),  # lanes part
        (replaced("@mine atom", "atom"), (AssertionError, Endless, TooEarly)),
        (replaced("setp.eq.u32 mine, thread, 0;", "setp.eq.u32 mine, thread, 1;"), Endless),
        (replaced("[$1], $2", "[$1+4], $2"), Endless),
        (lambda steps: steps[1:], TooEarly),  # without its own warps' barriers
        (lambda steps: steps[:-1], TooEarly),
    ],
)
def test_a_spoiled_wait_is_seen(way, spoil, error):
    with pytest.raises(error):
        launch_all(way, spoil=spoil)


def test_a_launch_that_does_not_wait_is_seen():
    with pytest.raises(TooEarly):
        launch_all("MEET_AND_ADVANCE", spoil=replaced(TEXTS["MEET_AND_ADVANCE"], TEXTS["ADVANCE"]))


@pytest.mark.parametrize("way", ADVANCING)
@pytest.mark.parametrize(
    "spoil",
    [
        replaced("and.b32 now, now, 2147483647;\n"),
        replaced("add.u32 now, before, $2;", "mov.b32 now, before;"),
        replaced("true, now, 0, mine", "true, 0, 0, mine"),  # everyone
        replaced("setp.eq.and.u32 true, now, 0, mine", "setp.eq.u32 true, now, 0"),  # every lane of the last
        replaced("[$1+4], $3", "[$1+4], $2"),
        replaced("[$1+4], $3", "[$1], $3"),
    ],
)
def test_a_spoiled_advance_is_seen(way, spoil):
    with pytest.raises((AssertionError, Endless)):
        launch_all(way, spoil=spoil)


# ------------------------------------------------------------------------------------------------ its operands


@pytest.mark.parametrize("way", WAYS)
def test_operands_fit_the_text(way):
    ((text, constraints, inputs),) = (step for step in said(0, 2, 7, way) if step)
    assert text == TEXTS[way]
    assert operands_fit(text, constraints, len(inputs), 1)
    assert [line for line in text.splitlines() if "$0" in line] == [text.splitlines()[-2]]  # no `&` in `=r`
    other = TEXTS["MEET" if way in ADVANCING else "ADVANCE"]  # the planted fault
    assert operands_fit(other, constraints, len(inputs), 1) == (way in ADVANCING)
