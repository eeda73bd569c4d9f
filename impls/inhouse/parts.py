"""Rows too wide for one program: several share a row, and exchange its sums.

A tile is R rows of C columns, and S programs side by side cover the row. Each adds up its part of both row sums and
sends them out; a tile or two later it takes in the sums of all, so that nobody waits while memory could be busy. Until
then the tile stays in registers as it came: two numbers a word, `even` and `odd` columns.
"""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false

import triton
import triton.language as tl

from .finish import finish_in_turn
from .formula import add_four, add_two, factor, row_corrections
from .grid import meet
from .words import halves, opaque, same, together

SLOTS = tl.constexpr(8)  # a program may be up to 2 D + 1 tiles ahead of one that has yet to read


@triton.jit
def backward_parts(
    dx,  # (rows, cols / 2) words, contiguous
    dweight,
    dbias,
    partial_dweight,  # (groups, cols) fp32
    partial_dbias,  # (groups, cols) fp32 or None
    dy,  # (rows, cols / 2) words
    x,
    weight,
    mean,
    rstd,
    state,
    exchange,  # (groups, SLOTS, WORDS)
    rows,
    cols,
    dy_stride,  # in words
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    DTYPE: tl.constexpr,
    WEIGHT_DTYPE: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    S: tl.constexpr,
    D: tl.constexpr,
    WORDS: tl.constexpr,
    LOADS: tl.constexpr,
    SEND: tl.constexpr,
    LOOK: tl.constexpr,
    RECEIVE: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    FUSED: tl.constexpr,
    FINISH_ROWS: tl.constexpr,
    FINISH_COLS: tl.constexpr,
):
    part = tl.program_id(0) % S
    group = tl.program_id(0) // S
    groups = tl.num_programs(0) // S
    H: tl.constexpr = C // 2
    LAYER: tl.constexpr = mean is not None
    WORD: tl.constexpr = tl.int64 if DTYPE == tl.float32 else tl.int32
    # With 16 bits the sum of g * (x - mean) is made from that of g * x, a subtraction an element less: what it loses in
    # fp32 at a mean of a thousand sigma is far below one rounding of dx. xhat itself is always made from x - mean.
    CENTRED: tl.constexpr = LAYER and DTYPE == tl.float32
    epoch = tl.load(state + 1)
    scale = 1.0 / cols
    words = exchange + group * (SLOTS * WORDS)

    column = part * H + tl.arange(0, H)
    inside = column < cols // 2
    even_weight = None
    odd_weight = None
    dweight_even = tl.zeros([H], tl.float32)
    dweight_odd = tl.zeros([H], tl.float32)
    dbias_even = tl.zeros([H], tl.float32)
    dbias_odd = tl.zeros([H], tl.float32)
    if weight is not None:
        even_weight, odd_weight = halves(tl.load(weight + column, mask=inside, other=0), WEIGHT_DTYPE)
        even_weight = factor(even_weight, ZERO_CENTRED)
        odd_weight = factor(odd_weight, ZERO_CENTRED)

    # The statistics of a tile's rows are loaded one tile ahead, and kept beside the tile.
    turns = tl.cdiv(tl.cdiv(rows, R) - group, groups)
    rstds = ()
    means = ()
    kept_dys = ()
    kept_xs = ()
    kept_rstds = ()
    kept_means = ()
    for r in tl.static_range(R):
        rstds = rstds + (statistic(rstd, group * R + r, rows),)
        means = means + (statistic(mean, group * R + r, rows),)
    for _ in tl.static_range(D * R):
        kept_dys = kept_dys + (tl.zeros([H], WORD),)
        kept_xs = kept_xs + (tl.zeros([H], WORD),)
        kept_rstds = kept_rstds + (0.0,)
        kept_means = kept_means + (0.0,)

    for turn in tl.range(0, turns + D, num_stages=STAGES):
        first = (group + turn * groups) * R
        before = words + ((turn + SLOTS - D) % SLOTS) * WORDS

        # This tile's part of the row sums goes out.
        dys = ()
        xs = ()
        sums = ()
        for r in tl.static_range(R):
            row = (first + r).to(tl.int64)
            real = (row < rows) & (turn < turns)
            dy_words = tl.load(dy + row * dy_stride + column, mask=real if EVEN else inside & real, other=0)
            x_words = tl.load(x + row * x_stride + column, mask=real if EVEN else inside & real, other=0)
            even, odd = halves(dy_words, DTYPE)
            x_even, x_odd = halves(x_words, DTYPE)
            if CENTRED:
                x_even -= means[r]
                x_odd -= means[r]
            if weight is not None:
                even *= even_weight
                odd *= odd_weight
            if LAYER:
                sums = sums + (even + odd,)
            sums = sums + (even * x_even + odd * x_odd,)
            dys = dys + (dy_words,)
            xs = xs + (x_words,)
        # The words of the tile that will be finished are under way while this one's sums cross between warps.
        seen = look(before, LOOK, LOADS)
        send(words + (turn % SLOTS) * WORDS + part, epoch + 1 + turn, totals(sums), SEND)

        # The next tile's statistics.
        next_rstds = ()
        next_means = ()
        for r in tl.static_range(R):
            next_rstds = next_rstds + (statistic(rstd, first + groups * R + r, rows),)
            next_means = next_means + (statistic(mean, first + groups * R + r, rows),)

        # The tile of D turns ago is finished.
        sums = receive(seen, before, epoch + 1 + turn - D, (turn >= D).to(tl.int32), RECEIVE)
        for r in tl.static_range(R):
            even, odd = halves(opaque(kept_dys[r]), DTYPE)
            x_even, x_odd = halves(opaque(kept_xs[r]), DTYPE)
            if LAYER:
                x_even -= kept_means[r]
                x_odd -= kept_means[r]
            if partial_dbias is not None:
                dbias_even += even
                dbias_odd += odd
            even *= kept_rstds[r]
            odd *= kept_rstds[r]
            if weight is not None:
                dweight_even += even * x_even
                dweight_odd += odd * x_odd
            sum_g = 0.0
            sum_g_centred = sums[2 * r if LAYER else r]
            if LAYER:
                sum_g = sums[2 * r]
                sum_g_centred = sums[2 * r + 1]
                if not CENTRED:
                    sum_g_centred -= kept_means[r] * sum_g
            of_xhat, of_one = row_corrections(sum_g, sum_g_centred, kept_rstds[r], scale)
            of_x = kept_rstds[r] * of_xhat
            even = gradient_of(even, even_weight, x_even, of_x, of_one, LAYER)
            odd = gradient_of(odd, odd_weight, x_odd, of_x, of_one, LAYER)
            row = (first - D * groups * R + r).to(tl.int64)
            real = (turn >= D) & (row < rows)
            target = dx + row * (cols // 2) + column
            tl.store(target, together(even, odd, DTYPE), mask=real if EVEN else inside & real)

        # Triton pipelines no loop that hands a value on untouched; it does not see through `opaque` and `same`.
        older_dys = ()
        older_xs = ()
        older_rstds = ()
        older_means = ()
        for i in tl.static_range(R, D * R):
            older_dys = older_dys + (opaque(kept_dys[i]),)
            older_xs = older_xs + (opaque(kept_xs[i]),)
            older_rstds = older_rstds + (same(kept_rstds[i]),)
            older_means = older_means + (same(kept_means[i]) if LAYER else 0.0,)
        for r in tl.static_range(R):
            older_dys = older_dys + (dys[r],)
            older_xs = older_xs + (xs[r],)
            older_rstds = older_rstds + (same(rstds[r]),)
            older_means = older_means + (same(means[r]) if LAYER else 0.0,)
        kept_dys = older_dys
        kept_xs = older_xs
        kept_rstds = older_rstds
        kept_means = older_means
        rstds = next_rstds
        means = next_means

    at = group * cols + part * C + tl.arange(0, C)
    in_row = part * C + tl.arange(0, C) < cols
    if weight is not None:
        tl.store(partial_dweight + at, tl.reshape(tl.join(dweight_even, dweight_odd), [C]), mask=in_row)
    if partial_dbias is not None:
        tl.store(partial_dbias + at, tl.reshape(tl.join(dbias_even, dbias_odd), [C]), mask=in_row)
    # The next launch's tags begin behind those of the group with the most turns, so that none comes twice.
    meet(state, epoch + tl.cdiv(tl.cdiv(rows, R), groups) + D + 1, FUSED and weight is not None)
    if FUSED and weight is not None:
        finish_in_turn(dweight, dbias, partial_dweight, partial_dbias, groups, cols, FINISH_ROWS, FINISH_COLS)


@triton.jit
def gradient_of(scaled_dy, multiplier, x_centred, of_x, of_one, LAYER: tl.constexpr):
    """Give dx from dy * rstd, which dweight takes too: that spares xhat, an operation an element."""
    correction = x_centred * of_x
    if LAYER:
        correction += of_one
    if multiplier is None:
        return scaled_dy + correction
    else:
        return scaled_dy * multiplier + correction


@triton.jit
def statistic(of_rows, row, rows):
    """One row's number; 0 past the last row, and where there is none."""
    if of_rows is not None:
        return tl.load(of_rows + row, mask=row < rows, other=0.0)
    else:
        return 0.0


@triton.jit
def totals(parts):
    """The sum of each of 1, 2 or 4 tensors, all in one exchange between warps; always 4 numbers."""
    nothing = tl.full((), 0.0, tl.float32)
    if len(parts) == 1:
        return tl.sum(parts[0]), nothing, nothing, nothing
    elif len(parts) == 2:
        a, b = tl.reduce((parts[0], parts[1]), 0, add_two)
        return a, b, nothing, nothing
    else:
        return tl.reduce((parts[0], parts[1], parts[2], parts[3]), 0, add_four)


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
def receive(seen, words, tag, wanted, ASM: tl.constexpr):
    """The sums over all programs of a row, once all have sent theirs; with `wanted` 0 they mean nothing, at once."""
    if len(seen) == 1:
        return tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f,=&f,=&f,l,l,r,r",
            [seen[0], words, tag, wanted],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False,
            pack=1,
        )
    elif len(seen) == 2:
        return tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f,=&f,=&f,l,l,l,r,r",
            [seen[0], seen[1], words, tag, wanted],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False,
            pack=1,
        )
    else:
        return tl.inline_asm_elementwise(
            ASM,
            "=&f,=&f,=&f,=&f,l,l,l,l,l,r,r",
            [seen[0], seen[1], seen[2], seen[3], words, tag, wanted],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False,
            pack=1,
        )
