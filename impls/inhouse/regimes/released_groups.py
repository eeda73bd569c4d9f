"""Released groups: the work of chains whose programs did not all join, cut into items that one program does alone.

x and dy are read twice here: first for the sums of rows, a part of a few tiles an item; then, when all sums of the
chain are there, for the gradients, a piece of the columns of all its tiles an item. Every number is made as its own
program would have made it.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportCallIssue=false

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..exchange import poll, receive, send
from .packed_pairs import (
    finish_row,
    load_extra_pairs,
    load_pairs,
    multipliers,
    no_gradients,
    statistic,
    store_partials,
    summands,
    totals,
)

PIECES = tl.constexpr(4)  # of a part
AT_ONCE = tl.constexpr(2)  # tiles of an item of sums
FINISHED = tl.constexpr(3)  # tiles that are on their way at a time, as a piece is finished


@gluon.jit
def send_sums(
    words,
    inputs,
    extra,
    chain,
    groups,
    turn,
    part,
    epoch,
    ZERO_CENTRED: gl.constexpr,
    UNIT: gl.constexpr,
    DTYPE: gl.constexpr,
    WEIGHT_DTYPE: gl.constexpr,
    R: gl.constexpr,
    C: gl.constexpr,
    WORDS: gl.constexpr,
    SEND: gl.constexpr,
    ACROSS: gl.constexpr,
    CENTRED: gl.constexpr,
):
    """Send one part of the row sums of a few tiles, for whoever finishes them."""
    dy, x, weight, mean, _, rows, cols, dy_stride, x_stride = inputs
    LAYER: gl.constexpr = mean is not None
    column = part * (C // 2) + gl.arange(0, C // 2, ACROSS)
    inside = column < cols // 2
    weights = (
        multipliers(weight, column, inside, ZERO_CENTRED, WEIGHT_DTYPE),
        multipliers(extra.weight1, column, inside, ZERO_CENTRED, WEIGHT_DTYPE),
    )
    dys = ()
    xs = ()
    dy1s = ()
    means = ()
    for u in gl.static_range(AT_ONCE):
        for r in gl.static_range(R):
            row = (chain + (turn + u) * groups) * R + r
            dys = dys + (load_pairs(dy, row, dy_stride, column, inside, rows),)
            xs = xs + (load_pairs(x, row, x_stride, column, inside, rows),)
            dy1s = dy1s + (load_extra_pairs(extra.dy1, row, extra.dy1_stride, column, inside, rows, UNIT),)
            means = means + (statistic(mean, row, rows),)
    for u in gl.static_range(AT_ONCE):
        tile = chain + (turn + u) * groups
        sums = ()
        for r in gl.static_range(R):
            pairs_of_row = dys[u * R + r], xs[u * R + r], dy1s[u * R + r]
            sums = sums + summands(pairs_of_row, weights, means[u * R + r], DTYPE, LAYER, CENTRED)
        if tile * R < rows:
            send(words + tile * WORDS + part, epoch + 1 + turn + u, totals(sums), SEND)


@gluon.jit
def finish_piece(
    dx,
    partials,
    words,
    inputs,
    extra,
    chain,
    groups,
    piece,
    epoch,
    scale,
    ZERO_CENTRED: gl.constexpr,
    UNIT: gl.constexpr,
    DTYPE: gl.constexpr,
    WEIGHT_DTYPE: gl.constexpr,
    R: gl.constexpr,
    C: gl.constexpr,
    WORDS: gl.constexpr,
    LOADS: gl.constexpr,
    POLL: gl.constexpr,
    RECEIVE: gl.constexpr,
    CENTRED: gl.constexpr,
    BIAS: gl.constexpr,
):
    """Finish C columns of all tiles of a chain, whose sums have been sent."""
    dy, x, weight, mean, rstd, rows, cols, dy_stride, x_stride = inputs
    LAYER: gl.constexpr = mean is not None
    H: gl.constexpr = C // 2
    ACROSS: gl.constexpr = gl.BlockedLayout([max(1, H // (32 * gl.num_warps()))], [32], [gl.num_warps()], [0])
    column = piece * H + gl.arange(0, H, ACROSS)
    inside = column < cols // 2
    weights = (
        multipliers(weight, column, inside, ZERO_CENTRED, WEIGHT_DTYPE),
        multipliers(extra.weight1, column, inside, ZERO_CENTRED, WEIGHT_DTYPE),
    )
    gradients = no_gradients(partials, H, ACROSS)
    turns = gl.cdiv(gl.cdiv(rows, R) - chain, groups)
    for step in range(0, turns, FINISHED):
        dys = ()
        xs = ()
        more = ()
        means = ()
        rstds = ()
        polls = ()
        for u in gl.static_range(FINISHED):
            for r in gl.static_range(R):
                row = (chain + (step + u) * groups) * R + r
                dys = dys + (load_pairs(dy, row, dy_stride, column, inside, rows),)
                xs = xs + (load_pairs(x, row, x_stride, column, inside, rows),)
                dy1_pairs = load_extra_pairs(extra.dy1, row, extra.dy1_stride, column, inside, rows, UNIT)
                dres_pairs = load_extra_pairs(extra.dres, row, extra.dres_stride, column, inside, rows, UNIT)
                more = more + ((dy1_pairs, dres_pairs),)
                means = means + (statistic(mean, row, rows),)
                rstds = rstds + (statistic(rstd, row, rows),)
            turn = gl.where(step + u < turns, step + u, 0)
            polls = polls + (poll(words + (chain + turn * groups) * WORDS, POLL, LOADS),)
        for u in gl.static_range(FINISHED):
            turn = gl.where(step + u < turns, step + u, 0)
            sums = receive(polls[u], words + (chain + turn * groups) * WORDS, epoch + 1 + turn, RECEIVE)
            for r in gl.static_range(R):
                row = (chain + (step + u) * groups) * R + r
                sum_g = sums[2 * r] if LAYER else 0.0
                gradients, dx_pairs = finish_row(
                    gradients,
                    dys[u * R + r],
                    xs[u * R + r],
                    more[u * R + r],
                    weights,
                    means[u * R + r],
                    rstds[u * R + r],
                    sum_g,
                    sums[2 * r + 1 if LAYER else r],
                    scale,
                    DTYPE,
                    LAYER,
                    CENTRED,
                    BIAS,
                )
                gl.store(dx + row.to(gl.int64) * (cols // 2) + column, dx_pairs, mask=inside & (row < rows))
    store_partials(partials, gradients, chain, piece * C, True, cols, C)
