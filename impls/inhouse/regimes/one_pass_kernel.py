"""The kernel of one pass: a program holds R whole rows on the chip from their row sums to their dx."""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl

from ..chains import NOTHING, arrive, leave, look, open_chain, start, take, wait_for_all
from ..finish import finish_piece
from ..formula import (
    centred,
    factor,
    input_gradient,
    load,
    over_rows,
    row_corrections,
    row_sums_of,
    store,
    sums_over_rows,
)


@triton.jit
def backward_rows(
    dx,  # (rows, cols), contiguous
    dweight_out,  # written here if FUSED
    dbias_out,
    partial_dweight,  # (programs, cols) fp32
    partial_dbias,  # (programs, cols) fp32 or None
    dy,
    x,
    weight,
    mean,
    rstd,
    words,  # of chains.py, if FUSED
    rows,
    cols,
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    FOLD: tl.constexpr,
    PACKED: tl.constexpr,
    STAGES: tl.constexpr,
    HELP_STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    FUSED: tl.constexpr,
    CHAINS: tl.constexpr,
    OTHERS: tl.constexpr,
    FINISH_ROWS: tl.constexpr,
    FINISH_COLS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One pass over tiles of R rows. A row is K chunks of C columns, so that few lanes idle past its end.

    FOLD adds a tile's rows up before they reach the accumulator, which then holds one row: free where a thread holds
    the same columns of every row. PACKED keeps 16-bit tiles packed across the row sums, for half the registers. FUSED
    programs share their chains out as chains.py has it: no more than CHAINS, and a thread looks at each once, so that
    all see the same. What another program has not begun they take with HELP_STAGES.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    row_in_tile = tl.arange(0, R)[:, None]
    col = tl.arange(0, C)[None, :]
    tiles = tl.cdiv(rows, R)
    begin = program
    if FUSED:
        epoch, own = start(words, program)
        begin = tl.where(own, program, tiles)

    weights = ()
    for k in tl.static_range(K):
        if weight is not None:
            if weight.dtype == x.dtype:
                chunk = tl.load(weight + k * C + col, mask=k * C + col < cols, other=0.0)
            else:
                # Loaded as a tile, of which the first row counts. Loaded by itself it would have a layout for its own
                # element size, and Triton would convert every tile to that layout instead of this one to that of x.
                first = (row_in_tile == 0) & (k * C + col < cols)
                chunk = tl.sum(
                    tl.load(weight + k * C + col + 0 * row_in_tile, mask=first, other=0.0), 0, keep_dims=True
                )
            weights = weights + (chunk if PACKED else factor(chunk, ZERO_CENTRED),)

    sums = sums_of_tiles(
        begin,
        tiles,
        programs,
        weights,
        dx,
        dy,
        x,
        weight,
        mean,
        rstd,
        partial_dbias,
        row_in_tile,
        col,
        rows,
        cols,
        dy_stride,
        x_stride,
        ZERO_CENTRED,
        R,
        K,
        C,
        FOLD,
        PACKED,
        STAGES,
        EVEN,
    )
    if not FUSED:
        store_sums(sums, program, partial_dweight, partial_dbias, cols, K, C)
    else:
        chains = tl.arange(0, CHAINS)
        seen = look(words, chains, programs)
        arrived = tl.zeros([], tl.int64)
        if own:
            store_sums(sums, program, partial_dweight, partial_dbias, cols, K, C)
            arrived = arrive(words, program, programs, INTERPRETED)
        leave(words, program, programs, epoch, own, OTHERS)
        done = own.to(tl.int32)  # chains that this program did
        taken = chains < 0
        chain = open_chain(seen, epoch, chains, program)
        while chain != NOTHING:
            if take(words, chain, epoch):
                sums = sums_of_tiles(
                    chain,
                    tiles,
                    programs,
                    weights,
                    dx,
                    dy,
                    x,
                    weight,
                    mean,
                    rstd,
                    partial_dbias,
                    row_in_tile,
                    col,
                    rows,
                    cols,
                    dy_stride,
                    x_stride,
                    ZERO_CENTRED,
                    R,
                    K,
                    C,
                    FOLD,
                    PACKED,
                    HELP_STAGES,
                    EVEN,
                )
                store_sums(sums, chain, partial_dweight, partial_dbias, cols, K, C)
                arrived = arrive(words, chain, programs, INTERPRETED)
                done += 1
                taken = taken | (chains == chain)
            chain = open_chain(look(words, chains, programs), epoch, chains, program)

        if done > 0:
            wait_for_all(words, epoch, arrived, INTERPRETED)
            index = tl.arange(0, FINISH_ROWS)[:, None]
            lane = tl.arange(0, FINISH_COLS)[None, :]
            results = dweight_out, dbias_out, partial_dweight, partial_dbias
            if own:
                finish_piece(*results, program, index, lane, programs, cols, programs, FINISH_ROWS, FINISH_COLS)
                done -= 1
            while done > 0:
                piece = tl.max(tl.where(taken, chains, -1), 0)
                finish_piece(*results, piece, index, lane, programs, cols, programs, FINISH_ROWS, FINISH_COLS)
                taken = taken & (chains != piece)
                done -= 1


@triton.jit
def sums_of_tiles(
    first,
    tiles,
    step,
    weights,
    dx,
    dy,
    x,
    weight,
    mean,
    rstd,
    partial_dbias,
    row_in_tile,
    col,
    rows,
    cols,
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    FOLD: tl.constexpr,
    PACKED: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Write dx of every `step`-th tile from the `first` on; return the sums for dweight and dbias, K chunks each."""
    scale = 1.0 / cols
    dweight = ()
    dbias = ()
    for _ in tl.static_range(K):
        if weight is not None:
            dweight = dweight + (tl.zeros([1 if FOLD else R, C], tl.float32),)
        if partial_dbias is not None:
            dbias = dbias + (tl.zeros([1 if FOLD else R, C], tl.float32),)
    for tile in tl.range(first, tiles, step, num_stages=STAGES):
        row = (tile * R + row_in_tile).to(tl.int64)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        row_mean = None
        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)

        # Look at the rows once for their sums. These loads run STAGES - 1 tiles ahead, into shared memory.
        dys = ()
        xs = ()
        sum_g = tl.zeros([R, C], tl.float32)
        sum_g_centred = tl.zeros([R, C], tl.float32)
        for k in tl.static_range(K):
            dy_tile = load(dy + row * dy_stride + k * C + col, (row < rows) & (k * C + col < cols), EVEN)
            x_tile = load(x + row * x_stride + k * C + col, (row < rows) & (k * C + col < cols), EVEN)
            g = dy_tile.to(tl.float32)
            if weight is not None:
                g *= factor(after(weights[k], row_rstd), ZERO_CENTRED) if PACKED else weights[k]
            sum_g += g
            sum_g_centred += g * centred(x_tile, row_mean)
            dys = dys + (dy_tile,)
            xs = xs + (x_tile,)
        sum_g, sum_g_centred = row_sums_of(sum_g, sum_g_centred, mean is not None)
        of_xhat, of_one = row_corrections(sum_g, sum_g_centred, row_rstd, scale)

        # Look at them again, still on the chip, for the gradients.
        new_dweight = ()
        new_dbias = ()
        for k in tl.static_range(K):
            dy_tile = after(dys[k], of_xhat) if PACKED else dys[k]
            x_tile = after(xs[k], of_xhat) if PACKED else xs[k]
            dy_tile = dy_tile.to(tl.float32)
            xhat = centred(x_tile, row_mean) * row_rstd
            g = dy_tile
            if weight is not None:
                g *= factor(after(weights[k], of_xhat), ZERO_CENTRED) if PACKED else weights[k]
                new_dweight = new_dweight + (dweight[k] + over_rows(dy_tile * xhat, FOLD),)
            if partial_dbias is not None:
                new_dbias = new_dbias + (dbias[k] + over_rows(dy_tile, FOLD),)
            dx_tile = input_gradient(g, xhat, row_rstd, of_xhat, of_one, mean is not None)
            store(dx + row * cols + k * C + col, dx_tile, (row < rows) & (k * C + col < cols), EVEN)
        dweight = new_dweight
        dbias = new_dbias
    return dweight + dbias


@triton.jit
def store_sums(sums, place, partial_dweight, partial_dbias, cols, K: tl.constexpr, C: tl.constexpr):
    """Store the sums over the rows of these tiles as one row of each partial gradient."""
    sums = sums_over_rows(sums)
    for k in tl.static_range(K):
        in_row = k * C + tl.arange(0, C)
        at = place * cols + in_row
        if partial_dweight is not None:
            tl.store(partial_dweight + at, sums[k], mask=in_row < cols)
        if partial_dbias is not None:
            tl.store(partial_dbias + at, sums[K + k], mask=in_row < cols)


@triton.jit
def after(tile, value):
    """The same 16-bit tile, which the compiler takes to depend on `value` too.

    So the compiler cannot convert it to fp32 before `value` is known, and until then it takes 16 bits an element in
    registers instead of 32. A tile of 32 bits comes back as it is.
    """
    if tile.dtype.primitive_bitwidth != 16:
        return tile
    bits = tl.inline_asm_elementwise(
        "mov.b32 $0, $1; // $2 $3",
        "=r,r,r,r",
        [tile.to(tl.int16, bitcast=True), value],
        dtype=tl.int16,
        is_pure=True,
        pack=2,
    )
    return bits.to(tile.dtype, bitcast=True)
