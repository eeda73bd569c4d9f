"""A warp that runs inline assembly of arrivals.py, groups.py or exchange.py, over words of 64 bits or their halves.

It is a warp of the machine, and stricter: it knows the few instructions that these need and no other, so that each
access orders as it has to, and no register may be read in a lane in which it was not written. Memory is one for all
warps, and what one stores all others see at once.
"""

import re
from functools import cache

import numpy as np

from tests.impls import machine
from tests.impls.machine import EVERY, LANES
from tests.impls.statements import Text

TYPES = {"pred": np.bool_, "b32": np.uint32, "b64": np.uint64}
KNOWN = re.compile(
    r"bra|mov\.([ub]32|b64)|setp\.(eq|ne|lt)(\.and)?\.[usb]32|setp\.g[et]\.s64|selp\.b32|add\.(u32|f32)|sub\.s32|and\.b32"
    r"|mad\.wide\.u32|vote\.sync\.any\.pred"
    r"|(ld|st)\.relaxed\.gpu\.global\.b64|vote\.sync\.all\.pred|shfl\.sync\.(bfly|idx)\.b32"
    r"|atom\.add\.acq_rel\.gpu\.global\.u(32|64)|ld\.acquire\.gpu\.global\.b(32|64)|st\.relaxed\.gpu\.global\.b32"
)


class Endless(Exception):
    """The program waits for what never comes."""


class Memory:
    """Words from BASE on; `later[n]` holds (index, word) pairs that arrive after the n-th load."""

    BASE = 1 << 20

    def __init__(self, words, later=None):
        self.words = np.array(words, dtype=np.uint64)
        self.later = dict(later or {})
        self.loads = 0

    def cells(self, addresses, kind):
        """All of memory in cells of this kind, and which of them have these addresses."""
        cells = self.words.view(kind)
        places, rest = np.divmod(addresses.astype(np.int64) - self.BASE, cells.itemsize)
        if rest.any() or (places < 0).any() or (places >= len(cells)).any():
            raise IndexError(f"outside of memory, or within a word: {addresses}")
        return cells, places

    def load(self, addresses, kind):
        cells, places = self.cells(addresses, kind)
        found = cells[places]
        self.loads += 1
        for place, word in self.later.pop(self.loads, ()):
            self.words[place] = word
        return found

    def store(self, addresses, values):
        cells, places = self.cells(addresses, values.dtype)
        cells[places] = values

    def add(self, addresses, values):
        """Lane after lane; return what each found."""
        cells, places = self.cells(addresses, values.dtype)
        found = np.zeros_like(values)
        for i, place in enumerate(places):
            found[i] = cells[place]
            cells[place : place + 1] += values[i]
        return found


class Warp(machine.Warp):
    """One warp, of which lane 0 is thread `first`; it may access memory `limit` times."""

    def __init__(self, memory, first=0, limit=100):
        self.memory, self.limit, self.special = memory, limit, machine.lanes(first)

    def run(self, text, outputs, *inputs):
        """Run a block; `outputs` are numpy types, each input a number of a numpy type, or an array of one a lane."""
        running = self.steps_of(text, outputs, *inputs)
        while True:
            try:
                next(running)
            except StopIteration as end:
                return end.value

    def steps_of(self, text, outputs, *inputs):
        """The same, which yields before every access to memory: other warps may run in between."""
        self.text, self.values, self.mask = block(text), dict(self.special), EVERY
        self.known = {name: EVERY.copy() for name in self.special}
        kinds = [*outputs, *(np.asarray(each).dtype.type for each in inputs)]
        for name, kind in [(f"${i}", kind) for i, kind in enumerate(kinds)] + [*self.text.types.items()]:
            self.values[name], self.known[name] = np.zeros(LANES, TYPES.get(kind, kind)), np.zeros(LANES, bool)
        for i, each in enumerate(inputs, len(outputs)):
            self.write(f"${i}", np.broadcast_to(each, LANES).copy(), EVERY)
        for accesses, _ in enumerate(self.steps()):
            if accesses == self.limit:
                raise Endless
            yield
        self.mask = EVERY
        return [self.register(f"${i}").copy() for i in range(len(outputs))]

    def register(self, name):
        assert self.known[name][self.mask].all(), f"{name} is read before it is written"
        return super().register(name)

    def write(self, operand, value, mask):
        assert self.values[operand].dtype.itemsize == value.dtype.itemsize, f"{operand} is no {value.dtype}"
        super().write(operand, value, mask)
        self.known[operand] |= mask

    def load(self, space, addresses, size, mask=EVERY):
        found = np.zeros(LANES, machine.BITS[size])
        found[mask] = self.memory.load(addresses[mask], found.dtype)
        return found

    def store(self, space, addresses, values, mask=EVERY):
        self.memory.store(addresses[mask], values[mask])

    def add(self, addresses, added, mask):
        found = np.zeros_like(added)
        found[mask] = self.memory.add(addresses[mask], added[mask])
        return found


@cache
def block(text):
    """The statements of a block; an instruction that neither file needs is an error."""
    found = Text(text)
    for _, _, opcode, operands, _ in found.statements:
        if not KNOWN.fullmatch(".".join(opcode)):
            raise ValueError(f"no such instruction here: {'.'.join(opcode)}")
        if opcode[0] == "setp":
            assert (len(operands) == 4) == ("and" in opcode)
        if "sync" in opcode:
            assert operands[-1] == "0xffffffff"
        if opcode[0] == "shfl":
            assert operands[-2] == "31"
    return found


def operands_fit(text, constraints, inputs, outputs):
    """Whether inline assembly names and writes as many operands as a call of it hands over."""
    used = [int(number) for number in re.findall(r"\$(\d+)", text)]
    written = {int(number) for number in re.findall(r"^(?:@!?\w+ )?(?!st)[\w.]+ \$(\d+),", text, re.MULTILINE)}
    return (
        len(constraints) == inputs + outputs
        and all(("=" in each) == (i < outputs) for i, each in enumerate(constraints))
        and max(used) < len(constraints)
        and written == {*range(outputs)}
    )
