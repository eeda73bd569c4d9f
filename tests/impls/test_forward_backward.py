"""Forward and backward in one call give the gradients that the backward alone gives."""

import pytest
import torch

from harness.cases import NormCase, UnsupportedError, make_inputs
from impls import torch_compiled, torch_eager, triton_inhouse

CASES = [NormCase(norm, 8, 64, "fp32", "fp32", bias=norm == "layer", device="cpu") for norm in ("rms", "layer")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.norm)
@pytest.mark.parametrize("adapter", [torch_eager, triton_inhouse], ids=lambda adapter: adapter.name)
def test_gradients_are_those_of_the_backward(adapter, case):
    inputs = make_inputs(case, 1)
    both = adapter.forward_backward(inputs)
    both()
    found, alone = both(), adapter.prepare(inputs)()
    for name in ("dx", "dweight", *(["dbias"] if case.bias else [])):
        torch.testing.assert_close(getattr(found, name), getattr(alone, name))


@pytest.mark.parametrize("adapter", [torch_eager, torch_compiled], ids=lambda adapter: adapter.name)
def test_variants_are_refused(adapter):
    inputs = make_inputs(NormCase("rms", 8, 64, "fp32", "fp32", device="cpu", features=("residual",)), 1)
    value = [next(iter(adapter.variants.values()))] if hasattr(adapter, "variants") else []
    with pytest.raises(UnsupportedError, match="of plain norms"):
        adapter.forward_backward(inputs, *value)
