"""How the programs of one launch wait for each other: a barrier for all, and words that a few exchange.

Both need every program on the device at once, which a cooperative launch promises, and a `state` that outlives the
launch, 0 when it is made. `state[0]` is the barrier: every program adds 1 but the first, which adds what is missing to
2^31. So its highest bit turns over exactly when all have come, and the others are 0 again (the trick of CUDA's
cooperative groups). `state[1]` is an epoch that only grows; whoever comes last advances it. No launch has anything to
reset, a CUDA graph replays, and no word of an earlier launch can be taken for one of this. Launches that share a state
must follow each other on one stream (workspace.py).
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportArgumentType=false

import triton
import triton.language as tl

# ------------------------------------------------------------------------------------------------ a barrier


def barrier(*, wait: bool, advance: bool) -> str:
    """The assembly that one warp of each program runs, its first lane for all.

    $1: the state; $2: what this program adds; $3: the next epoch, if it is to `advance`. Every access of hundreds of
    warps to one word would delay those that are still to come, so that only one warp of a program looks.
    """
    lines = [".reg .pred first, mine, true;", ".reg .b32 thread, before, now;", "mov.u32 thread, %tid.x;"]
    lines += ["setp.lt.u32 first, thread, 32;", "@!first bra MET;", "setp.eq.u32 mine, thread, 0;"]
    lines += ["mov.b32 before, 0;", "@mine atom.add.acq_rel.gpu.global.u32 before, [$1], $2;"]
    if advance:
        lines += ["add.u32 now, before, $2;", "and.b32 now, now, 2147483647;"]
        lines += ["setp.eq.and.u32 true, now, 0, mine;", "@true st.relaxed.gpu.global.b32 [$1+4], $3;"]
    if wait:
        lines += ["shfl.sync.idx.b32 before, before, 0, 31, 0xffffffff;", "and.b32 before, before, 2147483648;"]
        lines += ["WAIT:", "ld.acquire.gpu.global.b32 now, [$1];", "and.b32 now, now, 2147483648;"]
        lines += ["setp.eq.u32 true, now, before;", "@true bra WAIT;"]
    return _block([*lines, "MET:", "mov.b32 $0, 0;"])


def _block(lines: list[str]) -> str:
    return "{\n" + "\n".join(lines) + "\n}"


MEET = tl.constexpr(barrier(wait=True, advance=False))
MEET_AND_ADVANCE = tl.constexpr(barrier(wait=True, advance=True))
ADVANCE = tl.constexpr(barrier(wait=False, advance=True))


@triton.jit
def meet(state, epoch=None, WAIT: tl.constexpr = True):
    """Say that all this program has stored may be read, and wait until every program has; `epoch` is the next one."""
    tl.debug_barrier()  # the stores of all threads come before what one says
    added = tl.where(tl.program_id(0) == 0, 2147483647 - (tl.num_programs(0) - 2), 1)
    if epoch is None:
        tl.inline_asm_elementwise(MEET, "=r,l,r", [state, added], dtype=tl.int32, is_pure=False, pack=1)
    elif WAIT:
        tl.inline_asm_elementwise(
            MEET_AND_ADVANCE, "=r,l,r,r", [state, added, epoch], dtype=tl.int32, is_pure=False, pack=1
        )
    else:
        tl.inline_asm_elementwise(ADVANCE, "=r,l,r,r", [state, added, epoch], dtype=tl.int32, is_pure=False, pack=1)
    if WAIT:
        tl.debug_barrier()  # what the others read comes after what one saw


# ------------------------------------------------------------------------------------------------ exchanged sums


class Exchange:
    """The assembly by which `senders` programs exchange `sums` numbers each, at most MOST.

    A word holds a number in fp32 and a tag that tells which it is of those that follow each other in its place; it is
    one 64-bit access, whole and never of two times. The words of one number lie side by side, a lane for each, so that
    one load fetches them all and shuffles add them up, in one order everywhere. What is written here runs on scalars,
    which all lanes of a warp hold alike: that is what makes shuffles between them safe. Always MOST numbers go in and
    come out, the last of them 0 where there are fewer.
    """

    MOST = 4
    LANES = 32

    def __init__(self, senders: int, sums: int) -> None:
        self.senders = senders
        self.sums = sums
        self.width = 1 << (senders - 1).bit_length()  # words kept for a number
        self.words = sums * self.width
        self.loads = -(-self.words // self.LANES)

    def send(self) -> str:
        """$1: where this sender's first word is; $2: the tag; then the numbers, of which thread i sends number i."""
        lines = [".reg .pred mine;", ".reg .b32 thread, value;", ".reg .b64 word, to;"]
        lines += ["mov.u32 thread, %tid.x;", "mov.b32 value, $3;"]
        for i in range(1, self.sums):
            lines += [f"setp.eq.u32 mine, thread, {i};", f"@mine mov.b32 value, ${3 + i};"]
        lines += [f"mad.wide.u32 to, thread, {8 * self.width}, $1;", "mov.b64 word, {value, $2};"]
        lines += [f"setp.lt.u32 mine, thread, {self.sums};", "@mine st.relaxed.gpu.global.b64 [to], word;"]
        return _block([*lines, "mov.b32 $0, 0;"])

    def look(self) -> str:
        """$0...: the words that this lane is to watch, whatever they hold; then where the first word of all is."""
        return _block([*self._lanes(f"${self.loads}"), *self._fetch([f"${i}" for i in range(self.loads)])])

    def receive(self) -> str:
        """$0...: the numbers, summed over all senders; what `look` saw; where it looked; the tag to wait for."""
        where, tag = (f"${self.MOST + self.loads + i}" for i in range(2))
        words = [f"word{i}" for i in range(self.loads)]
        lines = [f".reg .b64 word<{self.loads}>;", f".reg .b32 found, sum<{self.loads}>, moved;", ".reg .pred ready;"]
        lines += [f"mov.b64 {word}, ${self.MOST + i};" for i, word in enumerate(words)]
        lines += [*self._lanes(where), "CHECK:", "setp.eq.b32 ready, 0, 0;"]
        for i, word in enumerate(words):
            lines += [f"mov.b64 {{sum{i}, found}}, {word};", f"@!has{i} mov.b32 found, {tag};"]
            lines.append(f"setp.eq.and.b32 ready, found, {tag}, ready;")
        lines += ["vote.sync.all.pred ready, ready, 0xffffffff;", "@ready bra READY;"]
        lines += [*self._fetch(words), "bra CHECK;", "READY:"]
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
        return _block(lines)

    def _lanes(self, where: str) -> list[str]:
        """`from`: the first word of this lane; `has0`...: whether a sender's word is there, in each load."""
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


@triton.jit
def send(words, tag, sums, ASM: tl.constexpr):
    """Send out this program's part of the sums."""
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
def look(words, ASM: tl.constexpr, LOADS: tl.constexpr):
    """What the words are now; each lane sees others, and `receive` knows which."""
    if LOADS == 1:
        return (tl.inline_asm_elementwise(ASM, "=&l,l", [words], dtype=tl.int64, is_pure=False, pack=1),)
    elif LOADS == 2:
        return tl.inline_asm_elementwise(ASM, "=&l,=&l,l", [words], dtype=(tl.int64, tl.int64), is_pure=False, pack=1)
    else:
        return tl.inline_asm_elementwise(
            ASM,
            "=&l,=&l,=&l,=&l,l",
            [words],
            dtype=(tl.int64, tl.int64, tl.int64, tl.int64),
            is_pure=False,
            pack=1,
        )


@triton.jit
def receive(seen, words, tag, ASM: tl.constexpr):
    """The sums over all programs of a row, once all have sent theirs."""
    if len(seen) == 1:
        return tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f,=&f,=&f,l,l,r",
            [seen[0], words, tag],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False,
            pack=1,
        )
    elif len(seen) == 2:
        return tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f,=&f,=&f,l,l,l,r",
            [seen[0], seen[1], words, tag],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False,
            pack=1,
        )
    else:
        return tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f,=&f,=&f,l,l,l,l,l,r",
            [seen[0], seen[1], seen[2], seen[3], words, tag],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False,
            pack=1,
        )
