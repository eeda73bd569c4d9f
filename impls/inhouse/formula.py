"""The formula of both norms' backward, and its pieces that all kernels share.

With xhat = (x - mean) * rstd (RMSNorm: x * rstd), g = dy * weight, and mean_c a mean over the columns of one row:

    dx      = rstd * (g - mean_c(g) - xhat * mean_c(g * xhat))      RMSNorm: without mean_c(g)
    dweight = sum over rows of dy * xhat
    dbias   = sum over rows of dy

A row must have been read whole before any of its dx can be written, and every row before dweight is known. Arithmetic
is cheap and memory is not: the least to move is x and dy read once, dx written once. regimes/ has four ways to cut the
work:

one_pass   a program takes whole rows, holds them on the chip across their row sums, writes dx, and adds to its own
           dweight and dbias in registers for as long as it lives;
shared     the same for rows too wide for one program: several share a row, and exchange its sums;
two_pass   what neither takes: the sums of all rows first, after which rows no longer matter and the matrix is cut into
           tiles of any shape. x and dy are read twice;
few_rows   few rows: some programs own rows and others columns, in one launch. x and dy are read twice.

All but the last leave one fp32 row of partial gradients a program (or group of programs), and finish.py sums these.
Every sum is taken in fp32, without atomics, in an order that only the shape and the device decide, and is rounded once.

What a model has around a norm changes what goes into this and what comes out (`Extras` in tensors.py):

    dy1, weight1        g = dy * weight + dy1 * weight1: two norms of one x have one xhat, and one pair of row sums
    z, before the norm  x * silu(z) takes the place of x: dz = dx * x * silu'(z), then dx = dx * silu(z)
    z, behind it        dy * silu(z) takes the place of dy: dz = dy * (xhat * weight + bias) * silu'(z)
    dres                dx = dx + dres, in fp32 and before dx is rounded
    mask                dbranch = mask * dx / (1 - p), of the same unrounded dx

A pointer that is None switches its feature off at compile time: no `mean` is RMSNorm, no `weight` is no weight, no
`partial_dbias` is no bias, no `extra.dres` is no residual. `FUSED`: the programs wait for each other at the end
(arrivals.py) and sum the partials themselves; else finish.py's kernel does.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportAssignmentType=false

import triton
import triton.language as tl

VECTOR = tl.constexpr(8)  # elements of 16 bits that a thread loads at once: 16 bytes


@triton.jit
def factor(weight, ZERO_CENTRED: tl.constexpr):
    """The factor of xhat in the norm. Its value past the end of a row does not matter, because dy is 0 there."""
    multiplier = weight.to(tl.float32)
    if ZERO_CENTRED:
        multiplier += 1.0
    return multiplier


@triton.jit
def factors(vector, col, cols, ZERO_CENTRED: tl.constexpr, EVEN: tl.constexpr):
    """The factors of a weight in these columns, or any vector without ZERO_CENTRED, in fp32; empty of no vector."""
    chunks = ()
    if vector is not None:
        chunks = (factor(load(vector + col, col < cols, EVEN), ZERO_CENTRED),)
    return chunks


@triton.jit
def output_gradient(dy, multiplier, dy1, multiplier1):
    """g: dy * weight, and of two norms the sum of both; what there is not is an empty tuple."""
    g = dy
    if len(multiplier) > 0:
        g *= multiplier[0]
    if len(dy1) > 0:
        g1 = dy1[0].to(tl.float32)
        if len(multiplier1) > 0:
            g1 *= multiplier1[0]
        g += g1
    return g


@triton.jit
def centred(x, row_mean):
    """Subtract the mean, in fp32 and before anything is multiplied, so that a large mean costs no digits."""
    if row_mean is not None:
        return x.to(tl.float32) - row_mean
    return x.to(tl.float32)


@triton.jit
def row_sums_of(sum_g, sum_g_centred, LAYER: tl.constexpr):
    """Sum both tiles over their columns, in one exchange between warps, which halves the barriers."""
    if LAYER:
        return tl.split(tl.sum(tl.join(sum_g, sum_g_centred), 1, keep_dims=True))
    of_centred = tl.sum(sum_g_centred, 1, keep_dims=True)
    return tl.zeros_like(of_centred), of_centred


@triton.jit
def row_corrections(sum_g, sum_g_centred, row_rstd, scale):
    """The coefficients of dx = g * rstd + xhat * of_xhat + of_one: two fused operations an element."""
    of_xhat = -row_rstd * (row_rstd * sum_g_centred * scale)
    of_one = -row_rstd * (sum_g * scale)
    return of_xhat, of_one


@triton.jit
def input_gradient(g, xhat, row_rstd, of_xhat, of_one, LAYER: tl.constexpr):
    """One tile of dx, from the coefficients of its rows."""
    if LAYER:
        return g * row_rstd + (xhat * of_xhat + of_one)
    return g * row_rstd + xhat * of_xhat


@triton.jit
def rows_at(row, stride, head_stride, HEADS: tl.constexpr, UNIT: tl.constexpr):
    """Where rows begin: each at a distance of its own, or as one of so many heads of a token. Strides are in units."""
    if head_stride is None:
        return row * (stride * UNIT)
    else:
        return row // HEADS * (stride * UNIT) + row % HEADS * (head_stride * UNIT)


@triton.jit
def gate(z):
    """silu(z) = z * sigmoid(z), and its slope, in fp32."""
    z = z.to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-z))
    return z * sigmoid, sigmoid * (1.0 + z * (1.0 - sigmoid))


@triton.jit
def gated(dy, x, z, norm_first):
    """The gradient of the norm's output and what it normalises: what a gate, if any, leaves of dy, in fp32, and x."""
    if len(z) > 0:
        silu, _ = gate(z[0])
        if norm_first is not None:
            dy *= silu
        else:
            x = x.to(tl.float32) * silu
    return dy, x


@triton.jit
def through_gate(dx, dy, x, z, xhat, multiplier, bias, norm_first):
    """The gradients of x and of z, from that of what is normalised; `dy` and `x` as they lie in memory."""
    silu, slope = gate(z[0])
    if norm_first is not None:
        y = xhat
        if len(multiplier) > 0:
            y = y * multiplier[0]
        if len(bias) > 0:
            y = y + bias[0]
        return dx, dy.to(tl.float32) * y * slope
    else:
        return dx * silu, dx * x.to(tl.float32) * slope


@triton.jit
def load_extra(tensor, row, stride, col, inside, EVEN: tl.constexpr, UNIT: tl.constexpr):
    """A tile of dy1 or of z; an empty tuple of no tensor."""
    tiles = ()
    if tensor is not None:
        tiles = (load(tensor + row * (stride * UNIT) + col, inside, EVEN),)
    return tiles


@triton.jit
def load_again(tensor, row, stride, col, inside, EVEN: tl.constexpr, UNIT: tl.constexpr):
    """The same by a load of its own, from the L2 cache: a tile that is not kept across the row sums takes no registers.

    The modifier keeps the compiler from taking this load for the first one.
    """
    tiles = ()
    if tensor is not None:
        pointers = tensor + row * (stride * UNIT) + col
        if EVEN:
            tiles = (tl.load(pointers, cache_modifier=".cg"),)
        else:
            tiles = (tl.load(pointers, mask=inside, other=0.0, cache_modifier=".cg"),)
    return tiles


@triton.jit
def store_input_gradients(pointers, tile, extra, row, col, cols, inside, EVEN: tl.constexpr, UNIT: tl.constexpr):
    """Add the residual's gradient to a tile of dx and store it, and what dropout leaves of it to each branch."""
    if extra.dres is not None:
        tile += load(extra.dres + row * (extra.dres_stride * UNIT) + col, inside, EVEN).to(tl.float32)
    store(pointers, tile, inside, EVEN)
    if extra.mask is not None:
        store_branch(extra.dbranch, tile, extra.mask, extra.keep_scale, row * cols + col, inside, EVEN)
    if extra.mask1 is not None:
        store_branch(extra.dbranch1, tile, extra.mask1, extra.keep_scale, row * cols + col, inside, EVEN)


@triton.jit
def store_branch(dbranch, dx, mask, keep_scale, at, inside, EVEN: tl.constexpr):
    """Store mask * dx / (1 - p), where `keep_scale` is 1 / (1 - p): a product, so that no NaN is dropped."""
    keeps = load(mask + at, inside, EVEN) != 0
    store(dbranch + at, dx * tl.where(keeps, keep_scale, 0.0), inside, EVEN)


@triton.jit
def rows_of_tile(tile, row_in_tile, R: tl.constexpr, ALIGNMENTS: tl.constexpr):
    """The rows of a tile: R that follow each other, or that are ALIGNMENTS apart and so begin at one alignment."""
    if ALIGNMENTS == 1:
        return (tile * R + row_in_tile).to(tl.int64)
    else:
        return (tile // ALIGNMENTS * (R * ALIGNMENTS) + tile % ALIGNMENTS + row_in_tile * ALIGNMENTS).to(tl.int64)


@triton.jit
def shift_of(tile, cols, ALIGNMENTS: tl.constexpr):
    """How many elements behind a multiple of 16 bytes the rows of a tile begin; 0 where all begin at one."""
    return tile % ALIGNMENTS * cols % VECTOR if ALIGNMENTS > 1 else 0


@triton.jit
def load_shifted(tensor, row, place, shift, rows, cols, tail, FIRST: tl.constexpr, LAST: tl.constexpr):
    """A tile of contiguous rows that begin `shift` elements behind a multiple of 16 bytes; zeros outside of the matrix.

    Places count from that multiple. A thread loads 16 bytes at once, at the ends of a row, in its FIRST and LAST chunk,
    with a few elements of its neighbours, which are dropped. Where the matrix ends at no multiple, its last elements
    come from the `tail`, so that nothing behind it is read.
    """
    at = row * cols // VECTOR * VECTOR + place
    end = cols + shift
    if LAST and len(tail) > 0:
        end = tl.where(row == rows - 1, end // VECTOR * VECTOR, end)
    tile = tl.load(tensor + at, mask=(row < rows) & (place // VECTOR * VECTOR < end), other=0.0)
    if LAST and len(tail) > 0:
        tile = tl.where((row == rows - 1) & (place >= end), tail[0], tile)
    if FIRST:
        tile = tl.where(place >= shift, tile, 0.0)
    if LAST:
        tile = tl.where(place < cols + shift, tile, 0.0)
    return tile


@triton.jit
def load_tail(tensor, place, shift, rows, cols, TAIL: tl.constexpr):
    """The last elements of a matrix that `load_shifted` cannot load, if it has such; 0 in all other places."""
    tail = ()
    if TAIL:
        at = (rows - 1).to(tl.int64) * cols // VECTOR * VECTOR + place
        inside = (place >= (cols + shift) // VECTOR * VECTOR) & (place < cols + shift)
        tail = (tl.load(tensor + at, mask=inside, other=0.0),)
    return tail


@triton.jit
def store_shifted(tensor, tile, row, place, shift, rows, cols, FIRST: tl.constexpr, LAST: tl.constexpr):
    """Round and store a tile as `load_shifted` has them: 16 bytes at once, and the ends of rows one by one."""
    first = place // VECTOR * VECTOR
    inside, whole = row < rows, row < rows
    if FIRST:
        inside, whole = inside & (place >= shift), whole & (first >= shift)
    if LAST:
        inside, whole = inside & (place < cols + shift), whole & (first + VECTOR <= cols + shift)
    at = tensor + row * cols // VECTOR * VECTOR + place
    rounded = tile.to(tensor.dtype.element_ty)
    tl.store(at, rounded, mask=whole)
    if FIRST or LAST:
        tl.store(at, rounded, mask=inside & (whole == 0))


@triton.jit
def over_rows(tile, FOLD: tl.constexpr):
    """The tile, or if FOLD the sum over its rows."""
    return tl.sum(tile, 0, keep_dims=True) if FOLD else tile


@triton.jit
def sums_over_rows(tiles):
    """Sum each of a tuple of tiles over its rows, four tiles in one exchange between warps."""
    sums = ()
    fours: tl.constexpr = len(tiles) // 4 * 4
    for i in tl.static_range(0, fours, 4):
        a, b, c, d = tl.reduce((tiles[i], tiles[i + 1], tiles[i + 2], tiles[i + 3]), 0, add_four)
        sums = sums + (a, b, c, d)
    for i in tl.static_range(fours, len(tiles)):
        sums = sums + (tl.sum(tiles[i], 0),)
    return sums


@triton.jit
def add_two(a, b, c, d):
    return a + c, b + d


@triton.jit
def add_four(a, b, c, d, e, f, g, h):
    return a + e, b + f, c + g, d + h


@triton.jit
def load(pointers, inside, EVEN: tl.constexpr):
    """Load; with EVEN the tiles cover the matrix exactly, and no mask is needed."""
    return tl.load(pointers) if EVEN else tl.load(pointers, mask=inside, other=0.0)


@triton.jit
def store(pointers, tile, inside, EVEN: tl.constexpr):
    """Round and store, within the matrix."""
    rounded = tile.to(pointers.dtype.element_ty)
    if EVEN:
        tl.store(pointers, rounded)
    else:
        tl.store(pointers, rounded, mask=inside)
