"""The kernel of shared rows: several programs share a row that is too wide for one, and exchange its sums.

A tile is R rows of C columns, and S programs side by side cover the row. Each adds up its part of both row sums and
sends it out. One or two tiles later it receives the sums of all, so that no program waits while memory could be busy.
Until then the tile stays in shared memory, and is read from there twice. That leaves registers for more programs, and
is the reason for Gluon, Triton's lower level.

A group begins when all of its programs have come. Who is done, or came too late, works at the chains of groups that
have not begun (groups.py, released_groups.py), so that a launch ends however few programs the device has room for.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportAttributeAccessIssue=false, reportPossiblyUnboundVariable=false

import torch
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from ..exchange import all_agree, poll, receive, send
from ..finish import finish_tile_of, results_of
from ..groups import (
    CHAINS,
    DONE,
    EPOCH,
    RINGS,
    SENT,
    START,
    await_group,
    claim,
    clear,
    find_work,
    join_group,
    read_chains,
    release,
    report,
    wait_for,
)
from .packed_pairs import (
    finish_row,
    load_extra_pairs,
    multipliers,
    no_gradients,
    present_partials,
    statistic,
    store_partials,
    summands,
    totals,
)
from .released_groups import AT_ONCE, PIECES, finish_piece, send_sums

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
    words,  # of groups.py, then (groups, SLOTS, WORDS) for groups
    released_words,  # (tiles, WORDS), whatever they hold: for the chains that are released
    extra,  # tensors.py has its fields; dres, dy1 and weight1 in words
    rows,
    cols,  # in units
    dy_stride,  # in units of words, as are those of `extra`
    x_stride,
    ZERO_CENTRED: gl.constexpr,
    UNIT: gl.constexpr,
    DTYPE: gl.constexpr,
    WEIGHT_DTYPE: gl.constexpr,
    R: gl.constexpr,
    C: gl.constexpr,
    S: gl.constexpr,
    D: gl.constexpr,
    WORDS: gl.constexpr,
    LOADS: gl.constexpr,
    SEND: gl.constexpr,
    POLL: gl.constexpr,
    RECEIVE: gl.constexpr,
    STAGES: gl.constexpr,
    EVEN: gl.constexpr,
    FUSED: gl.constexpr,
    SCAN: gl.constexpr,
    FINISH_ROWS: gl.constexpr,
    FINISH_COLS: gl.constexpr,
):
    PAIRS_UNIT: gl.constexpr = (UNIT + 1) // 2
    cols *= UNIT
    dy_stride *= PAIRS_UNIT
    x_stride *= PAIRS_UNIT
    part = gl.program_id(0) % S
    group = gl.program_id(0) // S
    groups = gl.num_programs(0) // S
    H: gl.constexpr = C // 2
    LAYER: gl.constexpr = mean is not None
    BIAS: gl.constexpr = partial_dbias is not None
    PAIR: gl.constexpr = gl.int64 if DTYPE == gl.float32 else gl.int32
    # 16 bytes of a row a thread, side by side: the same for copies and for loads, so that each thread reads its own.
    WIDTH: gl.constexpr = 2 if DTYPE == gl.float32 else 4
    ACROSS: gl.constexpr = gl.BlockedLayout([WIDTH], [32], [gl.num_warps()], [0])
    # With 16 bits the sum of g * (x - mean) is made from that of g * x, a subtraction an element less: what it loses in
    # fp32 at a mean of a thousand sigma is far below one rounding of dx. xhat itself is always made from x - mean.
    CENTRED: gl.constexpr = LAYER and DTYPE == gl.float32
    scale = 1.0 / cols
    tiles = gl.cdiv(rows, R)
    ring = words + RINGS + group * (SLOTS * WORDS)

    column = part * H + gl.arange(0, H, ACROSS)
    inside = column < cols // 2
    turns = gl.maximum(gl.cdiv(tiles - group, groups), 1)

    # The first copies begin before anything is waited for. Each row of a tile and each tensor has a ring buffer of its
    # own: the compiler would take a single one for one place, and put a barrier between any two accesses.
    dys = ()
    xs = ()
    dy1s = ()
    for _ in gl.static_range(R):
        dys = dys + (gl.allocate_shared_memory(PAIR, [STAGES, H], gl.SwizzledSharedLayout(1, 1, 1, [0])),)
        xs = xs + (gl.allocate_shared_memory(PAIR, [STAGES, H], gl.SwizzledSharedLayout(1, 1, 1, [0])),)
        if extra.dy1 is not None:
            dy1s = dy1s + (gl.allocate_shared_memory(PAIR, [STAGES, H], gl.SwizzledSharedLayout(1, 1, 1, [0])),)
    # Where the next tile is copied from, and where dx of the tile to be finished goes: each turn adds a step.
    step = (groups * R).to(gl.int64)
    at = (group * R).to(gl.int64)
    next_dy = dy + at * dy_stride
    next_x = x + at * x_stride
    next_dy1 = next_dy  # of no second norm, where nobody copies from it
    if extra.dy1 is not None:
        next_dy1 = extra.dy1 + at * extra.dy1_stride * PAIRS_UNIT
    finished = dx + at * (cols // 2)
    join_group(words + CHAINS + group)

    # A load returns behind the copies that were sent before it. So all that the first turn needs goes first.
    weights = multipliers(weight, column, inside, ZERO_CENTRED, WEIGHT_DTYPE)
    weights1 = multipliers(extra.weight1, column, inside, ZERO_CENTRED, WEIGHT_DTYPE)
    epoch = gl.load(words + EPOCH).to(gl.int32)
    rstds = ()
    means = ()
    means_of_sums = ()
    dres_pairs = ()  # of the tile to be finished in this turn, which waits in no shared memory
    for r in gl.static_range(R):
        row = (group - D * groups) * R + r
        dres_pairs = dres_pairs + (
            load_extra_pairs(extra.dres, row, extra.dres_stride, column, inside, rows, PAIRS_UNIT),
        )
        rstds = rstds + (statistic(rstd, group * R + r, rows),)
        means = means + (statistic(mean, group * R + r, rows),)
        means_of_sums = means_of_sums + (statistic(mean if CENTRED else None, group * R + r, rows),)
    tl.debug_barrier()  # the compiler moves no load across it
    for early in gl.static_range(STAGES):
        left = rows - (group + early * groups) * R
        begin_tile(dys, xs, early, next_dy, next_x, dy_stride, x_stride, left, column, inside, EVEN)
        if extra.dy1 is not None:
            begin_rows(dy1s, early, next_dy1, extra.dy1_stride * PAIRS_UNIT, left, column, inside, EVEN)
            next_dy1 += step * extra.dy1_stride * PAIRS_UNIT
        async_copy.commit_group()
        next_dy += step * dy_stride
        next_x += step * x_stride
        if early == 0:
            joined_so_far = gl.load(words + CHAINS + group, volatile=True)

    partials = present_partials(partial_dweight, partial_dbias, extra)
    gradients = no_gradients(partials, H, ACROSS)
    place = 0
    began = 0

    together = await_group(words, words + CHAINS + group, joined_so_far, part == 0, S)
    end = gl.where(together, turns + D, 0)
    for turn in range(end):
        first = (group + turn * groups) * R
        before = ring + ((turn + SLOTS - D) % SLOTS) * WORDS

        # Send this tile's part of the row sums. The words of the tile that will be finished are read while these sums
        # cross between warps: an earlier read would return only after the copy that was begun last.
        if turn < turns:
            if turn < STAGES:
                async_copy.wait_group(STAGES - 1)
            else:  # no copy was begun in the first D turns
                async_copy.wait_group(STAGES - 1 - D)
            sums = ()
            for r in gl.static_range(R):
                dy_pairs, x_pairs = dys[r].index(place).load(ACROSS), xs[r].index(place).load(ACROSS)
                pairs = dy_pairs, x_pairs, pairs_in_ring(dy1s, r, place, ACROSS)
                sums = sums + summands(pairs, (weights, weights1), means_of_sums[r], DTYPE, LAYER, CENTRED)
            seen = poll(before, POLL, LOADS)
            send(ring + (turn % SLOTS) * WORDS + part, epoch + 1 + turn, totals(sums), SEND)
        else:
            seen = poll(before, POLL, LOADS)
            began = gl.load(words + START, volatile=True).to(gl.int32)

        # The statistics of a tile are loaded one turn before it is finished, those of the first at the start.
        next_rstds = ()
        next_means = ()
        next_means_of_sums = ()
        next_dres_pairs = ()
        for r in gl.static_range(R):
            row = first + (1 - D) * groups * R + r
            dres_of_next = load_extra_pairs(extra.dres, row, extra.dres_stride, column, inside, rows, PAIRS_UNIT)
            next_dres_pairs = next_dres_pairs + (dres_of_next,)
            next_rstds = next_rstds + (statistic(rstd, row, rows),)
            next_means = next_means + (statistic(mean, row, rows),)
            row = first + groups * R + r
            next_means_of_sums = next_means_of_sums + (statistic(mean if CENTRED else None, row, rows),)

        # Finish the tile of D turns ago, and begin to copy another to its place.
        if turn >= D:
            waiting = place - D if place >= D else place - D + STAGES
            waited = ()
            waited_dy1 = ()
            for r in gl.static_range(R):
                waited = waited + (dys[r].index(waiting).load(ACROSS), xs[r].index(waiting).load(ACROSS))
                waited_dy1 = waited_dy1 + (pairs_in_ring(dy1s, r, waiting, ACROSS),)
            sums = receive(seen, before, epoch + 1 + turn - D, RECEIVE)
            left = rows - first - (STAGES - D) * groups * R
            begin_tile(dys, xs, waiting, next_dy, next_x, dy_stride, x_stride, left, column, inside, EVEN)
            if extra.dy1 is not None:
                begin_rows(dy1s, waiting, next_dy1, extra.dy1_stride * PAIRS_UNIT, left, column, inside, EVEN)
                next_dy1 += step * extra.dy1_stride * PAIRS_UNIT
            next_dy += step * dy_stride
            next_x += step * x_stride
            for r in gl.static_range(R):
                real = first - D * groups * R + r < rows
                sum_g = sums[2 * r] if LAYER else 0.0
                gradients, dx_pairs = finish_row(
                    gradients,
                    waited[2 * r],
                    waited[2 * r + 1],
                    (waited_dy1[r], dres_pairs[r]),
                    (weights, weights1),
                    means[r],
                    rstds[r],
                    sum_g,
                    sums[2 * r + 1 if LAYER else r],
                    scale,
                    DTYPE,
                    LAYER,
                    CENTRED,
                    BIAS,
                )
                target = finished + r * (cols // 2) + column
                gl.store(target, dx_pairs, mask=real if EVEN else inside & real)
            finished += step * (cols // 2)
        async_copy.commit_group()
        place = place + 1 if place + 1 < STAGES else 0

        if turn >= D:
            rstds = next_rstds
            means = next_means
        means_of_sums = next_means_of_sums
        dres_pairs = next_dres_pairs

    async_copy.wait_group(0)
    UNITS: gl.constexpr = PIECES  # of work: a part is done as a whole, or in pieces
    together = end != 0
    units = gl.where(together, UNITS, 0)
    base = (gl.load(words + START) >> 32).to(gl.int32)
    index = gl.arange(0, SCAN, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    store_partials(partials, gradients, group, part * C, together, cols, C)

    # Work at chains whose programs have not all come: first the sums of their rows, then pieces of parts.
    inputs = dy, x, weight, mean, rstd, rows, cols, dy_stride, x_stride
    items = gl.cdiv(gl.cdiv(tiles - index, groups), AT_ONCE) * S + S * PIECES
    other = -1
    now = gl.to_tensor(0).to(gl.int64)
    if not all_agree(began == groups):
        other, now = find_work(read_chains(words, index, groups, S), index, items, gl.program_id(0), S, SCAN)
    while other >= 0:
        chain = words + CHAINS + other
        of_sums = gl.cdiv(gl.cdiv(tiles - other, groups), AT_ONCE) * S
        now = release(chain, now, S)
        item = claim(chain, now)
        while item < of_sums + S * PIECES:
            if item < of_sums:
                send_sums(
                    released_words,
                    inputs,
                    extra,
                    other,
                    groups,
                    item // S * AT_ONCE,
                    item % S,
                    epoch,
                    ZERO_CENTRED,
                    PAIRS_UNIT,
                    DTYPE,
                    WEIGHT_DTYPE,
                    R,
                    C,
                    WORDS,
                    SEND,
                    ACROSS,
                    CENTRED,
                )
                report(words + SENT + other, 1)
            else:
                wait_for(words + SENT + other, of_sums)
                finish_piece(
                    dx,
                    partials,
                    released_words,
                    inputs,
                    extra,
                    other,
                    groups,
                    item - of_sums,
                    epoch,
                    scale,
                    ZERO_CENTRED,
                    PAIRS_UNIT,
                    DTYPE,
                    WEIGHT_DTYPE,
                    R,
                    C // PIECES,
                    WORDS,
                    LOADS,
                    POLL,
                    RECEIVE,
                    CENTRED,
                    BIAS,
                )
                units += 1
            item = claim(chain, now)
        other, now = find_work(read_chains(words, index, groups, S), index, items, gl.program_id(0), S, SCAN)

    # The next launch's tags begin after those of the chain with the most turns, so that no tag comes twice.
    target = base + groups * S * UNITS
    before = report(words + DONE, units)
    if (before & 0xFFFFFFFF) == gl.num_programs(0) - 1:
        clear(words, index, groups, gl.num_programs(0), epoch + gl.cdiv(tiles, groups), target)
    if FUSED:
        NARROW: gl.constexpr = max(1, min(FINISH_COLS // 4, 32))
        TILE: gl.constexpr = gl.BlockedLayout(
            [1, min(4, FINISH_COLS)], [32 // NARROW, NARROW], [gl.num_warps(), 1], [1, 0]
        )
        row = gl.arange(0, FINISH_ROWS, gl.SliceLayout(1, TILE))[:, None]
        lane = gl.arange(0, FINISH_COLS, gl.SliceLayout(0, TILE))[None, :]
        rank = (before >> 32).to(gl.int32) - base
        columns = gl.cdiv(cols, FINISH_COLS)
        results = results_of(dweight, dbias, partial_dweight, partial_dbias, extra)
        pieces = columns * len(results)
        mine = gl.cdiv(rank, UNITS)
        if (mine < gl.cdiv(rank + units, UNITS)) & (mine < pieces):
            wait_for(words + DONE, target)
            for own in range(mine, gl.cdiv(rank + units, UNITS)):
                for piece in range(own, pieces, groups * S):
                    finish_tile_of(results, piece, columns, row, lane, groups, cols, FINISH_ROWS, FINISH_COLS)


@gluon.jit
def begin_tile(dys, xs, place, dy, x, dy_stride, x_stride, left, column, inside, EVEN: gl.constexpr):
    """Begin to copy a tile into a place of the ring buffers; zeros where no row is `left`."""
    for r in gl.static_range(len(dys)):
        copied = r < left if EVEN else inside & (r < left)
        begin_copy(dys[r].index(place), dy + r * dy_stride + column, mask=copied)
        begin_copy(xs[r].index(place), x + r * x_stride + column, mask=copied)


@gluon.jit
def begin_rows(rings, place, tensor, stride, left, column, inside, EVEN: gl.constexpr):
    """Begin to copy the rows of one more tensor."""
    for r in gl.static_range(len(rings)):
        begin_copy(rings[r].index(place), tensor + r * stride + column, mask=r < left if EVEN else inside & (r < left))


@gluon.jit
def pairs_in_ring(rings, r, place, ACROSS: gl.constexpr):
    """The words of one row that lie in a ring buffer; an empty tuple where there is none."""
    words = ()
    if len(rings) > 0:
        words = (rings[r].index(place).load(ACROSS),)
    return words
