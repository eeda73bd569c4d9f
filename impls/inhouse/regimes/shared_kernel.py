"""The kernel of shared rows: several programs share a row that is too wide for one, and exchange its sums.

A tile is R rows of C columns, and S programs side by side cover the row. Each adds up its part of both row sums and
sends it out. One or two tiles later it receives the sums of all, so that no program waits while memory could be busy.
Until then the tile stays in shared memory, and is read from there twice. That leaves registers for more programs, and
is the reason for Gluon, Triton's lower level. A word of a tile is two numbers, of an `even` and an `odd` column.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from ..barrier import meet
from ..exchange import look, receive, send
from ..finish import finish_in_turn
from ..formula import add_four, add_two, factor, row_corrections

# Triton 3.8 gave it this name, and 3.9 took the other one away.
begin_copy = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
TRITON_DTYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
SLOTS = tl.constexpr(8)  # a program may be up to 2 D + 1 tiles ahead of one that has yet to read


@gluon.jit
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
    ZERO_CENTRED: gl.constexpr,
    DTYPE: gl.constexpr,
    WEIGHT_DTYPE: gl.constexpr,
    R: gl.constexpr,
    C: gl.constexpr,
    S: gl.constexpr,
    D: gl.constexpr,
    WORDS: gl.constexpr,
    LOADS: gl.constexpr,
    SEND: gl.constexpr,
    LOOK: gl.constexpr,
    RECEIVE: gl.constexpr,
    STAGES: gl.constexpr,
    EVEN: gl.constexpr,
    FUSED: gl.constexpr,
    FINISH_ROWS: gl.constexpr,
    FINISH_COLS: gl.constexpr,
):
    part = gl.program_id(0) % S
    group = gl.program_id(0) // S
    groups = gl.num_programs(0) // S
    H: gl.constexpr = C // 2
    LAYER: gl.constexpr = mean is not None
    WORD: gl.constexpr = gl.int64 if DTYPE == gl.float32 else gl.int32
    # 16 bytes of a row a thread, side by side: the same for copies and for loads, so that each thread reads its own.
    WIDTH: gl.constexpr = 2 if DTYPE == gl.float32 else 4
    ACROSS: gl.constexpr = gl.BlockedLayout([WIDTH], [32], [gl.num_warps()], [0])
    # With 16 bits the sum of g * (x - mean) is made from that of g * x, a subtraction an element less: what it loses in
    # fp32 at a mean of a thousand sigma is far below one rounding of dx. xhat itself is always made from x - mean.
    CENTRED: gl.constexpr = LAYER and DTYPE == gl.float32
    scale = 1.0 / cols
    words = exchange + group * (SLOTS * WORDS)

    column = part * H + gl.arange(0, H, ACROSS)
    inside = column < cols // 2
    turns = gl.cdiv(gl.cdiv(rows, R) - group, groups)

    # The first copies begin before anything is waited for. Each row of a tile and each tensor has a ring buffer of its
    # own: the compiler would take a single one for one place, and put a barrier between any two accesses.
    dys = ()
    xs = ()
    for _ in gl.static_range(R):
        dys = dys + (gl.allocate_shared_memory(WORD, [STAGES, H], gl.SwizzledSharedLayout(1, 1, 1, [0])),)
        xs = xs + (gl.allocate_shared_memory(WORD, [STAGES, H], gl.SwizzledSharedLayout(1, 1, 1, [0])),)
    # Where the next tile is copied from, and where dx of the tile to be finished goes: each turn adds a step.
    step = (groups * R).to(gl.int64)
    at = (group * R).to(gl.int64)
    next_dy = dy + at * dy_stride
    next_x = x + at * x_stride
    finished = dx + at * (cols // 2)
    for early in gl.static_range(STAGES):
        left = rows - (group + early * groups) * R
        begin_tile(dys, xs, early, next_dy, next_x, dy_stride, x_stride, left, column, inside, EVEN)
        async_copy.commit_group()
        next_dy += step * dy_stride
        next_x += step * x_stride

    even_weight = None
    odd_weight = None
    dweight_even = gl.full([H], 0, gl.float32, ACROSS)
    dweight_odd = gl.full([H], 0, gl.float32, ACROSS)
    dbias_even = gl.full([H], 0, gl.float32, ACROSS)
    dbias_odd = gl.full([H], 0, gl.float32, ACROSS)
    if weight is not None:
        even_weight, odd_weight = unpack(gl.load(weight + column, mask=inside, other=0), WEIGHT_DTYPE)
        even_weight = factor(even_weight, ZERO_CENTRED)
        odd_weight = factor(odd_weight, ZERO_CENTRED)
    epoch = gl.load(state + 1)
    # The statistics of a tile's rows are loaded one tile ahead, and kept until it is finished.
    rstds = ()
    means = ()
    kept_rstds = ()
    kept_means = ()
    for r in gl.static_range(R):
        rstds = rstds + (statistic(rstd, group * R + r, rows),)
        means = means + (statistic(mean, group * R + r, rows),)
    for _ in gl.static_range(D * R):
        kept_rstds = kept_rstds + (0.0,)
        kept_means = kept_means + (0.0,)
    place = 0

    for turn in range(turns + D):
        first = (group + turn * groups) * R
        before = words + ((turn + SLOTS - D) % SLOTS) * WORDS

        # Send this tile's part of the row sums. The words of the tile that will be finished are read while these sums
        # cross between warps: an earlier read would return only after the copy that was begun last.
        if turn < turns:
            if turn < STAGES:
                async_copy.wait_group(STAGES - 1)
            else:  # no copy was begun in the first D turns
                async_copy.wait_group(STAGES - 1 - D)
            sums = ()
            for r in gl.static_range(R):
                even, odd = unpack(dys[r].index(place).load(ACROSS), DTYPE)
                x_even, x_odd = unpack(xs[r].index(place).load(ACROSS), DTYPE)
                if CENTRED:
                    x_even -= means[r]
                    x_odd -= means[r]
                if weight is not None:
                    even *= even_weight
                    odd *= odd_weight
                if LAYER:
                    sums = sums + (even + odd,)
                sums = sums + (even * x_even + odd * x_odd,)
            seen = look(before, LOOK, LOADS)
            send(words + (turn % SLOTS) * WORDS + part, epoch + 1 + turn, totals(sums), SEND)
        else:
            seen = look(before, LOOK, LOADS)

        # Load the next tile's statistics.
        next_rstds = ()
        next_means = ()
        for r in gl.static_range(R):
            next_rstds = next_rstds + (statistic(rstd, first + groups * R + r, rows),)
            next_means = next_means + (statistic(mean, first + groups * R + r, rows),)

        # Finish the tile of D turns ago, and begin to copy another to its place.
        if turn >= D:
            waiting = place - D if place >= D else place - D + STAGES
            waited = ()
            for r in gl.static_range(R):
                waited = waited + (dys[r].index(waiting).load(ACROSS), xs[r].index(waiting).load(ACROSS))
            sums = receive(seen, before, epoch + 1 + turn - D, RECEIVE)
            left = rows - first - (STAGES - D) * groups * R
            begin_tile(dys, xs, waiting, next_dy, next_x, dy_stride, x_stride, left, column, inside, EVEN)
            next_dy += step * dy_stride
            next_x += step * x_stride
            for r in gl.static_range(R):
                even, odd = unpack(waited[2 * r], DTYPE)
                x_even, x_odd = unpack(waited[2 * r + 1], DTYPE)
                real = first - D * groups * R + r < rows
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
                target = finished + r * (cols // 2) + column
                gl.store(target, pack(even, odd, DTYPE), mask=real if EVEN else inside & real)
            finished += step * (cols // 2)
        async_copy.commit_group()
        place = place + 1 if place + 1 < STAGES else 0

        older_rstds = ()
        older_means = ()
        for i in gl.static_range(R, D * R):
            older_rstds = older_rstds + (kept_rstds[i],)
            older_means = older_means + (kept_means[i],)
        kept_rstds = older_rstds + rstds
        kept_means = older_means + means
        rstds = next_rstds
        means = next_means

    async_copy.wait_group(0)
    WIDE: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])  # 16 bytes of fp32 a thread
    at = part * C + gl.arange(0, C, WIDE)
    if weight is not None:
        wide = gl.convert_layout(gl.reshape(gl.join(dweight_even, dweight_odd), [C]), WIDE)
        gl.store(partial_dweight + group * cols + at, wide, mask=at < cols)
    if partial_dbias is not None:
        wide = gl.convert_layout(gl.reshape(gl.join(dbias_even, dbias_odd), [C]), WIDE)
        gl.store(partial_dbias + group * cols + at, wide, mask=at < cols)
    # The next launch's tags begin after those of the group with the most turns, so that no tag comes twice.
    meet(state, epoch + gl.cdiv(gl.cdiv(rows, R), groups), FUSED and weight is not None)
    if FUSED and weight is not None:
        NARROW: gl.constexpr = max(1, min(FINISH_COLS // 4, 32))
        TILE: gl.constexpr = gl.BlockedLayout(
            [1, min(4, FINISH_COLS)], [32 // NARROW, NARROW], [gl.num_warps(), 1], [1, 0]
        )
        index = gl.arange(0, FINISH_ROWS, gl.SliceLayout(1, TILE))[:, None]
        lane = gl.arange(0, FINISH_COLS, gl.SliceLayout(0, TILE))[None, :]
        finish_in_turn(
            dweight, dbias, partial_dweight, partial_dbias, index, lane, groups, cols, FINISH_ROWS, FINISH_COLS
        )


@gluon.jit
def begin_tile(dys, xs, place, dy, x, dy_stride, x_stride, left, column, inside, EVEN: gl.constexpr):
    """Begin to copy a tile into a place of the ring buffers; zeros where no row is `left`."""
    for r in gl.static_range(len(dys)):
        copied = r < left if EVEN else inside & (r < left)
        begin_copy(dys[r].index(place), dy + r * dy_stride + column, mask=copied)
        begin_copy(xs[r].index(place), x + r * x_stride + column, mask=copied)


@triton.jit
def gradient_of(scaled_dy, multiplier, x_centred, of_x, of_one, LAYER: tl.constexpr):
    """One tile of dx from dy * rstd, which dweight needs too; without xhat that is an operation an element less."""
    correction = x_centred * of_x
    if LAYER:
        correction += of_one
    if multiplier is None:
        return scaled_dy + correction
    else:
        return scaled_dy * multiplier + correction


@triton.jit
def statistic(of_rows, row, rows):
    """The mean or rstd of one row; 0 past the last row, and where there is none."""
    if of_rows is not None:
        return tl.load(of_rows + row, mask=row < rows, other=0.0)
    else:
        return 0.0


@gluon.jit
def totals(parts):
    """The sums of 1, 2 or 4 tensors, in one exchange between warps; always 4 numbers, the last of them 0 if fewer."""
    nothing = gl.to_tensor(0.0)
    if len(parts) == 1:
        return gl.sum(parts[0], 0), nothing, nothing, nothing
    elif len(parts) == 2:
        a, b = gl.reduce((parts[0], parts[1]), 0, add_two)
        return a, b, nothing, nothing
    else:
        return gl.reduce((parts[0], parts[1], parts[2], parts[3]), 0, add_four)


@triton.jit
def unpack(words, DTYPE: tl.constexpr):
    """The numbers of the even and of the odd columns, in fp32; a word of fp32 numbers has 64 bits."""
    if DTYPE == tl.float32:
        odd = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        return words.to(tl.int32).to(tl.float32, bitcast=True), odd
    elif DTYPE == tl.bfloat16:
        return (words << 16).to(tl.float32, bitcast=True), (words & -65536).to(tl.float32, bitcast=True)
    else:
        even = words.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        return even, (words >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def pack(even, odd, DTYPE: tl.constexpr):
    """Round both numbers once, and put them in one word."""
    if DTYPE == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [even, odd], dtype=tl.int32, is_pure=True, pack=1
        )
    elif DTYPE == tl.float32:
        return tl.inline_asm_elementwise(
            "mov.b64 $0, {$1, $2};", "=l,f,f", [even, odd], dtype=tl.int64, is_pure=True, pack=1
        )
    else:
        return tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [even, odd], dtype=tl.int32, is_pure=True, pack=1
        )
