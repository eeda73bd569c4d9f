"""Problems to choose a launch for, as tests ask for them: bf16 with a weight, and a bias where it is LayerNorm."""

from impls.inhouse.problem import Problem

WITH_ACCUMULATORS = {0: {"weight_dtype": None}, 1: {}, 2: {"bias": True}}  # an RMSNorm that has so many


def problem(cols, rows=8192, norm="rms", dtype="bf16", weight_dtype="bf16", bias=None, by_words=None, beside=()):
    bias = norm == "layer" and weight_dtype is not None if bias is None else bias
    by_words = cols % 2 == 0 if by_words is None else by_words
    return Problem(norm, rows, cols, dtype, weight_dtype, bias, by_words, beside)
