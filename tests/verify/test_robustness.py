import sys
from dataclasses import replace

import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.cases.guards import each_place_once
from harness.cases.input_kinds import INPUT_KINDS
from harness.verify import robustness
from harness.verify.robustness import Pristine, overlaps, poison, poisoned_heap
from tests.mutants.maths import gradients
from tests.wording import worded

LAYER = NormCase("layer", 16, 32, bias=True, device="cpu")
RMS = NormCase("rms", 16, 32, device="cpu")


@pytest.mark.parametrize("name", ["x", "weight", "bias", "dy", "mean", "rstd"])
@pytest.mark.parametrize("in_place", [False, True])
def test_one_changed_element_of_an_input_is_seen(name, in_place):
    inputs = make_inputs(LAYER, 1)
    pristine = Pristine.of(inputs)
    assert pristine.changed(inputs, in_place) == []
    getattr(inputs, name).view(-1)[-1] += 1
    assert pristine.changed(inputs, in_place) == ([] if in_place and name == "dy" else [name])


def test_restoring_keeps_addresses():
    inputs = make_inputs(LAYER, 1)
    pristine = Pristine.of(inputs)
    names = ["x", "dy", "weight", "bias", "mean", "rstd"]
    tensors = [getattr(inputs, name) for name in names]
    addresses = [tensor.data_ptr() for tensor in tensors]
    for tensor in tensors:
        tensor.zero_()
    assert pristine.changed(inputs, in_place=False) == names
    pristine.restore(inputs)
    assert pristine.changed(inputs, in_place=False) == []
    assert [tensor.data_ptr() for tensor in tensors] == addresses


def test_restoring_is_unseen_by_autograd():
    inputs = make_inputs(NormCase("rms", 4, 8, "fp32", "fp32", device="cpu"), 1)
    pristine = Pristine.of(inputs)
    x = inputs.x.requires_grad_()
    y = x * inputs.weight * x
    version = inputs.weight._version
    pristine.restore(inputs)
    assert inputs.weight._version == version
    torch.autograd.grad(y, x, inputs.dy, retain_graph=True)
    with torch.no_grad():
        inputs.weight.copy_(inputs.weight.clone())  # the same, in the open
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, x, inputs.dy)


class Recycler:
    """An allocator that hands out, of a size, what was given back last: what a GPU's caching allocator does."""

    def __init__(self):
        self.free = {}
        self.alive = []

    def empty(self, *shape, dtype=torch.float32, device=None):
        assert str(device) in ("None", "cpu")
        shape = tuple(shape)
        size = torch.Size(shape).numel() * dtype.itemsize
        storage = self.free.get(size, []).pop() if self.free.get(size) else torch.zeros(size, dtype=torch.uint8)
        self.alive.append((size, storage))
        return storage.view(dtype).view(shape)

    def empty_like(self, tensor):
        return self.empty(*tensor.shape, dtype=tensor.dtype)

    def give_back(self):
        for size, storage in self.alive:
            self.free.setdefault(size, []).append(storage)
        self.alive.clear()


@pytest.fixture
def recycler(monkeypatch):
    recycler = Recycler()
    monkeypatch.setattr(robustness.torch, "empty", recycler.empty)
    monkeypatch.setattr(robustness.torch, "empty_like", recycler.empty_like)
    return recycler


@pytest.mark.parametrize("case", [RMS, LAYER, NormCase("rms", 16, 32, "bf16", "fp32", device="cpu")])
def test_poisoned_memory_is_nan(case, recycler):
    inputs = make_inputs(case, 1)
    for _ in range(2):  # an earlier, right answer lies in this memory
        for tensor in (torch.empty_like(inputs.x), torch.empty(case.cols, dtype=inputs.weight.dtype)):
            tensor.fill_(7.0)
    recycler.give_back()
    poison(inputs)
    recycler.give_back()
    assert torch.empty_like(inputs.x).isnan().all()
    assert torch.empty(case.cols, dtype=inputs.weight.dtype).isnan().all()
    assert torch.empty(case.cols, dtype=torch.float32).isnan().all()  # fp32 scratch


@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_guards_are_compared_in_every_layout(kind):
    inputs = make_inputs(NormCase("layer", 16, 32, bias=True, device="cpu", inputs=kind), 1)
    pristine = Pristine.of(inputs)
    assert (pristine.changed(inputs, False), pristine.overrun(inputs)) == ([], [])
    x = inputs.x
    x.as_strided((1,), (1,), x.storage_offset() - 1).fill_(1.0)
    assert (pristine.changed(inputs, False), pristine.overrun(inputs)) == ([], ["x"])
    pristine.restore(inputs)
    each_place_once(inputs.dy)[:1] *= -2
    assert (pristine.changed(inputs, False), pristine.overrun(inputs)) == (["dy"], [])
    assert pristine.changed(inputs, in_place=True) == []


def test_gradients_in_memory_of_others():
    inputs = make_inputs(LAYER, 1)
    grads = gradients(inputs)
    assert overlaps(inputs, grads, in_place=False) is None
    assert worded(overlaps(inputs, replace(grads, dx=inputs.dy), False)) == "dx lies in the memory of the input dy"
    assert overlaps(inputs, replace(grads, dx=inputs.dy), True) is None
    assert worded(overlaps(inputs, replace(grads, dx=inputs.x), True)) == "dx lies in the memory of the input x"
    assert (
        worded(overlaps(inputs, replace(grads, dbias=grads.dweight), False))
        == "dweight and dbias lie in the same memory"
    )
    beside = torch.empty(64, dtype=torch.bfloat16)
    apart = replace(grads, dweight=beside[:32], dbias=beside[32:])
    assert overlaps(inputs, apart, False) is None


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone")
def test_malloc_hands_out_poison_while_poisoned():
    with poisoned_heap():
        inside = torch.empty(100_003)
    assert bool((inside.abs() > 1e30).all())
    assert bool((inside.half().isinf()).all())
