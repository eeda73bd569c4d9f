"""What the tests of the in-house norms share."""

import pytest


@pytest.fixture
def eager(monkeypatch):
    """Tensors that say they are on a GPU, so that the autograd function takes them; nothing is kept.

    The list gets a line for each call of the forward, and of the backward.
    """
    import torch  # here, because Triton is to be imported after it was told to interpret

    from impls.inhouse import bound
    from impls.inhouse.model import gradients, norms

    calls = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(bound, "find", lambda *args: None)
    monkeypatch.setattr(bound, "keep", lambda *args: None)
    for module, name in ((norms, "norm_forward"), (gradients, "norm_backward")):
        kernel = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *a, name=name, kernel=kernel, **o: calls.append(name) or kernel(*a, **o)
        )
    return calls


@pytest.fixture(params=["operators", "function"])
def both_ways(request):
    """By torch's operators, and by the autograd function that takes their place."""
    if request.param == "function":
        request.getfixturevalue("eager")
    return request.param


@pytest.fixture(scope="session", autouse=True)
def fast_reductions():
    """The interpreter reduces tuples element by element; whole slices in the same order give the same bits sooner."""
    import numpy as np
    from triton.runtime.interpreter import ReduceOps

    def combine_slices(ops, tensors):
        slices = list(zip(*(np.moveaxis(each.handle.data, ops.axis, 0) for each in tensors), strict=True))
        made = [[ops.to_tensor(part, of.dtype) for part, of in zip(each, tensors, strict=True)] for each in slices]
        combined = made[0]
        for following in made[1:]:
            combined = ops.combine_fn.fn(*combined, *following)
        found = [each.handle.data.reshape(slices[0][0].shape) for each in combined]
        found = [np.expand_dims(each, ops.axis) for each in found] if ops.keep_dims else found
        return [ops.to_tensor(each, of.dtype) for each, of in zip(found, tensors, strict=True)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReduceOps, "generic_reduce", combine_slices)
        yield
