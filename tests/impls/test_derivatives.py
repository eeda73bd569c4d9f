"""Derivatives beside autograd's backward: the transforms of torch.func, and dual numbers, as torch's own norms have."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from impls.inhouse.model import layer_norm, rms_norm
from tests.impls.model_cases import VARIANTS, Tried

# torch scripts decompositions when the first dual number is made
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script")
COLS = 8


def ours_and_torchs(layer):
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(2, COLS, generator=generator)
    if layer:
        return lambda x: layer_norm(x, weight, bias), lambda x: F.layer_norm(x, (COLS,), weight, bias)
    return lambda x: rms_norm(x, weight), lambda x: F.rms_norm(x, (COLS,), weight, 1e-6)


def tangent(norm):
    def of(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(norm(forward_ad.make_dual(x, x.cos()))).tangent

    return of


def number(norm):
    return lambda x: norm(x).sin().sum()


WAYS = {
    "jvp": lambda norm: lambda x: jvp(norm, (x,), (x.cos(),))[1],
    "dual numbers": tangent,
    "jacfwd": jacfwd,
    "jacrev": jacrev,
    "grad": lambda norm: grad(number(norm)),
    "vmap of grad": lambda norm: vmap(grad(number(norm))),
    "hessian": lambda norm: hessian(number(norm)),
}


@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.usefixtures("both_ways")
def test_as_torchs(way, layer):
    x = torch.randn(3, COLS, generator=torch.Generator().manual_seed(2))
    found, wanted = (way(norm)(x) for norm in ours_and_torchs(layer))
    assert wanted.abs().max() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["jvp", "vmap of grad"])
def test_as_torchs_compiled(way):
    torch.compiler.reset()
    x = torch.randn(3, COLS, generator=torch.Generator().manual_seed(2))
    ours, torchs = ours_and_torchs(False)
    found = torch.compile(WAYS[way](ours), backend="aot_eager")(x)
    torch.testing.assert_close(found, WAYS[way](torchs)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_around_a_norm_has_them_too(name, layer):
    """Each output, and the tangent of each by all that it depends on."""
    tried = Tried(layer, name)
    leaves = {key: each.detach() for key, each in tried.leaves.items()}
    tangents = {key: each.cos() for key, each in leaves.items()}
    ours = tried.with_masks(lambda: jvp(lambda each: tried.ours(**each), (leaves,), (tangents,)))
    torchs = jvp(lambda each: tried.torchs(**each), (leaves,), (tangents,))
    torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("both_ways")
def test_batched_gradients_of_one_forward():
    x, dys = torch.randn(3, COLS, requires_grad=True), torch.randn(5, 3, COLS)
    found, wanted = (
        torch.autograd.grad(norm(x), x, dys, is_grads_batched=True)[0] for norm in ours_and_torchs(layer=True)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("both_ways")
def test_dual_numbers_do_not_pass_through_a_backward_alone():
    x = torch.ones(3, COLS, requires_grad=True)
    y = rms_norm(x)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="within the dual level"):
        y.backward(forward_ad.make_dual(torch.ones(3, COLS), torch.ones(3, COLS)))


@pytest.mark.usefixtures("both_ways")
def test_what_the_kernels_refuse_is_refused_here_too():
    with pytest.raises(ValueError, match="not torch"):
        jacfwd(rms_norm)(torch.ones(3, COLS, dtype=torch.float64))
