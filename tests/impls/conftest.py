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
