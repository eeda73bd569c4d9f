"""Problems to choose a launch for, as tests ask for them: bf16 with a weight, and a bias where it is LayerNorm."""

from impls.inhouse.problem import GpuLimits, Problem

H200 = GpuLimits(multiprocessors=132, shared_bytes=227 * 1024, shared_total=228 * 1024, ptx=True)


def problem(cols, rows=8192, norm="rms", dtype="bf16", weight_dtype="bf16", bias=None, in_pairs=None, extras=()):
    bias = norm == "layer" and weight_dtype is not None if bias is None else bias
    in_pairs = cols % 2 == 0 if in_pairs is None else in_pairs
    return Problem(norm, rows, cols, dtype, weight_dtype, bias, in_pairs, extras)
