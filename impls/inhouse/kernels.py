"""The Triton kernels of the in-house LayerNorm and RMSNorm backward, from the formula to the last rounding.

With xhat = (x - mean) * rstd (RMSNorm: x * rstd), g = dy * weight, and mean_c a mean over the columns of one row:

    dx      = rstd * (g - mean_c(g) - xhat * mean_c(g * xhat))      RMSNorm: without mean_c(g)
    dweight = sum over rows of dy * xhat
    dbias   = sum over rows of dy

A row must have been seen whole before any of its dx can be written, and every row before dweight is known. Arithmetic
is cheap and memory is not: the floor is x and dy read once, dx written once. Two ways to cut the work:

one pass     `backward_rows`: a program takes R whole rows at a time, holds them on the chip across their row sums,
             writes dx, and adds to its own dweight and dbias in registers for as long as it lives.
two passes   `row_sums`, then `backward_columns`, for rows too wide to hold. Once both means of each row are stored,
             rows no longer matter, and the second kernel cuts the matrix into tiles of any shape. x and dy are read
             twice.

Either leaves one fp32 row of partial gradients a program (or group of programs), and `finish` sums these. Every sum is
taken in fp32, without atomics, in an order that only the shape and the device decide, and is rounded once.

A pointer that is None switches its feature off at compile time: no `mean` is RMSNorm, no `weight` is no weight, no
`partial_dbias` is no bias. `PDL` is programmatic dependent launch: the next kernel is launched while this one runs, and
waits for its end on the device.
"""

# Triton compiles this file: kernel arguments have no Python type, and tl.range is not Python's.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# ------------------------------------------------------------------------------------------------ one pass


@triton.jit
def backward_rows(
    dx,  # (rows, cols), contiguous
    partial_dweight,  # (programs, cols) fp32
    partial_dbias,  # (programs, cols) fp32 or None
    dy,
    x,
    weight,
    mean,
    rstd,
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
    PDL: tl.constexpr,
):
    """One pass over tiles of R rows. A row is K chunks of C columns, so that few lanes idle past its end.

    FOLD adds a tile's rows up before they reach the accumulator, which then holds one row: free where a thread holds
    the same columns of every row. PACKED keeps 16-bit tiles packed across the row sums, for half the registers.
    """
    if PDL:
        gdc_launch_dependents()  # every program is resident from the start, so `finish` takes nobody's place
    program = tl.program_id(0)
    row_in_tile = tl.arange(0, R)[:, None]
    col = tl.arange(0, C)[None, :]
    scale = 1.0 / cols

    weights = ()
    dweight = ()
    dbias = ()
    for k in tl.static_range(K):
        if weight is not None:
            chunk = tl.load(weight + k * C + col, mask=k * C + col < cols, other=0.0)
            weights = weights + (chunk if PACKED else factor(chunk, ZERO_CENTRED),)
            dweight = dweight + (tl.zeros([1 if FOLD else R, C], tl.float32),)
        if partial_dbias is not None:
            dbias = dbias + (tl.zeros([1 if FOLD else R, C], tl.float32),)

    for tile in tl.range(program, tl.cdiv(rows, R), tl.num_programs(0), num_stages=STAGES):
        row = (tile * R + row_in_tile).to(tl.int64)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        row_mean = None
        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)

        # Look at the rows once for their sums. These loads run STAGES - 1 tiles ahead, into shared memory.
        dys = ()
        xs = ()
        sum_g = tl.zeros([R, C], tl.float32)
        sum_g_xhat = tl.zeros([R, C], tl.float32)
        for k in tl.static_range(K):
            dy_tile = load(dy + row * dy_stride + k * C + col, (row < rows) & (k * C + col < cols), EVEN)
            x_tile = load(x + row * x_stride + k * C + col, (row < rows) & (k * C + col < cols), EVEN)
            g = dy_tile.to(tl.float32)
            if weight is not None:
                g *= factor(after(weights[k], row_rstd), ZERO_CENTRED) if PACKED else weights[k]
            sum_g += g
            sum_g_xhat += g * normalise(x_tile, row_mean, row_rstd)
            dys = dys + (dy_tile,)
            xs = xs + (x_tile,)
        mean_g, mean_g_xhat = row_means(sum_g, sum_g_xhat, scale, mean is not None)

        # Look at them again, still on the chip, for the gradients.
        new_dweight = ()
        new_dbias = ()
        for k in tl.static_range(K):
            dy_tile = after(dys[k], mean_g_xhat) if PACKED else dys[k]
            x_tile = after(xs[k], mean_g_xhat) if PACKED else xs[k]
            dy_tile = dy_tile.to(tl.float32)
            xhat = normalise(x_tile, row_mean, row_rstd)
            g = dy_tile
            if weight is not None:
                g *= factor(after(weights[k], mean_g_xhat), ZERO_CENTRED) if PACKED else weights[k]
                new_dweight = new_dweight + (dweight[k] + over_rows(dy_tile * xhat, FOLD),)
            if partial_dbias is not None:
                new_dbias = new_dbias + (dbias[k] + over_rows(dy_tile, FOLD),)
            dx_tile = input_gradient(g, xhat, mean_g, mean_g_xhat, row_rstd)
            store(dx + row * cols + k * C + col, dx_tile, (row < rows) & (k * C + col < cols), EVEN)
        dweight = new_dweight
        dbias = new_dbias

    for k in tl.static_range(K):
        at = program * cols + k * C + col
        if weight is not None:
            tl.store(partial_dweight + at, tl.sum(dweight[k], 0, keep_dims=True), mask=k * C + col < cols)
        if partial_dbias is not None:
            tl.store(partial_dbias + at, tl.sum(dbias[k], 0, keep_dims=True), mask=k * C + col < cols)


# ------------------------------------------------------------------------------------------------ two passes


@triton.jit
def row_sums(
    means_g,  # (rows) fp32; None for RMSNorm
    means_g_xhat,  # (rows) fp32
    dy,
    x,
    weight,
    mean,
    rstd,
    cols,
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    C: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    PDL: tl.constexpr,
):
    """First pass: mean_c(g) and mean_c(g * xhat) of one row a program."""
    if PDL:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    row_rstd = tl.load(rstd + row)
    row_mean = None
    if mean is not None:
        row_mean = tl.load(mean + row)
    sum_g = tl.zeros([1, C], tl.float32)
    sum_g_xhat = tl.zeros([1, C], tl.float32)
    for start in tl.range(0, cols, C, num_stages=STAGES):
        col = start + tl.arange(0, C)[None, :]
        g = load(dy + row * dy_stride + col, col < cols, EVEN).to(tl.float32)
        x_tile = load(x + row * x_stride + col, col < cols, EVEN)
        if weight is not None:
            g *= factor(load(weight + col, col < cols, EVEN), ZERO_CENTRED)
        sum_g += g
        sum_g_xhat += g * normalise(x_tile, row_mean, row_rstd)
    mean_g, mean_g_xhat = row_means(sum_g, sum_g_xhat, 1.0 / cols, mean is not None)
    one = tl.zeros([1, 1], tl.int32)
    if mean is not None:
        tl.store(means_g + row + one, mean_g)
    tl.store(means_g_xhat + row + one, mean_g_xhat)


@triton.jit
def backward_columns(
    dx,
    partial_dweight,  # (groups, cols) fp32
    partial_dbias,
    dy,
    x,
    weight,
    mean,
    rstd,
    means_g,
    means_g_xhat,
    rows,
    cols,
    dy_stride,
    x_stride,
    ZERO_CENTRED: tl.constexpr,
    R: tl.constexpr,
    C: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    PDL: tl.constexpr,
):
    """Second pass: a program owns C columns and, with the other groups, takes turns at tiles of R rows.

    It goes from the last row to the first, because the first pass has just left the last rows in the L2 cache.
    """
    column_tiles = tl.cdiv(cols, C)
    group = tl.program_id(0) // column_tiles
    groups = tl.num_programs(0) // column_tiles
    row_in_tile = tl.arange(0, R)[:, None]
    col = tl.program_id(0) % column_tiles * C + tl.arange(0, C)[None, :]
    weights = None
    if weight is not None:
        weights = factor(load(weight + col, col < cols, EVEN), ZERO_CENTRED)
    dweight = tl.zeros([1, C], tl.float32)
    dbias = tl.zeros([1, C], tl.float32)
    row_tiles = tl.cdiv(rows, R)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()

    for tile in tl.range(group, row_tiles, groups, num_stages=STAGES):
        row = ((row_tiles - 1 - tile) * R + row_in_tile).to(tl.int64)
        dy_tile = load(dy + row * dy_stride + col, (row < rows) & (col < cols), EVEN).to(tl.float32)
        x_tile = load(x + row * x_stride + col, (row < rows) & (col < cols), EVEN)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        mean_g_xhat = tl.load(means_g_xhat + row, mask=row < rows, other=0.0)
        row_mean = None
        mean_g = tl.zeros_like(row_rstd)
        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)
            mean_g = tl.load(means_g + row, mask=row < rows, other=0.0)
        xhat = normalise(x_tile, row_mean, row_rstd)
        g = dy_tile
        if weight is not None:
            g *= weights
            dweight += over_rows(dy_tile * xhat, True)
        if partial_dbias is not None:
            dbias += over_rows(dy_tile, True)
        dx_tile = input_gradient(g, xhat, mean_g, mean_g_xhat, row_rstd)
        store(dx + row * cols + col, dx_tile, (row < rows) & (col < cols), EVEN)

    if weight is not None:
        tl.store(partial_dweight + group * cols + col, dweight, mask=col < cols)
    if partial_dbias is not None:
        tl.store(partial_dbias + group * cols + col, dbias, mask=col < cols)


# ------------------------------------------------------------------------------------------------ the last sum


@triton.jit
def finish(
    dweight,
    dbias,
    partial_dweight,
    partial_dbias,
    partials,
    cols,
    P: tl.constexpr,
    C: tl.constexpr,
    PDL: tl.constexpr,
):
    """Sum the partial gradients of C columns, P at a time, and round them once."""
    col = tl.program_id(0) * C + tl.arange(0, C)[None, :]
    if PDL:
        gdc_wait()
    finish_one(dweight, partial_dweight, col, partials, cols, P, C)
    if partial_dbias is not None:
        finish_one(dbias, partial_dbias, col, partials, cols, P, C)


@triton.jit
def finish_one(gradient, partial, col, partials, cols, P: tl.constexpr, C: tl.constexpr):
    total = tl.zeros([P, C], tl.float32)
    for start in range(0, partials, P):
        index = start + tl.arange(0, P)[:, None]
        total += tl.load(partial + index * cols + col, mask=(index < partials) & (col < cols), other=0.0)
    tl.store(gradient + col, tl.sum(total, 0, keep_dims=True).to(gradient.dtype.element_ty), mask=col < cols)


# ------------------------------------------------------------------------------------------------ the formula's pieces


@triton.jit
def factor(weight, ZERO_CENTRED: tl.constexpr):
    """What the norm multiplied xhat by. Past the end of a row it meets dy = 0, so its value there does not matter."""
    multiplier = weight.to(tl.float32)
    if ZERO_CENTRED:
        multiplier += 1.0
    return multiplier


@triton.jit
def normalise(x, row_mean, row_rstd):
    centred = x.to(tl.float32)
    if row_mean is not None:
        centred -= row_mean
    return centred * row_rstd


@triton.jit
def row_means(sum_g, sum_g_xhat, scale, LAYER: tl.constexpr):
    """The means of whole rows from the per-column sums; both in one exchange between warps, half the barriers."""
    if LAYER:
        mean_g, mean_g_xhat = tl.split(tl.sum(tl.join(sum_g, sum_g_xhat), 1, keep_dims=True) * scale)
    else:
        mean_g_xhat = tl.sum(sum_g_xhat, 1, keep_dims=True) * scale
        mean_g = tl.zeros_like(mean_g_xhat)  # the compiler drops the subtraction
    return mean_g, mean_g_xhat


@triton.jit
def input_gradient(g, xhat, mean_g, mean_g_xhat, row_rstd):
    return (g - mean_g - xhat * mean_g_xhat) * row_rstd


@triton.jit
def over_rows(tile, FOLD: tl.constexpr):
    return tl.sum(tile, 0, keep_dims=True) if FOLD else tile


@triton.jit
def after(tile, value):
    """The same 16-bit tile, made to look as if it came from `value` too.

    Its conversion to fp32 then cannot be shared with one that ran before `value` was known, so that 16 bits an element
    live in registers until then instead of 32. Other tiles come back as they are.
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


@triton.jit
def load(pointers, inside, EVEN: tl.constexpr):
    """Load; EVEN says that tiles cover the matrix exactly, and spares the masks."""
    return tl.load(pointers) if EVEN else tl.load(pointers, mask=inside, other=0.0)


@triton.jit
def store(pointers, tile, inside, EVEN: tl.constexpr):
    """Round and store, within the matrix."""
    rounded = tile.to(pointers.dtype.element_ty)
    if EVEN:
        tl.store(pointers, rounded)
    else:
        tl.store(pointers, rounded, mask=inside)
