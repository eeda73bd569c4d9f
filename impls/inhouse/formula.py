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

A pointer that is None switches its feature off at compile time: no `mean` is RMSNorm, no `weight` is no weight, no
`partial_dbias` is no bias. `FUSED`: the programs wait for each other at the end (chains.py) and sum the partials
themselves; else finish.py's kernel does.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportAssignmentType=false

import triton
import triton.language as tl


@triton.jit
def factor(weight, ZERO_CENTRED: tl.constexpr):
    """The factor of xhat in the norm. Its value past the end of a row does not matter, because dy is 0 there."""
    multiplier = weight.to(tl.float32)
    if ZERO_CENTRED:
        multiplier += 1.0
    return multiplier


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
