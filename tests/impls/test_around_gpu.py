"""What a model has around a norm, on a GPU: right in every regime, the same bits again, and by the kept launch too."""

from itertools import product

import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.cases.variants import with_features
from impls.inhouse import bound
from impls.inhouse.model import rms_norm
from tests.impls.inhouse_cases import gradients_with_extras, ratios_with_extras

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]

SHAPES = [(4096, 256), (4096, 2048), (2048, 4096), (512, 8192), (1024, 16384), (300, 16385), (64, 4096), (128, 65536)]
FEATURES = [
    ("residual",),
    ("dropout", "residual"),
    ("parallel",),
    ("parallel", "residual"),
    ("dropout", "parallel-tied", "residual"),
    ("gated",),
    ("gated-norm-first",),
]
CASES = [
    with_features(NormCase(norm, *shape, bias=norm == "layer"), features)
    for features, shape, norm in product(FEATURES, SHAPES, ("rms", "layer"))
]
CASES += [with_features(NormCase(norm, 8192, 128, bias=norm == "layer"), ("qk",)) for norm in ("rms", "layer")]
CASES += [with_features(NormCase("rms", 1024, 16384, dtype="fp32", weight_dtype="fp32"), ("residual",))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_right_and_the_same_bits_by_the_kept_launch(case):
    bound.forget()
    inputs = make_inputs(case, seed=1)
    first = gradients_with_extras(inputs)
    kept = gradients_with_extras(inputs)
    torch.cuda.synchronize()
    for name, gradient in first.items():
        assert torch.equal(gradient, kept[name]), name
    ratios = ratios_with_extras(inputs, first)
    assert all(ratio <= (1.05 if case.dtype == "bf16" else 16) for ratio in ratios.values()), ratios


def test_one_gradient_for_y_and_the_residual():
    """As where both are added up: the same bits as by two tensors that are alike, and kept."""
    bound.forget()
    x, residual, dy = (torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    weight = torch.randn(4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    leaves = x.requires_grad_(), residual.requires_grad_(), weight
    found = []
    for dres in (dy, dy, dy.clone(), dy.clone()):
        outputs = rms_norm(x, weight, residual=residual, return_residual=True)
        found.append(torch.autograd.grad(outputs, leaves, (dy, dres)))
    for each in found[1:]:
        assert all(map(torch.equal, each, found[0]))
    assert {key[0][-1] for key in bound._kept if key[0][2] == "with extras"} == {None, (0, 1, 2, 3, 0)}
