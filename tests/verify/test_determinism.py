import math

import pytest
import torch

from harness.cases import Grads
from harness.verify import determinism
from harness.verify.determinism import cloned, differing, fingerprint, same_bits

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_values_have_the_same_bits(dtype):
    values = torch.tensor([1.0, -2.5, math.inf, math.nan, 0.0], dtype=dtype)
    assert same_bits(values, values.clone())


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_is_seen(dtype):
    values = torch.ones(1000, dtype=dtype)
    other = values.clone()
    other[-1] = torch.nextafter(other[-1], other[-1] * 2) if dtype != torch.float16 else 1.0009765625
    assert not same_bits(values, other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_is_not_minus_zero(dtype):
    assert not same_bits(torch.tensor([0.0], dtype=dtype), torch.tensor([-0.0], dtype=dtype))


def test_other_dtype_or_shape_differs():
    assert not same_bits(torch.ones(4), torch.ones(4, dtype=torch.float64))
    assert not same_bits(torch.ones(4), torch.ones(5))
    assert not same_bits(torch.ones(4), torch.ones(2, 2))


def test_differing_names_the_gradients():
    first = Grads(torch.ones(2, 3), torch.ones(3), torch.ones(3))
    assert differing(first, cloned(first)) == []
    assert differing(first, Grads(torch.ones(2, 3), torch.zeros(3), torch.zeros(3))) == ["dweight", "dbias"]
    assert differing(first, Grads(-torch.ones(2, 3), torch.ones(3), torch.ones(3))) == ["dx"]


def test_missing_gradient_differs():
    assert differing(Grads(torch.ones(2, 3), torch.ones(3)), Grads(torch.ones(2, 3), None)) == ["dweight"]


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
