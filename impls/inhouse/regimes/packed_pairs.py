"""Rows as packed pairs of numbers, of an `even` and an `odd` column, and what shared rows compute of each.

A row gives the same bits whoever works at it. The compiler fuses multiplications and additions as it likes, and not in
the same way everywhere. So here every product that meets an addition is fused by name.
"""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportAssignmentType=false, reportCallIssue=false

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..formula import add_four, add_two, factor, row_corrections


@gluon.jit
def multipliers(weight, column, inside, ZERO_CENTRED: gl.constexpr, WEIGHT_DTYPE: gl.constexpr):
    """What dy is multiplied with in the even and the odd columns; nothing without a weight."""
    weights = ()
    if weight is not None:
        even, odd = unpack(gl.load(weight + column, mask=inside, other=0), WEIGHT_DTYPE)
        weights = (factor(even, ZERO_CENTRED), factor(odd, ZERO_CENTRED))
    return weights


@gluon.jit
def present_partials(partial_dweight, partial_dbias, extra):
    """The partials that there are, in the order in which all gradients of parameters are kept here."""
    partials = ()
    if partial_dweight is not None:
        partials = partials + (partial_dweight,)
    if partial_dbias is not None:
        partials = partials + (partial_dbias,)
    if extra.partial_dweight1 is not None:
        partials = partials + (extra.partial_dweight1,)
    if extra.partial_dbias1 is not None:
        partials = partials + (extra.partial_dbias1,)
    return partials


@gluon.jit
def load_extra_pairs(tensor, row, stride, column, inside, rows, UNIT: gl.constexpr):
    """Words of one row of a tensor that may be there, whose stride is in units; an empty tuple where it is not."""
    words = ()
    if tensor is not None:
        words = words + (load_pairs(tensor, row, stride * UNIT, column, inside & (row >= 0), rows),)
    return words


@gluon.jit
def no_gradients(partials, H: gl.constexpr, ACROSS: gl.constexpr):
    """Zeros for each gradient of which there are partials, of the even and of the odd columns."""
    gradients = ()
    for _ in gl.static_range(len(partials)):
        gradients = gradients + (gl.full([H], 0, gl.float32, ACROSS), gl.full([H], 0, gl.float32, ACROSS))
    return gradients


@triton.jit
def weighted(even, odd, weights):
    """The product of dy and weight, where there is one."""
    if len(weights) > 0:
        even *= weights[0]
        odd *= weights[1]
    return even, odd


@triton.jit
def fused(pair, factors, terms):
    """The products of two pairs, added to a third."""
    return tl.fma(pair[0], factors[0], terms[0]), tl.fma(pair[1], factors[1], terms[1])


@triton.jit
def summands(
    words,  # of dy, x and dy1, the last in a tuple, which is empty where there is no second norm
    weights,  # of both norms
    row_mean,
    DTYPE: tl.constexpr,
    LAYER: tl.constexpr,
    CENTRED: tl.constexpr,
):
    """What the sums of one row add up: g (LayerNorm alone), and g * x; of two norms g has a term of each."""
    dy_pairs, x_pairs, dy1_pairs = words
    weights, weights1 = weights
    even, odd = unpack(dy_pairs, DTYPE)
    x_even, x_odd = unpack(x_pairs, DTYPE)
    if CENTRED:
        x_even -= row_mean
        x_odd -= row_mean
    if len(dy1_pairs) > 0:
        even, odd = weighted(even, odd, weights)
        even1, odd1 = unpack(dy1_pairs[0], DTYPE)
        if len(weights1) > 0:
            even = tl.fma(even1, weights1[0], even)
            odd = tl.fma(odd1, weights1[1], odd)
        else:
            even += even1
            odd += odd1
        of_g = even + odd
    elif len(weights) == 0:
        of_g = even + odd
    else:
        odd *= weights[1]
        of_g = tl.fma(even, weights[0], odd)
        even *= weights[0]
    if LAYER:
        return of_g, tl.fma(even, x_even, odd * x_odd)
    else:
        return (tl.fma(even, x_even, odd * x_odd),)


@triton.jit
def finish_row(
    gradients,
    dy_pairs,
    x_pairs,
    more_pairs,  # those of dy1, and of dres; each is an empty tuple where there is none
    weights,  # of both norms
    row_mean,
    row_rstd,
    sum_g,
    sum_g_x,
    scale,
    DTYPE: tl.constexpr,
    LAYER: tl.constexpr,
    CENTRED: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Add one row to the gradients of the even and the odd columns; return these, and the words of dx."""
    dy1_pairs, dres_pairs = more_pairs
    weights, weights1 = weights
    even, odd = unpack(dy_pairs, DTYPE)
    x_even, x_odd = unpack(x_pairs, DTYPE)
    if LAYER:
        x_even -= row_mean
        x_odd -= row_mean
    x = x_even, x_odd
    rstd = row_rstd, row_rstd
    scaled = even * row_rstd, odd * row_rstd
    if LAYER and not CENTRED:
        sum_g_x = tl.fma(-row_mean, sum_g, sum_g_x)
    of_xhat, of_one = row_corrections(sum_g, sum_g_x, row_rstd, scale)
    of_x = row_rstd * of_xhat
    dx = fused(x, (of_x, of_x), (of_one, of_one)) if LAYER else (x_even * of_x, x_odd * of_x)
    with_row = ()
    if len(weights) > 0:
        # dx from dy * rstd, which dweight needs too: without xhat that is an operation an element less.
        dx = fused(scaled, weights, dx)
        if len(gradients) > 0:
            with_row = fused(scaled, x, gradients)
    else:
        dx = fused((even, odd), rstd, dx)
    if BIAS:
        with_row = with_row + (gradients[2] + even, gradients[3] + odd)
    if len(dy1_pairs) > 0:
        even1, odd1 = unpack(dy1_pairs[0], DTYPE)
        if len(weights1) > 0:
            of_norm1: tl.constexpr = 4 if BIAS else 2
            scaled1 = even1 * row_rstd, odd1 * row_rstd
            dx = fused(scaled1, weights1, dx)
            if len(gradients) > 0:
                with_row = with_row + fused(scaled1, x, (gradients[of_norm1], gradients[of_norm1 + 1]))
            if BIAS:
                with_row = with_row + (gradients[of_norm1 + 2] + even1, gradients[of_norm1 + 3] + odd1)
        else:
            dx = fused((even1, odd1), rstd, dx)
    if len(dres_pairs) > 0:
        dres_even, dres_odd = unpack(dres_pairs[0], DTYPE)
        dx = (dx[0] + dres_even, dx[1] + dres_odd)
    return with_row, pack(dx[0], dx[1], DTYPE)


@gluon.jit
def store_partials(partials, gradients, chain, first, wanted, cols, C: gl.constexpr):
    """Store the partial gradients of one chain, from column `first` on."""
    WIDE: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])  # 16 bytes of fp32 a thread
    at = first + gl.arange(0, C, WIDE)
    for i in gl.static_range(len(partials)):
        wide = gl.convert_layout(gl.reshape(gl.join(gradients[2 * i], gradients[2 * i + 1]), [C]), WIDE)
        gl.store(partials[i] + chain * cols + at, wide, mask=(at < cols) & wanted)


@gluon.jit
def load_pairs(tensor, row, stride, column, inside, rows):
    """Words of one row; 0 past the last row."""
    return gl.load(tensor + row.to(gl.int64) * stride + column, mask=inside & (row < rows), other=0)


@triton.jit
def statistic(of_rows, row, rows):
    """The mean or rstd of one row; 0 where there is no such row, or no mean."""
    if of_rows is not None:
        return tl.load(of_rows + row, mask=(row >= 0) & (row < rows), other=0.0)
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
