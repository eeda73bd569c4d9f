"""A GPU that is not there: it runs a whole compiled kernel, as PTX, on a CPU.

The lanes of a warp go together. Warps of all programs take turns in an order of chance, so that whoever has to wait for
others does. Global memory is that of the tensors; shared memory begins as NaN, and a copy to it arrives when it is
waited for and no earlier. What the hardware may reorder beyond that is not emulated.
"""

import re
from random import Random

import numpy as np
import torch

from tests.impls.every_order import Stuck, Trapped
from tests.impls.statements import Kernel

LANES = 32
EVERY = np.ones(LANES, bool)
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
WIDTHS = {"rs": 2, "r": 4, "f": 4, "rd": 8}  # bytes of a register, by its name
KINDS = {f"{letter}{8 * size}": np.dtype(f"{letter}{size}") for letter in "uf" for size in (2, 4, 8)}
KINDS |= {f"s{8 * size}": np.dtype(f"i{size}") for size in (2, 4, 8)}
KINDS |= {f"b{8 * size}": np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
KINDS |= {"u8": np.dtype("u1"), "bf16": np.dtype("u2")}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
COMPARE |= {"ge": np.greater_equal, "lo": np.less, "hi": np.greater}
ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
PLAIN = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}
PLAIN |= {"neg": np.negative, "rem": np.fmod}


class Machine:
    """One launch: `arguments` are numbers and tensors, as the kernel's parameters follow each other.

    An instruction that it does not know is an error; so is an access outside of all tensors, or by lanes that part.
    """

    def __init__(self, ptx, name, programs, warps, shared_bytes, arguments):
        self.kernel, self.programs = Kernel(ptx, name), programs
        self.buffers = {}
        given = [self._address(each) if hasattr(each, "data_ptr") else each for each in arguments]
        parameters = self.kernel.parameters
        given += [0] * (len(parameters) - len(given))  # scratch memory, which no kernel here asks for
        self.parameters = {
            name: np.full(LANES, int(value) & (1 << 8 * KINDS[kind].itemsize) - 1, BITS[KINDS[kind].itemsize])
            for (kind, name), value in zip(parameters, given, strict=True)
        }
        self.teams, self.votes = [], {}
        for program in range(programs):
            shared = np.full(shared_bytes, 0xFF, np.uint8)
            self.teams.append([Warp(self, program, warp, shared) for warp in range(warps)])

    def _address(self, tensor):
        storage = tensor.untyped_storage()
        if storage.nbytes():
            self.buffers[storage.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        return tensor.data_ptr()

    def memory(self, address):
        for base, buffer in self.buffers.items():
            if base <= address < base + len(buffer):
                return base, buffer
        raise IndexError(f"global memory has no address {address:#x}")

    def run(self, seed, most_idle=200_000, slots=None):
        """Let one warp run a while, long or short, then another, until all have ended.

        Now and then one program is preferred for a while, so that it gets as far ahead of the others as it can. At most
        `slots` programs are there at a time, if given: another comes where one has ended. Raises Stuck after so many
        turns without progress, or 20 times as many in all.
        """
        random, idle, turns, preferred = Random(seed), 0, 0, None
        running = {warp: warp.steps() for team in self.teams for warp in team}
        waiting, live, to_come = set(), [], self.teams[::-1]
        while live or to_come:
            while to_come and len({warp.program for warp in live}) < (slots or self.programs):
                live += to_come.pop()
            if random.random() < 1 / 30:
                preferred = random.choice([None, *range(self.programs)])
            first = [each for each in live if each.program == preferred] if random.random() < 0.95 else []
            warp = random.choice(first or live)
            idle, turns = idle + 1, turns + 1
            if idle > most_idle or turns > 20 * most_idle:
                raise Stuck
            for _ in range(0 if warp in waiting else random.choice((1, 2, 5, 20))):
                event = next(running[warp], "end")
                idle = idle if event == "access" else 0
                if event == "end":
                    live.remove(warp)
                if event != "access":
                    waiting |= {warp} if event == "barrier" else set()
                    team = self.teams[warp.program]
                    if all(each in waiting or each not in live for each in team):
                        waiting -= set(team)
                    break


def lanes(first):
    """What tells the lanes of a warp apart, of which lane 0 is thread `first`."""
    lane = np.arange(LANES, dtype=np.uint32)
    return {"%tid.x": lane + np.uint32(first), "%laneid": lane}


class Warp:
    """One warp of a program; that its lanes part at a branch, or where they meet, is an error."""

    def __init__(self, machine, program, number, shared):
        self.machine, self.program, self.shared, self.text = machine, program, shared, machine.kernel
        self.values = lanes(LANES * number)
        self.values |= {"%ctaid.x": np.full(LANES, program, np.uint32)}
        self.values |= {"%nctaid.x": np.full(LANES, machine.programs, np.uint32)}
        self.copies, self.groups, self.voted = [], [], 0

    def steps(self):
        """Run; yield "barrier" at one, and "access" before what others may have to be waited for at."""
        text, at = self.text, 0
        while at < len(text.statements):
            guard, inverted, opcode, operands, scopes = statement = text.statements[at]
            self.mask = EVERY
            self.mask = mask = EVERY if guard is None else self.register(guard) ^ inverted
            at += 1
            assert mask.all() or "sync" not in opcode, "lanes part"
            if opcode[0] == "ret":
                return
            if opcode[0] == "bra":
                assert mask.all() or not mask.any(), "lanes part"
                if mask.any():
                    at = next(text.labels[key] for s in scopes[::-1] if (key := (s, operands[0])) in text.labels)
            elif opcode[0] in ("bar", "barrier"):
                if "red" in opcode:
                    votes = self.machine.votes.setdefault((self.program, self.voted), [])
                    votes.append(self.register(operands[-1]).all())
                    self.voted += 1
                    yield "barrier"
                    self.write(operands[0], np.full(LANES, all(votes)), EVERY)
                else:
                    yield "barrier"
            else:
                if {"relaxed", "acquire", "acq_rel"} & set(opcode):
                    yield "access"
                try:
                    with np.errstate(all="ignore"):
                        getattr(self, f"run_{opcode[0]}")(opcode, mask, *operands)
                except Exception as error:
                    error.add_note(f"{statement}")
                    raise

    def register(self, name):
        """All lanes of a register; what those hold that `mask` leaves out does not matter.

        A half of a pair that nothing ever writes may be read with the other: all its bits are set, NaN if it counts.
        """
        if name not in self.values:
            (size,) = (size for prefix, size in WIDTHS.items() if re.fullmatch(rf"%{prefix}\d+", name))
            return np.full(LANES, -1, f"i{size}").view(BITS[size])
        return self.values[name]

    def read(self, operand, kind):
        """The lanes' values, of one type; a register that is wider or narrower than the type is an error."""
        dtype = KINDS[kind]
        if operand == "global_smem":
            return np.zeros(LANES, dtype)
        if operand.startswith("0f"):
            return np.full(LANES, int(operand[2:], 16), np.uint32).view(dtype)
        if operand[0] in "-0123456789":
            number = int(operand.removesuffix("U"), 0) & (1 << 8 * dtype.itemsize) - 1
            return np.full(LANES, number, BITS[dtype.itemsize]).view(dtype)
        value = self.register(operand)
        assert value.dtype.itemsize == dtype.itemsize, f"{operand} is no {kind}"
        return value.view(dtype)

    def write(self, operand, value, mask):
        value = value if value.dtype == bool else value.view(BITS[value.dtype.itemsize])
        self.values[operand] = np.where(mask, value, self.values.get(operand, np.zeros_like(value)))

    # -------------------------------------------------------------------------------------------------- memory

    def address(self, operand):
        base, offset = re.fullmatch(r"([%\w$.#]+)(?:\+(-?\w+))?", operand.strip("[]").replace(" ", "")).groups()
        start = 0 if base == "global_smem" else self.register(base).astype(np.int64)
        return np.zeros(LANES, np.int64) + start + int(offset or "0", 0)

    def _bytes(self, space, addresses, size):
        """The memory, and which of its bytes each of these lanes means."""
        base, memory = (0, self.shared) if space == "shared" else self.machine.memory(int(addresses[0]))
        offsets = addresses - base
        if (offsets < 0).any() or (offsets + size > len(memory)).any() or (offsets % size).any():
            raise IndexError(f"outside of {space} memory, or within a word: {offsets}")
        return memory, offsets[:, None] + np.arange(size)

    def load(self, space, addresses, size, mask=EVERY):
        found = np.zeros(LANES, BITS[size])
        if mask.any():
            memory, places = self._bytes(space, addresses[mask], size)
            found[mask] = np.ascontiguousarray(memory[places]).view(BITS[size])[:, 0]
        return found

    def store(self, space, addresses, values, mask=EVERY):
        if mask.any():
            size = values.dtype.itemsize
            memory, places = self._bytes(space, addresses[mask], size)
            memory[places] = np.ascontiguousarray(values[mask]).view(np.uint8).reshape(-1, size)

    def _fits(self, addresses, size, mask):
        """Several words that are accessed as one have to begin at a multiple of their size."""
        if (addresses[mask] % size).any():
            raise IndexError(f"{size} bytes that begin at no multiple of it: {addresses[mask]}")

    def run_trap(self, _opcode, mask):
        if mask.any():
            raise Trapped

    def run_ld(self, opcode, mask, to, source):
        dtype = KINDS[opcode[-1]]
        if "param" in opcode:
            value = self.machine.parameters[source.strip("[]")]
            wide = to.startswith("%rd") and dtype.itemsize == 4
            self.write(to, value.view(dtype).astype(np.int64) if wide else value, mask)
            return
        space, addresses = "shared" if "shared" in opcode else "global", self.address(source)
        targets = [each.strip() for each in to.strip("{}").split(",")]
        self._fits(addresses, len(targets) * dtype.itemsize, mask)
        found = [self.load(space, addresses + i * dtype.itemsize, dtype.itemsize, mask) for i in range(len(targets))]
        for target, value in zip(targets, found, strict=True):
            self.write(target, value, mask)

    def run_st(self, opcode, mask, to, source):
        space, addresses = "shared" if "shared" in opcode else "global", self.address(to)
        size = KINDS[opcode[-1]].itemsize
        sources = source.strip("{}").split(",")
        self._fits(addresses, len(sources) * size, mask)
        for i, each in enumerate(sources):
            self.store(space, addresses + i * size, self.read(each.strip(), f"b{8 * size}"), mask)

    def run_atom(self, opcode, mask, to, where, *values):
        addresses, given = self.address(where), [self.read(value, opcode[-1]) for value in values]
        access = self.swap if "cas" in opcode else self.add
        assert {"cas", "add"} & set(opcode), opcode
        self.write(to, access(addresses, *given, mask), mask)

    def run_red(self, opcode, mask, where, value):
        """An atomic instruction that returns nothing, which newer compilers put where nobody reads what was found."""
        assert opcode[-2] == "add", opcode
        self.add(self.address(where), self.read(value, opcode[-1]), mask)

    def swap(self, addresses, expected, wanted, mask):
        """Compare and swap, by one lane; return what it found."""
        assert mask.sum() <= 1, "lanes that swap in no order"
        found = self.load("global", addresses, expected.dtype.itemsize, mask).view(expected.dtype)
        self.store("global", addresses, wanted, mask & (found == expected))
        return found

    def add(self, addresses, added, mask):
        """Lane after lane; return what each found."""
        found = np.zeros_like(added)
        for lane in np.flatnonzero(mask):
            one = np.arange(LANES) == lane
            found[lane] = self.load("global", addresses, added.dtype.itemsize, one).view(added.dtype)[lane]
            self.store("global", addresses, found + added, one)
        return found

    def run_cp(self, opcode, mask, *operands):
        if "commit_group" in opcode:
            self.groups, self.copies = [*self.groups, self.copies], []
        elif "wait_group" in opcode:
            while len(self.groups) > int(operands[0]):
                for copy in self.groups.pop(0):
                    self.store("shared", *copy)
        else:
            to, source, size = self.address(operands[0]), self.address(operands[1]), int(operands[2], 0)
            wanted = self.read(operands[3], "b32") if len(operands) > 3 else np.full(LANES, size)
            for i in range(0, size, 4):
                self.copies.append((to + i, self.load("global", source + i, 4, mask & (wanted > i)), mask))

    def run_ldmatrix(self, opcode, _mask, to, source):
        for register, addresses in self._matrices(opcode, to, source):
            low, high = (self.load("shared", each, 2).astype(np.uint32) for each in addresses)
            self.write(register, low | high << np.uint32(16), EVERY)

    def run_stmatrix(self, opcode, _mask, to, source):
        for register, addresses in self._matrices(opcode, source, to):
            for half, each in enumerate(addresses):
                self.store("shared", each, (self.read(register, "b32") >> np.uint32(16 * half)).astype(np.uint16))

    def _matrices(self, opcode, registers, where):
        """Of each 8 x 8 matrix the register, and where both 16-bit numbers of each lane's lie."""
        rows, lane = self.address(where), np.arange(LANES)
        for i, register in enumerate(registers.strip("{} ").split(",")):
            pairs = [(lane // 4, 2 * (lane % 4) + half) for half in (0, 1)]
            placed = [(col, row) if "trans" in opcode else (row, col) for row, col in pairs]
            yield register.strip(), [rows[8 * i + row] + 2 * col for row, col in placed]

    # ---------------------------------------------------------------------------------------------- arithmetic

    def run_mov(self, opcode, mask, to, source):
        if opcode[-1] == "pred":
            self.write(to, self.values.get(source, np.full(LANES, source != "0")), mask)
            return
        if "{" not in to + source:
            self.write(to, self.read(source, opcode[-1]), mask)
            return
        size = KINDS[opcode[-1]].itemsize // 2
        whole, shift = BITS[2 * size], BITS[2 * size](8 * size)
        if "{" in to:
            value, (low, high) = self.read(source, f"b{16 * size}"), to.strip("{}").split(",")
            self.write(low.strip(), value.astype(BITS[size]), mask)
            self.write(high.strip(), (value >> shift).astype(BITS[size]), mask)
        else:
            low, high = (
                self.read(each.strip(), f"b{8 * size}").astype(whole) for each in source.strip("{}").split(",")
            )
            self.write(to, low | high << shift, mask)

    def _binary(self, opcode, mask, to, a, b):
        a, b = self.read(a, opcode[-1]), self.read(b, opcode[-1])
        if {"wide", "hi"} & set(opcode):
            a, b = (each.astype(f"{each.dtype.kind}8") for each in (a, b))
        found = ARITHMETIC[opcode[0]](a, b)
        self.write(to, (found >> 32).astype(f"{found.dtype.kind}4") if "hi" in opcode else found, mask)

    run_add = run_sub = run_mul = run_min = run_max = _binary

    def run_mad(self, opcode, mask, to, a, b, c):
        a, b = self.read(a, opcode[-1]), self.read(b, opcode[-1])
        wide = np.dtype(f"{a.dtype.kind}{8 if 'wide' in opcode else a.dtype.itemsize}")
        self.write(to, a.astype(wide) * b.astype(wide) + self.read(c, f"b{8 * wide.itemsize}").view(wide), mask)

    def run_fma(self, opcode, mask, to, *operands):
        a, b, c = (self.read(each, "f32").astype(np.float64) for each in operands)
        self.write(to, (a * b + c).astype(np.float32), mask)

    def run_div(self, opcode, mask, to, a, b):
        a, b = self.read(a, opcode[-1]), self.read(b, opcode[-1])
        self.write(to, (a / b if a.dtype.kind == "f" else np.trunc(a / b)).astype(a.dtype), mask)

    def _plain(self, opcode, mask, to, *operands):
        given = [self.register(each) if opcode[-1] == "pred" else self.read(each, opcode[-1]) for each in operands]
        self.write(to, PLAIN[opcode[0]](*given), mask)

    run_neg = run_rem = run_and = run_or = run_xor = run_not = _plain

    def run_shl(self, opcode, mask, to, a, b):
        a, by = self.read(a, opcode[-1]), self.read(b, "b32")
        moved = a << by.astype(a.dtype) if opcode[0] == "shl" else a >> by.astype(a.dtype)
        self.write(to, np.where(by < 8 * a.dtype.itemsize, moved, 0).astype(a.dtype), mask)

    run_shr = run_shl

    def run_bfe(self, opcode, mask, to, a, start, length):
        """Some bits of a; of a signed number the highest of them fills the rest."""
        kind = KINDS[opcode[-1]]
        bits = BITS[kind.itemsize]
        start, length = (self.read(each, "b32").astype(bits) for each in (start, length))
        rest = bits(8 * kind.itemsize) - length
        shifted = self.read(a, opcode[-1]).view(bits) << (rest - start)
        self.write(to, (shifted.view(kind) >> rest.astype(kind)).view(bits), mask)

    def run_prmt(self, _opcode, mask, to, a, b, choice):
        """Four bytes of the eight of a and b, each chosen by 3 bits of a digit."""
        chars = np.stack([self.read(a, "b32"), self.read(b, "b32")], 1).view(np.uint8)
        digits = [self.read(choice, "b32") >> np.uint32(4 * i) & np.uint32(7) for i in range(4)]
        chosen = np.stack([chars[np.arange(LANES), each] for each in digits], 1)
        self.write(to, np.ascontiguousarray(chosen).view(np.uint32)[:, 0], mask)

    def run_setp(self, opcode, mask, to, a, b, *both):
        truth = COMPARE[opcode[1]](self.read(a, opcode[-1]), self.read(b, opcode[-1]))
        self.write(to, truth & self.register(both[0]) if both else truth, mask)

    def run_selp(self, opcode, mask, to, a, b, choice):
        self.write(to, np.where(self.register(choice), self.read(a, opcode[-1]), self.read(b, opcode[-1])), mask)

    def run_cvt(self, opcode, mask, to, *sources):
        target, kind = opcode[-2:]
        found = [_converted(self.read(each, kind), target.removesuffix("x2"), kind) for each in sources]
        if target.endswith("x2"):
            high, low = (each.view(np.uint16).astype(np.uint32) for each in found)
            found = [low | high << np.uint32(16)]
        self.write(to, found[0], mask)

    def run_shfl(self, opcode, mask, to, source, other, _clamp, _lanes):
        given, other = self.read(source, "b32"), self.read(other, "b32")
        self.write(to.split("|")[0], given[self.values["%laneid"] ^ other if "bfly" in opcode else other], mask)

    def run_redux(self, opcode, mask, to, source, _lanes):
        given = self.read(source, opcode[-1])
        self.write(to, np.full(LANES, ARITHMETIC[opcode[2]].reduce(given), given.dtype), mask)

    def run_vote(self, opcode, mask, to, source, _lanes):
        found = self.register(source)
        self.write(to, np.full(LANES, found.any() if "any" in opcode else found.all()), mask)


def _converted(value, target, kind):
    if kind == "bf16":
        return (value.astype(np.uint32) << np.uint32(16)).view(KINDS[target])
    if target == "bf16":  # to the nearest, ties to even
        bits = value.view(np.uint32)
        return (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)).astype(np.uint16)
    return value.astype(KINDS[target])
