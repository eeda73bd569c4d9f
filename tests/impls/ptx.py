"""A warp of 32 lanes that runs the few PTX instructions of grid.py, over memory in words of 64 bits or halves of them.

Memory is one for all warps, and what one stores all others see at once. What orders accesses is not emulated: there is
no other `atom`, `ld` or `st` here than the ones that order as they have to.
"""

import re

import numpy as np

LANES = 32
EVERY = np.ones(LANES, bool)
TYPES = {"pred": np.bool_, "b32": np.uint32, "b64": np.uint64}
STATEMENT = re.compile(r"(?:@(!?)(\w+) )?([\w.]+) (.+);")
OPERAND = re.compile(r"\{[^}]*\}|\[[^]]*\]|[^\s,]+")
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less}
KNOWN = re.compile(
    r"mov\.([ub]32|b64)|setp\.(eq|ne|lt)(\.and)?\.[ub]32|add\.(u32|f32)|and\.b32|mad\.wide\.u32"
    r"|(ld|st)\.relaxed\.gpu\.global\.b64|vote\.sync\.all\.pred|shfl\.sync\.(bfly|idx)\.b32"
    r"|atom\.add\.acq_rel\.gpu\.global\.u32|ld\.acquire\.gpu\.global\.b32|st\.relaxed\.gpu\.global\.b32"
)
ACCESS = re.compile(r"\b(ld|st|atom)\.")


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


class Warp:
    """One warp, of which lane 0 is thread `first`; that its lanes part at a branch is an error."""

    def __init__(self, memory, first=0, limit=1000):
        self.memory = memory
        self.limit = limit
        lane = np.arange(LANES, dtype=np.uint32)
        self.special = {"%laneid": lane, "%tid.x": lane + np.uint32(first)}

    def run(self, text, outputs, *inputs):
        """Run a block; `outputs` are numpy types, each input a number of a numpy type, or an array of one a lane."""
        running = self.steps(text, outputs, *inputs)
        while True:
            try:
                next(running)
            except StopIteration as end:
                return end.value

    def steps(self, text, outputs, *inputs):
        """The same, which yields before every access to memory: other warps may run in between."""
        self.values, self.known = {}, {}
        for i, kind in enumerate([*outputs, *(np.asarray(each).dtype.type for each in inputs)]):
            self.declare(f"${i}", kind)
        for i, each in enumerate(inputs, len(outputs)):
            self.write(f"${i}", np.broadcast_to(each, LANES), EVERY)
        lines = text.strip().removeprefix("{").removesuffix("}").strip().splitlines()
        labels = {line: at for at, line in enumerate(lines) if line.endswith(":")}
        at = steps = 0
        while at < len(lines):
            steps += 1
            if steps > self.limit:
                raise Endless(lines[at])
            line, at = lines[at], at + 1
            if declared := re.fullmatch(r"\.reg \.(\w+) (.+);", line):
                for name, number in re.findall(r"(\w+)(?:<(\d+)>)?", declared[2]):
                    for each in [f"{name}{i}" for i in range(int(number))] if number else [name]:
                        self.declare(each, TYPES[declared[1]])
            elif line not in labels:
                if ACCESS.search(line):
                    yield
                at = self.step(line, labels) or at
        return [self.read(f"${i}", EVERY, kind) for i, kind in enumerate(outputs)]

    def declare(self, name, kind):
        self.values[name], self.known[name] = np.zeros(LANES, kind), np.zeros(LANES, bool)

    def step(self, line, labels):
        """Run a statement in the lanes that its predicate names; return where to go on, if elsewhere."""
        inverted, guard, opcode, rest = STATEMENT.fullmatch(line).groups()
        mask = EVERY if guard is None else self.read(guard, EVERY, np.bool_) != bool(inverted)
        operands = OPERAND.findall(rest)
        if opcode == "bra":
            assert mask.all() or not mask.any(), "lanes part"
            return labels[f"{operands[0]}:"] if mask.all() else None
        if not KNOWN.fullmatch(opcode):
            raise ValueError(f"no such instruction here: {opcode}")
        assert mask.all() or ".sync" not in opcode, "lanes part"
        getattr(self, f"run_{opcode.split('.')[0]}")(opcode, mask, *operands)
        return None

    def run_mov(self, opcode, mask, to, source):
        if to.startswith("{"):
            whole = self.read(source, mask, np.uint64)
            for half, shift in zip(to.strip("{}").split(", "), (0, 32), strict=True):
                self.write(half, (whole >> np.uint64(shift)).astype(np.uint32), mask)
        elif source.startswith("{"):
            low, high = (self.read(half, mask, np.uint32).astype(np.uint64) for half in source.strip("{}").split(", "))
            self.write(to, low | high << np.uint64(32), mask)
        else:
            self.write(to, self.read(source, mask, np.uint64 if opcode == "mov.b64" else np.uint32), mask)

    def run_setp(self, opcode, mask, to, a, b, *both):
        assert len(both) == (".and." in opcode)
        truth = COMPARE[opcode.split(".")[1]](self.read(a, mask, np.uint32), self.read(b, mask, np.uint32))
        self.write(to, truth & self.read(both[0], mask, np.bool_) if both else truth, mask)

    def run_add(self, opcode, mask, to, *both):
        a, b = (self.read(each, mask, np.uint32) for each in both)
        with np.errstate(all="ignore"):
            self.write(to, a + b if opcode == "add.u32" else (a.view("f4") + b.view("f4")).view("u4"), mask)

    def run_and(self, opcode, mask, to, a, b):
        self.write(to, self.read(a, mask, np.uint32) & self.read(b, mask, np.uint32), mask)

    def run_mad(self, opcode, mask, to, a, b, c):
        a, b = (self.read(each, mask, np.uint32).astype(np.uint64) for each in (a, b))
        self.write(to, a * b + self.read(c, mask, np.uint64), mask)

    def run_ld(self, opcode, mask, to, source):
        kind = TYPES[opcode.split(".")[-1]]
        loaded = np.zeros(LANES, kind)
        loaded[mask] = self.memory.load(self.address(source, mask)[mask], kind)
        self.write(to, loaded, mask)

    def run_st(self, opcode, mask, to, source):
        values = self.read(source, mask, TYPES[opcode.split(".")[-1]])
        self.memory.store(self.address(to, mask)[mask], values[mask])

    def run_atom(self, opcode, mask, to, where, value):
        found = np.zeros(LANES, np.uint32)
        found[mask] = self.memory.add(self.address(where, mask)[mask], self.read(value, mask, np.uint32)[mask])
        self.write(to, found, mask)

    def run_vote(self, opcode, mask, to, source, lanes):
        assert lanes == "0xffffffff"
        self.write(to, np.full(LANES, self.read(source, mask, np.bool_).all()), mask)

    def run_shfl(self, opcode, mask, to, source, other, clamp, lanes):
        assert (clamp, lanes) == ("31", "0xffffffff")
        given, other = self.read(source, mask, np.uint32), self.read(other, mask, np.uint32)
        self.write(to, given[self.special["%laneid"] ^ other if "bfly" in opcode else other], mask)

    def address(self, operand, mask):
        register, _, offset = operand.strip("[]").partition("+")
        return self.read(register, mask, np.uint64) + np.uint64(offset or 0)

    def read(self, operand, mask, kind):
        if operand in self.special:
            return self.special[operand]
        if operand.isdigit():
            return np.full(LANES, int(operand), kind)
        assert self.values[operand].dtype == kind, f"{operand} is no {kind.__name__}"
        assert self.known[operand][mask].all(), f"{operand} is read before it is written"
        return self.values[operand].copy()

    def write(self, operand, value, mask):
        assert self.values[operand].dtype == value.dtype, f"{operand} is no {value.dtype}"
        self.values[operand][mask] = value[mask]
        self.known[operand] |= mask


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
