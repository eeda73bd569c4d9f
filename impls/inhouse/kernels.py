"""The Triton kernels of the in-house LayerNorm and RMSNorm backward, from the formula to the last rounding.

With xhat = (x - mean) * rstd (RMSNorm: x * rstd), g = dy * weight and mean_c a mean over one row's columns:

    dx      = rstd * (g - mean_c(g) - xhat * mean_c(g * xhat))      RMSNorm: without mean_c(g)
    dweight = sum over rows of dy * xhat
    dbias   = sum over rows of dy

A row has to be seen whole before its dx can be written, and every row has to be seen before dweight is known. Memory is
the limit: x and dy read once, dx written once. Two ways to cut the work, chosen in launch.py:

one pass    `backward_rows`. A program takes R whole rows at a time, holds them on the chip across the row sums, writes
            dx, and adds to its own dweight and dbias in registers for as long as it lives.
two passes  `row_sums`, then `backward_columns`. For rows too wide to hold: the first writes mean_c of each row, after
            which rows no longer matter, and the second cuts x and dy into tiles of any shape. x and dy are read twice.

Both leave one fp32 row of partial gradients a program, and `finish` sums those. Every sum is taken in an order that the
shape and the device fix, without atomics, in fp32, and rounded once: the gradients are bitwise reproducible.

A pointer that is None switches its feature off when the kernel is compiled: no `mean` means RMSNorm, no `weight` means
that there is none, no `partial_dbias` that nobody asked for dbias.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def load_weight(weight, col, in_row, ZERO_CENTRED: tl.constexpr):
    """The factor that the norm multiplies xhat by, in fp32; 0 in columns past the end of the row."""
    factor = tl.load(weight + col, mask=in_row, other=0.0).to(tl.float32)
    if ZERO_CENTRED:
        factor += tl.where(in_row, 1.0, 0.0)
    return factor


@triton.jit
def after(tile, sums):
    """The same 16-bit tile."""
    bits = tl.inline_asm_elementwise(
        "mov.b32 $0, $1; // $2 $3",
        "=r,r,r,r",
        [tile.to(tl.int16, bitcast=True), sums],
        dtype=tl.int16,
        is_pure=True,
        pack=2,
    )
    return bits.to(tile.dtype, bitcast=True)


@triton.jit
def backward_rows(
    dx,
    partial_dweight,
    partial_dbias,
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
    STAGES: tl.constexpr,
    RELOAD_WEIGHT: tl.constexpr,
    EVEN: tl.constexpr,
    SIGNAL: tl.constexpr,
    KEEP: tl.constexpr,
    JOIN: tl.constexpr,
):
    """One pass over tiles of R rows, each row K chunks of C columns."""
    if SIGNAL:
        gdc_launch_dependents()
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    row_in_tile = tl.arange(0, R)[:, None, None]
    col = tl.arange(0, K)[None, :, None] * C + tl.arange(0, C)[None, None, :]
    in_row = col < cols

    if weight is not None:
        wst = tl.load(weight+col, mask=in_row, other=0.0)
        dweight = tl.zeros([1 if FOLD else R, K, C], tl.float32)
        if not RELOAD_WEIGHT:
            factor = load_weight(weight, col, in_row, ZERO_CENTRED)
    if partial_dbias is not None:
        dbias = tl.zeros([1 if FOLD else R, K, C], tl.float32)

    for tile in tl.range(program, tl.cdiv(rows, R), programs, num_stages=STAGES):
        row = tile.to(tl.int64) * R + row_in_tile
        inside = (row < rows) & in_row
        if EVEN:
            inside = tl.full([R, K, C], True, tl.int1)
        dy_stored = tl.load(dy + row * dy_stride + col, mask=inside, other=0.0)
        x_stored = tl.load(x + row * x_stride + col, mask=inside, other=0.0)
        row_rstd = tl.load(rstd + row, mask=row < rows, other=0.0)
        dy_tile = dy_stored.to(tl.float32)
        x_tile = x_stored.to(tl.float32)

        if mean is not None:
            row_mean = tl.load(mean + row, mask=row < rows, other=0.0)
            x_tile -= row_mean
        xhat = x_tile * row_rstd
        g = dy_tile
        if weight is not None:
            if RELOAD_WEIGHT:
                if KEEP==1:
                    factor = after(wst, row_rstd).to(tl.float32)
                else:
                    factor = load_weight(weight, col, in_row, ZERO_CENTRED)
            g = dy_tile * factor

        if JOIN and mean is not None:
            both = tl.join(g * xhat, g)
            both = tl.sum(tl.sum(both, 2, keep_dims=True), 1, keep_dims=True)
            c2, c1 = tl.split(both)
            c2 = c2/cols
            c1 = c1/cols
        else:
            c2 = tl.sum(tl.sum(g * xhat, 2, keep_dims=True), 1, keep_dims=True) / cols
            if mean is not None:
                c1 = tl.sum(tl.sum(g, 2, keep_dims=True), 1, keep_dims=True) / cols
        if KEEP:
            dy_tile = after(dy_stored, c2).to(tl.float32)
            x_tile = after(x_stored, c2).to(tl.float32)
            if mean is not None:
                x_tile -= row_mean
            xhat = x_tile * row_rstd
            g = dy_tile
            if weight is not None:
                if RELOAD_WEIGHT:
                    if KEEP==1:
                        factor = after(wst, c2).to(tl.float32)
                    else:
                        factor = tl.load(weight + col, mask=in_row, other=0.0,volatile=True).to(tl.float32)
                g = dy_tile * factor
        shift = c2 * xhat
        if mean is not None:
            shift += c1
        tl.store(dx + row * cols + col, ((g - shift) * row_rstd).to(dx.dtype.element_ty), mask=inside)

        if weight is not None:
            if FOLD:
                dweight += tl.sum(dy_tile * xhat, 0, keep_dims=True)
            else:
                dweight += dy_tile * xhat
        if partial_dbias is not None:
            if FOLD:
                dbias += tl.sum(dy_tile, 0, keep_dims=True)
            else:
                dbias += dy_tile

    if weight is not None:
        tl.store(partial_dweight + program * cols + col, tl.sum(dweight, 0, keep_dims=True), mask=in_row)
    if partial_dbias is not None:
        tl.store(partial_dbias + program * cols + col, tl.sum(dbias, 0, keep_dims=True), mask=in_row)
