"""Two numbers a word, as rows lie in memory."""

# Triton compiles this file: kernel arguments have no Python type.
# pyright: reportMissingParameterType=false

import triton
import triton.language as tl


@triton.jit
def halves(words, DTYPE: tl.constexpr):
    """The numbers of even and of odd columns, in fp32; two of fp32 come in a word of 64 bits."""
    if DTYPE == tl.float32:
        odd = (words >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        return words.to(tl.int32).to(tl.float32, bitcast=True), odd
    elif DTYPE == tl.bfloat16:
        return (words << 16).to(tl.float32, bitcast=True), (words & -65536).to(tl.float32, bitcast=True)
    else:
        even = words.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        return even, (words >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def together(even, odd, DTYPE: tl.constexpr):
    """Both rounded once, and put beside each other."""
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
