import math

import pytest
import torch

from harness.cases import Grads
from harness.verify import determinism
from harness.verify.determinism import cloned, differing, fingerprint, same_bits


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_bits_are_compared(dtype):
    values = torch.tensor([1.0, -2.5, math.inf, math.nan, 0.0], dtype=dtype)
    assert same_bits(values, values.clone())
    other, minus_zero = values.clone(), values.clone()
    other[0] += torch.finfo(dtype).eps
    minus_zero[-1] = -0.0
    assert not same_bits(values, other)
    assert not same_bits(values, minus_zero)


def test_other_dtype_or_shape_differs():
    assert not same_bits(torch.ones(4), torch.ones(4, dtype=torch.float64))
    assert not same_bits(torch.ones(4), torch.ones(5))
    assert not same_bits(torch.ones(4), torch.ones(2, 2))


def test_differing_names_the_gradients():
    first = Grads(torch.ones(2, 3), torch.ones(3), torch.ones(3))
    assert differing(first, cloned(first)) == []
    assert differing(first, Grads(torch.ones(2, 3), torch.zeros(3), torch.zeros(3))) == ["dweight", "dbias"]
    assert differing(first, Grads(-torch.ones(2, 3), torch.ones(3), torch.ones(3))) == ["dx"]
    assert differing(first, Grads(torch.ones(2, 3), None, torch.ones(3))) == ["dweight"]


def test_clone_cannot_be_overwritten():
    grads = Grads(torch.ones(2, 3), torch.ones(3), None)
    copy = cloned(grads)
    grads.dx.zero_()
    grads.dweight.zero_()
    assert differing(copy, Grads(torch.ones(2, 3), torch.ones(3))) == []
    assert copy.dbias is None


def test_fingerprint_depends_on_bits_and_places(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    dx = torch.randn(7, 33, generator=generator).bfloat16()
    dweight = torch.randn(33, generator=generator)
    first = fingerprint(Grads(dx, dweight))
    assert first == fingerprint(cloned(Grads(dx, dweight)))
    assert first.count("-") == 1
    swapped = dx.clone()
    swapped[0, 0], swapped[0, 1] = dx[0, 1], dx[0, 0]
    negative = dweight.clone()
    negative[-1] *= -1
    others = [Grads(swapped, dweight), Grads(dx, negative), Grads(dx, dweight, dweight), Grads(dx, None)]
    assert len({first, *map(fingerprint, others)}) == 5
    monkeypatch.setattr(determinism, "CHUNK", 16)
    assert fingerprint(Grads(dx, dweight)) == first
