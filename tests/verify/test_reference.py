import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.verify import reference
from harness.verify.reference import pieces

CASES = [
    NormCase("rms", 7, 33, "fp32", "fp32", device="cpu"),
    NormCase("rms", 7, 33, "bf16", "fp32", device="cpu"),
    NormCase("rms", 7, 33, "bf16", "bf16", zero_centred=True, device="cpu"),
    NormCase("rms", 7, 33, weight=False, device="cpu"),
    NormCase("rms", 1, 1, "fp32", "fp32", eps=1e-2, device="cpu"),
    NormCase("layer", 7, 33, "fp32", "fp32", bias=True, device="cpu"),
    NormCase("layer", 7, 33, "fp16", "fp16", bias=True, device="cpu"),
    NormCase("layer", 7, 33, device="cpu"),
    NormCase("layer", 7, 33, weight=False, device="cpu"),
    NormCase("layer", 7, 33, "fp32", "fp32", bias=True, zero_centred=True, eps=1e-1, device="cpu"),
]


def by_autograd(inputs):
    """Gradients in float64 by torch's own forward and its autograd."""
    case = inputs.case
    x = inputs.x.double().requires_grad_()
    leaves = {"dx": x}
    weight = bias = None
    if inputs.weight is not None:
        weight = leaves["dweight"] = (inputs.weight.double() + float(case.zero_centred)).requires_grad_()
    if inputs.bias is not None:
        bias = leaves["dbias"] = inputs.bias.double().requires_grad_()
    if case.norm == "layer":
        y = torch.nn.functional.layer_norm(x, (case.cols,), weight, bias, case.eps)
    else:
        y = torch.nn.functional.rms_norm(x, (case.cols,), weight, case.eps)
    return dict(zip(leaves, torch.autograd.grad(y, leaves.values(), inputs.dy.double()), strict=True))


def whole(inputs):
    """The reference put together from its pieces."""
    parts = list(pieces(inputs))
    return {
        "dx": torch.cat([part.gradients["dx"].values for part in parts]),
        "dweight": sum(part.gradients["dweight"].values for part in parts),
        "dbias": sum(part.gradients["dbias"].values for part in parts),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_the_reference_is_autograd_in_float64(case):
    inputs = make_inputs(case, 5)
    found = whole(inputs)
    for name, wanted in by_autograd(inputs).items():
        assert found[name].dtype == torch.float64
        torch.testing.assert_close(found[name], wanted, rtol=1e-12, atol=1e-12)


def test_pieces_of_rows_add_up_to_the_whole(monkeypatch):
    inputs = make_inputs(CASES[5], 5)
    at_once = whole(inputs)
    monkeypatch.setattr(reference, "row_chunks", lambda case: [slice(0, 3), slice(3, 4), slice(4, 7)])
    assert len(list(pieces(inputs))) == 3
    for name, value in whole(inputs).items():
        torch.testing.assert_close(value, at_once[name], rtol=1e-13, atol=1e-13)


def test_the_reference_takes_its_statistics_from_x():
    inputs = make_inputs(CASES[5], 5)
    before = whole(inputs)
    inputs.mean.fill_(1e3)
    inputs.rstd.fill_(1e3)
    assert torch.equal(whole(inputs)["dx"], before["dx"])


def test_a_row_far_off_zero_loses_nothing():
    case = NormCase("layer", 2, 64, "fp32", "fp32", bias=True, device="cpu")
    inputs = make_inputs(case, 5)
    inputs.x.add_(1000.0)  # mean / sigma of 1000 ruins a variance formed in one pass in fp32
    for name, wanted in by_autograd(inputs).items():
        torch.testing.assert_close(whole(inputs)[name], wanted, rtol=1e-9, atol=1e-9)


def test_terms_bound_the_elements_that_they_make_up():
    part = next(pieces(make_inputs(CASES[6], 5)))
    for name in ("dx", "dweight", "dbias"):
        exact = part.gradients[name]
        assert (exact.terms >= exact.values.abs() * (1 - 1e-12)).all()
