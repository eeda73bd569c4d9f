import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.cases.tensors import gradients_of
from harness.cases.variants import parse_variants, with_features
from harness.verify import reference
from harness.verify.reference import pieces
from tests.mutants.variants import by_autograd

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
LAYER, RMS, BARE = CASES[6], CASES[2], CASES[3]
COMBINED = (
    "residual",
    "dropout+parallel-tied",
    "dropout+parallel",
    "parallel+gated",
    "qk",
    "gated-norm-first+residual",
)
CASES += [
    with_features(case, features) for case in (LAYER, RMS, BARE) for features in parse_variants(",".join(COMBINED))
]


def whole(inputs):
    """The reference put together from its pieces."""
    parts = list(pieces(inputs))
    joined = {"activation": torch.cat, "per column": sum}
    return {
        tensor.name: joined[tensor.extent]([part.gradients[tensor.name].values for part in parts])
        for tensor in gradients_of(inputs.case)
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_the_reference_is_autograd_in_float64(case):
    inputs = make_inputs(case, 5)
    gradients = whole(inputs)
    assert set(by_autograd(inputs)) == {tensor.name for tensor in gradients_of(case)}
    for name, wanted in by_autograd(inputs).items():
        assert gradients[name].dtype == torch.float64
        torch.testing.assert_close(gradients[name], wanted, rtol=1e-12, atol=1e-12)


def test_pieces_of_rows_add_up_to_the_whole(monkeypatch):
    inputs = make_inputs(CASES[5], 5)
    at_once = whole(inputs)
    monkeypatch.setattr(reference, "row_chunks", lambda case: [slice(0, 3), slice(3, 4), slice(4, 7)])
    assert len(list(pieces(inputs))) == 3
    for name, value in whole(inputs).items():
        torch.testing.assert_close(value, at_once[name], rtol=1e-13, atol=1e-13)


def test_reference_takes_statistics_from_x():
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
