from dataclasses import replace

import pytest
import torch

from harness.cases import NormCase, make_inputs, row_chunks, statistics
from harness.cases.traffic import moved_bytes

CPU_LAYER = NormCase("layer", 5, 7, dtype="fp32", weight_dtype="fp32", bias=True, device="cpu")


@pytest.mark.parametrize(
    ("case", "key"),
    [
        (NormCase("rms", 8192, 4096), "rms-8192x4096-bf16"),
        (NormCase("layer", 2, 3, bias=True), "layer-2x3-bf16"),
        (NormCase("layer", 2, 3), "layer-2x3-bf16-nobias"),
        (NormCase("layer", 2, 3, weight=False), "layer-2x3-bf16-noweight"),
        (NormCase("rms", 2, 3, "fp16", "fp32", zero_centred=True, eps=1e-6), "rms-2x3-fp16-wfp32-zerocentred-eps1e-06"),
    ],
)
def test_key(case, key):
    assert case.key == key


@pytest.mark.parametrize(
    "fields",
    [
        {"rows": -1},
        {"cols": 0},
        {"norm": "rms", "bias": True},
        {"norm": "layer", "bias": True, "weight": False},
        {"weight": False, "zero_centred": True},
    ],
)
def test_what_is_no_norm_raises(fields):
    with pytest.raises(ValueError, match=r"needs|only"):
        NormCase(**{"norm": "layer", "rows": 2, "cols": 2} | fields)


@pytest.mark.parametrize(
    ("case", "moved"),
    [
        # x, dy and dx of 10 x 100 in bf16; rstd; weight and dweight
        (NormCase("rms", 10, 100), 3 * 2000 + 40 + 2 * 200),
        # mean and rstd; weight, dweight and dbias (bias is not read)
        (NormCase("layer", 10, 100, bias=True), 3 * 2000 + 80 + 3 * 200),
        (NormCase("layer", 10, 100), 3 * 2000 + 80 + 2 * 200),
        (NormCase("rms", 10, 100, weight=False), 3 * 2000 + 40),
        (NormCase("rms", 10, 100, weight_dtype="fp32"), 3 * 2000 + 40 + 2 * 400),
        (NormCase("rms", 10, 100, dtype="fp32", weight_dtype="bf16"), 3 * 4000 + 40 + 2 * 200),
        (NormCase("rms", 0, 100), 2 * 200),
    ],
)
def test_moved_bytes(case, moved):
    assert moved_bytes(case) == moved


def tensors(inputs):
    named = {name: getattr(inputs, name) for name in ("x", "weight", "bias", "dy", "mean", "rstd")}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def test_inputs_depend_on_case_and_seed_alone():
    first = tensors(make_inputs(CPU_LAYER, seed=3))
    torch.manual_seed(99)
    make_inputs(replace(CPU_LAYER, rows=9), seed=3)
    again = tensors(make_inputs(CPU_LAYER, seed=3))
    assert first.keys() == again.keys() == {"x", "weight", "bias", "dy", "mean", "rstd"}
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_inputs_have_the_shapes_and_dtypes_of_the_case():
    case = NormCase("layer", 6, 5, dtype="bf16", weight_dtype="fp32", bias=True, device="cpu")
    inputs = make_inputs(case, seed=0)
    assert inputs.x.dtype == inputs.dy.dtype == torch.bfloat16
    assert inputs.x.shape == inputs.dy.shape == (6, 5)
    assert inputs.x.is_contiguous()
    assert inputs.dy.is_contiguous()
    assert inputs.weight.dtype == inputs.bias.dtype == torch.float32
    assert inputs.weight.shape == inputs.bias.shape == (5,)
    assert inputs.mean.dtype == inputs.rstd.dtype == torch.float32
    assert inputs.mean.shape == inputs.rstd.shape == (6,)
    assert (inputs.case, inputs.eps) == (case, case.eps)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_statistics_are_the_formula_in_fp64(norm):
    case = NormCase(norm, 2, 3, eps=0.5, device="cpu")
    x = [[1.0, 2.0, 6.0], [-1.0, 0.0, 4.0]]
    mean, rstd = statistics(torch.tensor(x, dtype=torch.bfloat16), case)
    centres = [sum(row) / 3 if norm == "layer" else 0.0 for row in x]
    assert (mean is None) == (norm == "rms")
    if mean is not None:
        assert mean.tolist() == pytest.approx(centres, rel=1e-15)
    expected = [(sum((v - m) ** 2 for v in row) / 3 + 0.5) ** -0.5 for row, m in zip(x, centres, strict=True)]
    assert rstd.dtype == torch.float64
    assert rstd.tolist() == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_inputs_carry_the_statistics_that_torch_saves_of_the_stored_x(norm):
    case = replace(
        CPU_LAYER, norm=norm, dtype="bf16", bias=norm == "layer", inputs="mean-1000" if norm == "layer" else "normal"
    )
    inputs = make_inputs(case, seed=0)
    mean, rstd = statistics(inputs.x, case)
    torch.testing.assert_close(inputs.rstd, rstd.float(), rtol=2e-6, atol=0)
    if mean is not None:
        torch.testing.assert_close(inputs.mean, mean.float(), rtol=2e-6, atol=0)


@pytest.mark.parametrize(("rows", "cols", "elements"), [(10, 4, 12), (10, 4, 40), (10, 4, 1), (1, 100, 7), (0, 3, 8)])
def test_row_chunks_cover_every_row_once(rows, cols, elements):
    chunks = row_chunks(NormCase("rms", rows, cols), elements)
    assert [row for chunk in chunks for row in range(rows)[chunk]] == list(range(rows))
    assert all((chunk.stop - chunk.start) * cols <= max(elements, cols) for chunk in chunks)
