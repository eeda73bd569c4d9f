"""The kernel of one pass: a program holds R whole rows on the chip from their row sums to their dx."""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportAssignmentType=false

import triton
import triton.language as tl

from ..arrivals import arrive, first_piece, next_piece, start, wait_for_all, wait_or_leave
from ..finish import finish_piece, results_of
from ..formula import (
    centred,
    factor,
    gated,
    input_gradient,
    load,
    load_again,
    load_extra,
    load_shifted,
    load_tail,
    output_gradient,
    over_rows,
    row_corrections,
    row_sums_of,
    rows_at,
    rows_of_tile,
    shift_of,
    store,
    store_input_gradients,
    store_shifted,
    sums_over_rows,
    through_gate,
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
    words,  # of arrivals.py, if FUSED
    extra,  # tensors.py has its fields
    rows,
    cols,  # in units, as are the strides
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    HEADS: tl.constexpr,
    UNIT: tl.constexpr,
    ALIGNMENTS: tl.constexpr,
    TAIL: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    FOLD: tl.constexpr,
    PACKED: tl.constexpr,
    REREAD: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    FUSED: tl.constexpr,
    APART: tl.constexpr,
    FINISH_ROWS: tl.constexpr,
    FINISH_COLS: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    """One pass over tiles of R rows. A row is K chunks of C columns, so that few lanes idle past its end.

    FOLD adds a tile's rows up before they reach the accumulator, which then holds one row: free where a thread holds
    the same columns of every row. PACKED keeps 16-bit tiles packed across the row sums, for half the registers. REREAD
    loads a gate again behind the row sums, for none. FUSED programs add their partial gradients up as well, once all
    are there (arrivals.py). APART keeps the compiler from mixing the store of partial gradients with the loop, where
    that takes registers that the loop needs.

    Where 8 does not divide the columns, contiguous rows of 16-bit elements begin at 2, 4 or 8 ALIGNMENTS. A tile then
    has rows of one, and so have all tiles of a program, as ALIGNMENTS divides the number of programs: rows are read
    16 bytes at a time, and a thread keeps its columns. With a TAIL 8 does not divide the elements of the matrix either.
    """
    cols *= UNIT
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    row_in_tile = tl.arange(0, R)[:, None]
    col = tl.arange(0, C)[None, :]
    tiles = tl.cdiv(rows, R * ALIGNMENTS) * ALIGNMENTS
    if FUSED:
        start(words, program, programs)

    shift = shift_of(program, cols, ALIGNMENTS)
    dy_tail = load_tail(dy, (K - 1) * C + col, shift, rows, cols, TAIL)
    x_tail = load_tail(x, (K - 1) * C + col, shift, rows, cols, TAIL)
    weights = row_vector(weight, x, row_in_tile, col - shift, cols, ZERO_CENTRED, K, C, PACKED, ALIGNMENTS > 1)
    weights1 = row_vector(extra.weight1, x, row_in_tile, col, cols, ZERO_CENTRED, K, C, PACKED, False)
    biases = row_vector(extra.bias, x, row_in_tile, col, cols, False, K, C, PACKED, False)
    scale = 1.0 / cols
    if STAGES > 1:
        # A load returns behind the copies that were sent before it, and compilers send this one last: behind all tiles
        # in flight, for which the first turn would wait. None is moved across a barrier.
        tl.debug_barrier()

    # The sums for each gradient of a parameter, as far as there is such: K chunks.
    dweight = ()
    dbias = ()
    dweight1 = ()
    dbias1 = ()
    for _ in tl.static_range(K):
        if partial_dweight is not None:
            dweight = dweight + (tl.zeros([1 if FOLD else R, C], tl.float32),)
        if partial_dbias is not None:
            dbias = dbias + (tl.zeros([1 if FOLD else R, C], tl.float32),)
        if extra.partial_dweight1 is not None:
            dweight1 = dweight1 + (tl.zeros([1 if FOLD else R, C], tl.float32),)
        if extra.partial_dbias1 is not None:
            dbias1 = dbias1 + (tl.zeros([1 if FOLD else R, C], tl.float32),)
    for tile in tl.range(program, tiles, programs, num_stages=STAGES):
        row = rows_of_tile(tile, row_in_tile, R, ALIGNMENTS)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        row_mean = None
        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)

        # The row sums. These loads run STAGES - 1 tiles ahead, into shared memory.
        row_tiles = ()
        sum_g = tl.zeros([R, C], tl.float32)
        sum_g_centred = tl.zeros([R, C], tl.float32)
        for k in tl.static_range(K):
            if ALIGNMENTS > 1:
                dy_tile = load_shifted(dy, row, k * C + col, shift, rows, cols, dy_tail, k == 0, k == K - 1)
                x_tile = load_shifted(x, row, k * C + col, shift, rows, cols, x_tail, k == 0, k == K - 1)
            else:
                dy_rows = dy + rows_at(row, dy_stride, extra.dy_head_stride, HEADS, UNIT)
                dy_tile = load(dy_rows + k * C + col, (row < rows) & (k * C + col < cols), EVEN)
                x_rows = x + rows_at(row, x_stride, extra.x_head_stride, HEADS, UNIT)
                x_tile = load(x_rows + k * C + col, (row < rows) & (k * C + col < cols), EVEN)
            inside = (row < rows) & (k * C + col < cols)
            dy1_tile = load_extra(extra.dy1, row, extra.dy1_stride, k * C + col, inside, EVEN, UNIT)
            z_tile = load_extra(extra.z, row, extra.z_stride, k * C + col, inside, EVEN, UNIT)
            row_tiles = row_tiles + (((dy_tile, x_tile), dy1_tile, () if REREAD else z_tile),)
            dy_tile, x_tile = gated(dy_tile.to(tl.float32), x_tile, z_tile, extra.norm_first)
            multiplier = chunk_of(weights, k, row_rstd, ZERO_CENTRED, PACKED)
            multiplier1 = chunk_of(weights1, k, row_rstd, ZERO_CENTRED, PACKED)
            g = output_gradient(dy_tile, multiplier, dy1_tile, multiplier1)
            sum_g += g
            sum_g_centred += g * centred(x_tile, row_mean)
        sum_g, sum_g_centred = row_sums_of(sum_g, sum_g_centred, mean is not None)
        of_xhat, of_one = row_corrections(sum_g, sum_g_centred, row_rstd, scale)

        # The gradients, from the same tiles, still on the chip.
        new_dweight = ()
        new_dbias = ()
        new_dweight1 = ()
        new_dbias1 = ()
        for k in tl.static_range(K):
            raw_dy, raw_x = tiles_after(row_tiles[k][0], of_xhat, PACKED)
            dy1_tile = tiles_after(row_tiles[k][1], of_xhat, PACKED)
            z_tile = tiles_after(row_tiles[k][2], of_xhat, PACKED)
            if REREAD:
                inside = (row < rows) & (k * C + col < cols)
                z_tile = load_again(extra.z, row, extra.z_stride, k * C + col, inside, EVEN, UNIT)
            dy_tile, x_tile = gated(raw_dy.to(tl.float32), raw_x, z_tile, extra.norm_first)
            xhat = centred(x_tile, row_mean) * row_rstd
            multiplier = chunk_of(weights, k, of_xhat, ZERO_CENTRED, PACKED)
            multiplier1 = chunk_of(weights1, k, of_xhat, ZERO_CENTRED, PACKED)
            g = output_gradient(dy_tile, multiplier, dy1_tile, multiplier1)
            if partial_dweight is not None:
                new_dweight = new_dweight + (dweight[k] + over_rows(dy_tile * xhat, FOLD),)
            if partial_dbias is not None:
                new_dbias = new_dbias + (dbias[k] + over_rows(dy_tile, FOLD),)
            if extra.partial_dweight1 is not None:
                new_dweight1 = new_dweight1 + (dweight1[k] + over_rows(dy1_tile[0].to(tl.float32) * xhat, FOLD),)
            if extra.partial_dbias1 is not None:
                new_dbias1 = new_dbias1 + (dbias1[k] + over_rows(dy1_tile[0].to(tl.float32), FOLD),)
            dx_tile = input_gradient(g, xhat, row_rstd, of_xhat, of_one, mean is not None)
            if extra.z is not None:
                inside = (row < rows) & (k * C + col < cols)
                bias = chunk_of(biases, k, of_xhat, False, PACKED)
                dx_tile, dz_tile = through_gate(
                    dx_tile, raw_dy, raw_x, z_tile, xhat, multiplier, bias, extra.norm_first
                )
                store(extra.dz + row * cols + k * C + col, dz_tile, inside, EVEN)
            if ALIGNMENTS > 1:
                if extra.dres is not None:
                    dres_tile = load_shifted(extra.dres, row, k * C + col, shift, rows, cols, (), k == 0, k == K - 1)
                    dx_tile += dres_tile.to(tl.float32)
                store_shifted(dx, dx_tile, row, k * C + col, shift, rows, cols, k == 0, k == K - 1)
            else:
                inside = (row < rows) & (k * C + col < cols)
                store_input_gradients(
                    dx + row * cols + k * C + col, dx_tile, extra, row, k * C + col, cols, inside, EVEN, UNIT
                )
        dweight = new_dweight
        dbias = new_dbias
        dweight1 = new_dweight1
        dbias1 = new_dbias1
    sums = dweight + dbias + dweight1 + dbias1
    partials = partial_dweight, partial_dbias, extra.partial_dweight1, extra.partial_dbias1
    if not APART or cols > 0:  # which it always is
        store_sums(sums, program, shift, partials, cols, K, C, ALIGNMENTS > 1)
    if FUSED:
        started, arrived = arrive(words, program, programs, INTERPRETED)
        index = tl.arange(0, FINISH_ROWS)[:, None]
        lane = tl.arange(0, FINISH_COLS)[None, :]
        results = results_of(dweight_out, dbias_out, partial_dweight, partial_dbias, extra)
        # The usual way comes first and shares no code with the other. So its code follows on the loop's: behind a jump
        # it would be fetched from memory only when a program gets there.
        if wait_for_all(words, started, arrived, INTERPRETED):
            finish_piece(results, program, index, lane, programs, cols, programs, FINISH_ROWS, FINISH_COLS)
        else:
            left = wait_or_leave(words, program, programs, INTERPRETED)
            piece = first_piece(words, program, programs, left)
            while piece < programs:
                finish_piece(results, piece, index, lane, programs, cols, programs, FINISH_ROWS, FINISH_COLS)
                piece = next_piece(words, programs, left)


@triton.jit
def row_vector(
    vector,
    x,
    row_in_tile,
    col,
    cols,
    ZERO_CENTRED: tl.constexpr,
    K: tl.constexpr,
    C: tl.constexpr,
    PACKED: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """K chunks of a weight or bias `(cols)`: as factors in fp32, or as they lie in memory if PACKED; none of None.

    Columns begin below 0 where they are SHIFTED.
    """
    chunks = ()
    for k in tl.static_range(K):
        if vector is not None:
            if vector.dtype == x.dtype:
                chunk = tl.load(vector + k * C + col, mask=is_column(k * C + col, cols, SHIFTED), other=0.0)
            else:
                # Loaded as a tile, of which the first row counts. Loaded by itself it would have a layout for its own
                # element size, and Triton would convert every tile to that layout instead of this one to that of x.
                first = (row_in_tile == 0) & is_column(k * C + col, cols, SHIFTED)
                chunk = tl.sum(
                    tl.load(vector + k * C + col + 0 * row_in_tile, mask=first, other=0.0), 0, keep_dims=True
                )
            chunks = chunks + (chunk if PACKED else factor(chunk, ZERO_CENTRED),)
    return chunks


@triton.jit
def is_column(col, cols, SHIFTED: tl.constexpr):
    """Which of these are columns; only where they are SHIFTED may they lie before the first."""
    return (col >= 0) & (col < cols) if SHIFTED else col < cols


@triton.jit
def chunk_of(chunks, k, value, ZERO_CENTRED: tl.constexpr, PACKED: tl.constexpr):
    """The k-th chunk of `row_vector`, in fp32, not before `value` is known if PACKED; empty of no vector."""
    chunk = ()
    if len(chunks) > 0:
        chunk = (factor(after(chunks[k], value), ZERO_CENTRED) if PACKED else chunks[k],)
    return chunk


@triton.jit
def tiles_after(tiles, value, PACKED: tl.constexpr):
    """Tiles as they are once `value` is known."""
    later = ()
    for i in tl.static_range(len(tiles)):
        later = later + (after(tiles[i], value) if PACKED else tiles[i],)
    return later


@triton.jit
def store_sums(sums, place, shift, partials, cols, K: tl.constexpr, C: tl.constexpr, SHIFTED: tl.constexpr):
    """Store the sums over the rows of these tiles, which begin at this `shift`, as one row of each partial gradient."""
    partial_dweight, partial_dbias, partial_dweight1, partial_dbias1 = partials
    sums = sums_over_rows(sums)
    biases: tl.constexpr = 0 if partial_dbias is None else K
    for k in tl.static_range(K):
        in_row = k * C + tl.arange(0, C)
        if SHIFTED:
            in_row -= shift
        at = place * cols + in_row
        if partial_dweight is not None:
            tl.store(partial_dweight + at, sums[k], mask=is_column(in_row, cols, SHIFTED))
        if partial_dbias is not None:
            tl.store(partial_dbias + at, sums[K + k], mask=is_column(in_row, cols, SHIFTED))
        if partial_dweight1 is not None:
            tl.store(partial_dweight1 + at, sums[K + biases + k], mask=is_column(in_row, cols, SHIFTED))
        if partial_dbias1 is not None:
            tl.store(partial_dbias1 + at, sums[3 * K + k], mask=is_column(in_row, cols, SHIFTED))


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
