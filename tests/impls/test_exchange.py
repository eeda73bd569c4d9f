"""How programs exchange sums: the assembly of exchange.py, run by an emulator.

Triton's interpreter runs no assembly, and one program after another: those that wait for each other need another way.
"""

import ast
import inspect
from itertools import product
from random import Random

import numpy as np
import pytest

from impls.inhouse import exchange
from impls.inhouse.exchange import Exchange
from impls.inhouse.limits import WIDEST
from impls.inhouse.problem import Gpu
from impls.inhouse.regimes import shared_kernel
from impls.inhouse.regimes.choice import choose
from impls.inhouse.regimes.shared import PART_BYTES
from tests.impls.problems import WITH_ACCUMULATORS, problem
from tests.impls.ptx import Endless, Memory, Warp, operands_fit

SENDERS = [1, 2, 3, 5, 6, 8, 10, 16, 17, 32, 33, 64]
SHAPES = [*product(SENDERS, (1, 2, 4))]
SLOTS = shared_kernel.SLOTS.value
SLOT = 3  # the one that is tried; the others hold words of other turns
TAG = 1000


# ------------------------------------------------------------------------------------------------ the assembly


class Group:
    """The programs that share a row: their memory, full of words of earlier turns, and the numbers each will send."""

    def __init__(self, senders, sums, seed=0):
        random = np.random.default_rng(seed)
        self.exchange = Exchange(senders, sums)
        self.numbers = np.zeros((senders, Exchange.MOST), np.float32)
        self.numbers[:, :sums] = random.normal(size=(senders, sums)) * 10.0 ** random.integers(-3, 4, (senders, sums))
        self.first = SLOT * self.exchange.words
        self.memory = Memory(self.stale(random))

    def stale(self, random):
        """NaN everywhere: with tags of other turns where a sender writes, and with the awaited tag where none does."""
        words = SLOTS * self.exchange.words
        tags = TAG - random.integers(1, 4 * SLOTS, words)
        tags[random.integers(0, 8, words) == 0] = 0  # as memory is when it is new
        mine = np.arange(self.exchange.words) % self.exchange.width >= self.exchange.senders
        tags[self.first : self.first + self.exchange.words][mine] = TAG
        others = np.arange(words) // self.exchange.words != SLOT
        tags[others & (random.integers(0, 4, words) == 0)] = TAG
        return word(tags, np.full(words, np.nan, np.float32))

    def address(self, index):
        return np.uint64(Memory.BASE + 8 * index)

    def send(self, sender, tag=TAG, text=None):
        """All four warps of a program run the same text."""
        for warp in range(4):
            numbers = self.numbers[sender].view(np.uint32)
            where = self.address(self.first + sender)
            arguments = (where, np.uint32(tag), *numbers)
            Warp(self.memory, 32 * warp).run(text or self.exchange.send(), [np.uint32], *arguments)

    def send_all(self):
        for sender in range(self.exchange.senders):
            self.send(sender)

    def look(self):
        return Warp(self.memory).run(self.exchange.look(), [np.uint64] * self.exchange.loads, self.address(self.first))

    def receive(self, seen, tag=TAG, text=None, limit=100):
        """The numbers that come out, each the same in all lanes."""
        outputs = [np.uint32] * Exchange.MOST
        arguments = (*seen, self.address(self.first), np.uint32(tag))
        found = np.array(Warp(self.memory, limit=limit).run(text or self.exchange.receive(), outputs, *arguments))
        assert (found == found[:, :1]).all()
        return found[:, 0].view(np.float32)

    def is_sum(self, received):
        wanted, size = self.numbers.sum(0, dtype=np.float64), np.abs(self.numbers).sum(0, dtype=np.float64)
        return (np.abs(received - wanted) <= 6 * 2.0**-24 * size).all()


def word(tags, numbers):
    return np.asarray(tags, np.uint32).astype(np.uint64) << np.uint64(32) | numbers.view(np.uint32).astype(np.uint64)


@pytest.mark.parametrize(("senders", "sums"), SHAPES)
def test_words_that_are_there_are_summed_at_once(senders, sums):
    group = Group(senders, sums)
    group.send_all()
    received = group.receive(group.look())
    assert group.is_sum(received)
    assert not received[sums:].any()
    assert group.memory.loads == group.exchange.loads


@pytest.mark.parametrize(("senders", "sums"), SHAPES)
def test_late_words_give_the_same_bits(senders, sums):
    """Receivers look after none, some or all have sent, and what they miss arrives between their later loads."""
    random, received = Random(senders), []
    for sent in sorted({0, senders // 2, senders - 1, senders}):
        group = Group(senders, sums)
        before = group.memory.words.copy()
        group.send_all()
        after = group.memory.words.copy()
        group.memory.words[:] = before
        late = random.sample(range(senders), senders - sent)
        for sender in sorted({*range(senders)} - {*late}):
            group.send(sender)
        for number, sender in product(range(sums), late):
            place = group.first + number * group.exchange.width + sender
            group.memory.later.setdefault(random.randint(1, 20), []).append((place, after[place]))
        received.append(group.receive(group.look()).tobytes())
        assert (group.memory.loads > group.exchange.loads) == bool(late)
        assert group.is_sum(np.frombuffer(received[-1], np.float32))
    assert len({*received}) == 1


@pytest.mark.parametrize(("senders", "sums"), SHAPES)
def test_a_word_of_another_turn_is_never_taken(senders, sums):
    """The planted fault: one sender, the last or any other, has another tag, and all wait for ever."""
    for sender, tag in product({0, senders // 2, senders - 1}, (0, TAG - SLOTS, TAG - 1, TAG + 1, TAG | 1 << 31)):
        group = Group(senders, sums)
        group.send_all()
        group.send(sender, tag=tag)
        group.memory.loads = 0
        with pytest.raises(Endless):
            group.receive(group.look(), limit=4 * group.exchange.loads)


@pytest.mark.parametrize(("senders", "sums"), SHAPES)
def test_each_number_is_stored_by_one_thread(senders, sums):
    group = Group(senders, sums)
    before = group.memory.words.copy()
    group.send(senders - 1)
    changed = np.flatnonzero(group.memory.words != before)
    assert changed.tolist() == [group.first + i * group.exchange.width + senders - 1 for i in range(sums)]
    assert (group.memory.words[changed] == word([TAG] * sums, group.numbers[-1, :sums])).all()


@pytest.mark.parametrize(("senders", "sums"), [each for each in SHAPES if each[0] > 1])
def test_a_sender_that_is_left_out_is_seen(senders, sums):
    group, fewer = Group(senders, sums), Exchange(senders, sums)
    fewer.senders -= 1
    group.send_all()
    assert not group.is_sum(group.receive(group.look(), text=fewer.receive()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("setp.lt.and.u32 has0, place, 5, has0;", "setp.lt.and.u32 has0, place, 8, has0;"),  # lanes without a sender
        ("@!has0 mov.b32 found, $6;\n", ""),
        ("sum0, 4, 31", "sum0, 2, 31"),
        ("$1, sum0, 8, 31", "$1, sum0, 7, 31"),
        (", [from+0];", ", [from+8];"),
    ],
)
def test_a_spoiled_receive_is_seen(old, new):
    group = Group(5, 4)
    assert old in group.exchange.receive()
    for sender in range(4):
        group.send(sender)
    seen = group.look()
    group.send(4)
    assert group.is_sum(group.receive(seen))
    try:
        received = group.receive(seen, text=group.exchange.receive().replace(old, new))
    except Endless:
        return
    assert not group.is_sum(received)


def test_a_spoiled_send_is_seen():
    text = Exchange(5, 4).send()
    for old, new in (("mad.wide.u32 to, thread, 64", "mad.wide.u32 to, thread, 8"), ("thread, 4;", "thread, 3;")):
        group = Group(5, 4)
        assert old in text
        for sender in range(5):
            group.send(sender, text=text.replace(old, new))
        with pytest.raises(Endless):
            group.receive(group.look())


PART = ".reg .pred p;\nsetp.eq.u32 p, %laneid, 3;\n"  # lanes part


def test_the_emulator_runs_nothing_that_it_does_not_know():
    warp = Warp(Memory([0]))
    for line, error in (
        ("add.s32 $0, $0, 1;", ValueError),
        ("mov.u32 $0, x;", KeyError),
        (".reg .b64 to;\nmov.b64 to, 1048576;\natom.add.relaxed.gpu.global.u32 $0, [to], 1;", ValueError),
        (".reg .b64 to;\nmov.b64 to, 1048576;\nld.relaxed.gpu.global.b32 $0, [to];", ValueError),  # orders nothing
        (".reg .b32 x;\nmov.u32 $0, x;", AssertionError),  # never written
        (".reg .b64 x;\nmov.b64 x, 0;\nmov.u32 $0, x;", AssertionError),  # of another size
        (".reg .b64 x;\nmov.u32 x, %laneid;\nmov.u32 $0, 0;", AssertionError),
        (".reg .pred p;\nmov.u32 p, %laneid;\nmov.u32 $0, 0;", AssertionError),  # of another type
        (f"{PART}@p bra END;\nEND:\nmov.u32 $0, 0;", AssertionError),
        (f"{PART}@p vote.sync.all.pred p, p, 0xffffffff;\nmov.u32 $0, 0;", AssertionError),
    ):
        with pytest.raises(error):
            warp.run("{\n" + line + "\n}", [np.uint32])


# ------------------------------------------------------------------------------------------------ its operands


def calls_of(name):
    """What exchange.py's function `name` hands to inline assembly: constraints, how many inputs, how many outputs."""
    function = next(each for each in SOURCE.body if isinstance(each, ast.FunctionDef) and each.name == name)
    found = []
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.inline_asm_elementwise":
            dtype = next(each.value for each in call.keywords if each.arg == "dtype")
            outputs = len(dtype.elts) if isinstance(dtype, ast.Tuple) else 1
            found.append((call.args[1].value.split(","), len(call.args[2].elts), outputs))
    return found


SOURCE = ast.parse(inspect.getsource(exchange))
CALLS = {name: calls_of(name) for name in ("send", "look", "receive")}


@pytest.mark.parametrize(("senders", "sums"), [each for each in SHAPES if Exchange(*each).loads <= 4])
def test_operands_fit_the_text(senders, sums):
    sent = Exchange(senders, sums)
    place = (1, 2, 4).index(sent.loads)
    assert operands_fit(sent.send(), *CALLS["send"][0])
    assert operands_fit(sent.look(), *CALLS["look"][place])
    assert operands_fit(sent.receive(), *CALLS["receive"][place])
    assert len(CALLS["look"][place][0]) == sent.loads + 1
    assert len(CALLS["receive"][place][0]) == Exchange.MOST + sent.loads + 2
    wrong = (place + 1) % 3  # the planted fault: the call for another number of loads
    assert not operands_fit(sent.look(), *CALLS["look"][wrong])


def test_a_shared_register_is_written_last():
    for constraints in (each for calls in CALLS.values() for each, _, _ in calls):
        assert all("&" in each for each in constraints if "=" in each) or constraints == CALLS["send"][0][0]
    lines = Exchange(17, 4).send().splitlines()
    assert [line for line in lines if "$0" in line] == [lines[-2]]


@pytest.mark.parametrize("accumulators", [0, 1, 2])
def test_every_launch_has_a_call_for_its_loads(accumulators):
    gpu = Gpu(132, 227 * 1024, 228 * 1024, ptx=True)
    seen = set()
    # With a weight in fp32 rows are shared from 8192 columns on, without one from 12288.
    parameters = {"weight_dtype": "fp32"} | WITH_ACCUMULATORS[accumulators]
    for cols in range(8194 if accumulators else 12290, WIDEST + 1, PART_BYTES // 2):
        launch = choose(problem(cols, rows=512, **parameters), gpu)
        seen |= {Exchange(launch.parts, sums * launch.rows).loads for sums in (1, 2)}
    assert seen == {1, 2, 4}
