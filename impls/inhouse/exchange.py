"""Sums that the programs which share a row exchange, as words in global memory.

All programs of a row have to be on the device at once. The words need no reset between launches: their tags go on from
the epoch of groups.py.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportArgumentType=false, reportAssignmentType=false

from functools import lru_cache
from typing import Any

import triton
import triton.language as tl

from .checks import LATE, MOST_POLLS, POLLS, poll_again


class Exchange:
    """The assembly by which `senders` programs exchange `sums` numbers each, at most MOST.

    A word holds a number in fp32 and a tag. It is written and read by one 64-bit access, so that both parts are always
    of one time. Many words follow each other in one place; the tag tells them apart. The words of one number lie side
    by side, a lane for each: one load fetches them all, and shuffles add them up in the same order in every program.
    The operands are scalars, which all lanes of a warp hold alike, so that shuffles between lanes are safe. MOST
    numbers go in and come out; where there are fewer the last are 0.
    """

    MOST = 4
    LANES = 32

    def __init__(self, senders: int, sums: int, most_polls: int = MOST_POLLS) -> None:
        self.senders = senders
        self.sums = sums
        self.most_polls = most_polls
        self.width = 1 << (senders - 1).bit_length()  # words kept for a number
        self.words = sums * self.width
        self.loads = -(-self.words // self.LANES)

    def send(self) -> str:
        """$1: the address of this sender's first word; $2: the tag; then the numbers. Thread i sends number i."""
        lines = [".reg .pred mine;", ".reg .b32 thread, value;", ".reg .b64 word, to;"]
        lines += ["mov.u32 thread, %tid.x;", "mov.b32 value, $3;"]
        for i in range(1, self.sums):
            lines += [f"setp.eq.u32 mine, thread, {i};", f"@mine mov.b32 value, ${3 + i};"]
        lines += [f"mad.wide.u32 to, thread, {8 * self.width}, $1;", "mov.b64 word, {value, $2};"]
        lines += [f"setp.lt.u32 mine, thread, {self.sums};", "@mine st.relaxed.gpu.global.b64 [to], word;"]
        return braced([*lines, "mov.b32 $0, 0;"])

    def poll(self) -> str:
        """$0...: the words of this lane, whatever they hold now; then the address of the first word of all."""
        return braced([*self._lanes(f"${self.loads}"), *self._fetch([f"${i}" for i in range(self.loads)])])

    def receive(self) -> str:
        """$0...: the numbers, summed over all senders, and LATE; then the words of `poll`, its address, the tag."""
        late, first = f"${self.MOST}", self.MOST + 1
        where, tag = (f"${first + self.loads + i}" for i in range(2))
        words = [f"word{i}" for i in range(self.loads)]
        lines = [f".reg .b64 word<{self.loads}>;", f".reg .b32 found, sum<{self.loads}>, moved;", ".reg .pred ready;"]
        lines += [f"mov.b64 {word}, ${first + i};" for i, word in enumerate(words)]
        lines += [*POLLS, f"mov.b32 {late}, 0;", *self._lanes(where), "CHECK:", "setp.eq.b32 ready, 0, 0;"]
        for i, word in enumerate(words):
            lines += [f"mov.b64 {{sum{i}, found}}, {word};", f"@!has{i} mov.b32 found, {tag};"]
            lines.append(f"setp.eq.and.b32 ready, found, {tag}, ready;")
        lines += ["vote.sync.all.pred ready, ready, 0xffffffff;", "@ready bra READY;"]
        lines += [*poll_again(late, "READY", self.most_polls), *self._fetch(words), "bra CHECK;", "READY:"]
        for i, word in enumerate(words):
            lines += [f"mov.b64 {{sum{i}, found}}, {word};", f"@!has{i} mov.b32 sum{i}, 0;"]
            for step in (1, 2, 4, 8, 16):
                if step < self.width:
                    lines.append(f"shfl.sync.bfly.b32 moved, sum{i}, {step}, 31, 0xffffffff;")
                    lines.append(f"add.f32 sum{i}, sum{i}, moved;")
        for number in range(self.MOST):
            first, lane = divmod(number * self.width, self.LANES)
            if number >= self.sums:
                lines.append(f"mov.b32 ${number}, 0;")
                continue
            lines.append(f"shfl.sync.idx.b32 ${number}, sum{first}, {lane}, 31, 0xffffffff;")
            for more in range(first + 1, first + self.width // self.LANES):
                lines.append(f"add.f32 ${number}, ${number}, sum{more};")
        return braced(lines)

    def _lanes(self, where: str) -> list[str]:
        """Set `from`, the address of this lane's first word, and `has0`...: whether a load has a sender's word."""
        lines = [f".reg .pred has<{self.loads}>;", ".reg .b32 lane, place;", ".reg .b64 from;"]
        lines += ["mov.u32 lane, %laneid;", f"mad.wide.u32 from, lane, 8, {where};"]
        for i in range(self.loads):
            lines += [f"add.u32 place, lane, {self.LANES * i};", f"setp.lt.u32 has{i}, place, {self.words};"]
            lines += [f"and.b32 place, place, {self.width - 1};"]
            lines += [f"setp.lt.and.u32 has{i}, place, {self.senders}, has{i};"]
        return lines

    def _fetch(self, words: list[str]) -> list[str]:
        lines: list[str] = []
        for i, word in enumerate(words):
            lines += [f"mov.b64 {word}, 0;", f"@has{i} ld.relaxed.gpu.global.b64 {word}, [from+{8 * self.LANES * i}];"]
        return lines


def braced(lines: list[str]) -> str:
    """The lines as one block of assembly, whose registers and labels are its own."""
    return "{\n" + "\n".join(lines) + "\n}"


@lru_cache
def exchange_options(senders: int, sums: int, most_polls: int = MOST_POLLS) -> dict[str, Any]:
    """The constants of a kernel that exchanges sums; the assembly is written once, and not at every call."""
    exchange = Exchange(senders, sums, most_polls)
    return {
        "WORDS": exchange.words,
        "LOADS": exchange.loads,
        "SEND": exchange.send(),
        "POLL": exchange.poll(),
        "RECEIVE": exchange.receive(),
    }


@triton.jit
def send(words, tag, sums, ASM: tl.constexpr):
    """Send this program's part of the sums to all programs of the row."""
    tl.inline_asm_elementwise(
        ASM,
        "=r,l,r,r,r,r,r",
        [words, tag, as_bits(sums[0]), as_bits(sums[1]), as_bits(sums[2]), as_bits(sums[3])],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def as_bits(number):
    return number.to(tl.int32, bitcast=True)


@triton.jit
def poll(words, ASM: tl.constexpr, LOADS: tl.constexpr):
    """Read the words as they are now, for `receive`; each lane reads other ones."""
    OPERANDS: tl.constexpr = "=&l," * LOADS + "l"
    return tl.inline_asm_elementwise(ASM, OPERANDS, [words], dtype=(tl.int64,) * LOADS, is_pure=False, pack=1)


@triton.jit
def receive(seen, words, tag, ASM: tl.constexpr):
    """Wait until all programs of a row have sent their parts, and return the sums."""
    OPERANDS: tl.constexpr = "=&f," * 4 + "=&r," + "l," * len(seen) + "l,r"
    # Triton 3.9 takes the types of outputs only where they are written here.
    found = tl.inline_asm_elementwise(
        ASM,
        OPERANDS,
        seen + (words, tag),
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32, tl.int32),
        is_pure=False,
        pack=1,
    )
    tl.device_assert(found[4] != LATE, "normbwd: sums of a row never came; do other launches use its words?")
    return found[0], found[1], found[2], found[3]


_AGREE = [".reg .pred true;", "setp.ne.u32 true, $1, 0;", "bar.red.and.pred true, 0, true;", "selp.b32 $0, 1, 0, true;"]
AGREE = tl.constexpr(braced(_AGREE))


@triton.jit
def all_agree(condition):
    """Whether it is true for all threads, which wait for each other here: each may have seen another word."""
    condition = tl.cast(condition, tl.int32)
    return tl.inline_asm_elementwise(AGREE, "=r,r", [condition], dtype=tl.int32, is_pure=False, pack=1) != 0
