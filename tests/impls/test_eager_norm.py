"""The autograd function that takes the operators' place where nobody looks on: the same numbers, and when it does not.

On a CPU, in Triton's interpreter, behind tensors that say that they are on a GPU.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from impls.inhouse.model import layer_norm, norms, rms_norm

COLS = 24
SHAPE = (2, 3, COLS)
NORMS = [(rms_norm, 0), (rms_norm, 1), (layer_norm, 0), (layer_norm, 1), (layer_norm, 2)]  # and how many parameters


class Sees(TorchDispatchMode):
    """Writes down the operators that are called."""

    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operators.append(str(function))
        return function(*args, **(kwargs or {}))


def leaves_of(parameters, seed=0, shape=SHAPE):
    generator = torch.Generator().manual_seed(seed)
    shapes = [shape, (COLS,), (COLS,)][: 1 + parameters]
    return [torch.randn(each, generator=generator).requires_grad_() for each in shapes]


def results(function, leaves, dy, **options):
    y = function(*leaves, **options)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)], type(y.grad_fn).__name__


@pytest.mark.parametrize(("norm", "parameters"), NORMS)
def test_the_same_bits_as_the_operators(norm, parameters, monkeypatch, eager):
    leaves, (dy,) = leaves_of(parameters), leaves_of(0, seed=1)
    for options in ({}, {"zero_centred": True})[: 1 + (parameters > 0)]:
        found, node = results(norm, leaves, dy.detach(), **options)
        assert node == "_EagerNormBackward"
        with monkeypatch.context() as patch:
            patch.setattr(norms, "_is_plain", lambda *tensors: False)
            wanted, node = results(norm, leaves, dy.detach(), **options)
        assert node != "_EagerNormBackward"
        for got, right in zip(found, wanted, strict=True):
            assert got.shape == right.shape
            assert torch.equal(got, right)


def test_what_is_saved_may_be_kept_elsewhere(eager):
    """As in offloading to the host: the backward takes whatever comes back."""
    wanted, _ = results(layer_norm, leaves_of(2), torch.ones(SHAPE))
    leaves = leaves_of(2)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.clone(), lambda t: t.clone()):
        y = layer_norm(*leaves)
    assert len(packed) == 4
    found = torch.autograd.grad(y, leaves, torch.ones(SHAPE))
    assert all(torch.equal(got, right) for got, right in zip(found, wanted[1:], strict=True))


def test_a_changed_input_is_noticed(eager):
    leaves = leaves_of(1)
    y = rms_norm(*leaves)
    with torch.no_grad():
        leaves[1].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_who_looks_on_sees_the_operators(eager):
    leaves = leaves_of(1)
    with Sees() as seen:
        y = rms_norm(*leaves)
    assert "normbwd.norm.default" in seen.operators
    assert type(y.grad_fn).__name__ != "_EagerNormBackward"
    y = rms_norm(*leaves)
    assert type(y.grad_fn).__name__ == "_EagerNormBackward"
    with Sees() as seen:
        y.backward(torch.ones(SHAPE))
    assert "normbwd.norm_backward.default" in seen.operators


def takes(*tensors):
    return norms._is_plain(*tensors) and not norms.is_observed()


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.transpose(1, 2),
        lambda x: x[..., ::2],
        lambda x: x[0, 0],
        lambda x: x.as_subclass(type("Sub", (torch.Tensor,), {})),
    ],
)
def test_other_tensors_go_to_the_operators(change, eager):
    (x,) = leaves_of(0)
    assert not takes(change(x))
    assert takes(x)
    assert not takes(x, change(x).as_subclass(type("Sub", (torch.Tensor,), {})))
