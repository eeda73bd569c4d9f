"""`rms_norm` and `layer_norm` with what a model has around them, against torch's own operators in float64.

On a CPU, in Triton's interpreter, by the operators and by the autograd function that takes their place.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from impls.inhouse.model import layer_norm, norms, rms_norm
from impls.inhouse.model.forward import norm_forward
from impls.inhouse.model.operands import NormOptions, Operands, Saved
from tests.impls.inhouse_cases import rho
from tests.impls.model_cases import COLS, HEADS, VARIANTS, P, Tried, agree


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        *((name, True) for name in (*VARIANTS, *HEADS)),
        *((name, False) for name in ("residual", "parallel", "gate first")),
    ],
)
def test_fp32_is_what_torch_gives(name, layer):
    assert agree(Tried(layer, name)) != "_EagerNormBackward"


@pytest.mark.parametrize(
    "name",
    ["residual", "dropout of two branches", "parallel and residual", "gate behind", "nothing is added", *[*HEADS][1:]],
)
def test_the_autograd_function_gives_the_same(name, eager):
    assert agree(Tried(name not in HEADS, name)) == "_EagerNormBackward"


@pytest.mark.parametrize("used", [[0], [1], [2]])
def test_outputs_that_nobody_uses(used):
    agree(Tried(False, "parallel and residual"), used)


def test_a_layer_norm_without_a_bias():
    for name in ("parallel", "gate behind"):
        agree(Tried(True, name, bias=False))


def test_16_bits_are_rounded_once():
    tried = Tried(False, "residual", torch.float16)
    _, wanted, _ = tried.results(tried.torchs, torch.float64)
    (y, total), found, _ = tried.results(tried.ours)
    assert torch.equal(total, tried.x + tried.leaves["residual"])
    exact = F.rms_norm(total.double(), (COLS,), tried.leaves["weight"].double(), 1e-5)
    assert rho(y, exact) <= 1.05
    assert all(each.dtype == torch.float16 for each in found.values())
    assert torch.equal(found["x"], found["residual"])
    for name in ("x", "weight"):
        assert (found[name].double() - wanted[name]).norm() <= 2**-10 * wanted[name].norm()


@pytest.mark.parametrize(
    "name",
    [
        "gate first",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("plain", "dropout of two branches", "parallel", "heads")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of opcheck's own, torch 2.15
def test_the_operators_are_what_they_say(name):
    """No aliases, no mutation, and a fake twin with the same shapes, dtypes and strides, whatever the shapes are."""
    tried = Tried(True, name, torch.bfloat16)
    options = NormOptions(True, 1e-5, False, P if "dropout" in name else 0.0, "first" not in name)
    leaves = {each: tensor.detach() for each, tensor in tried.leaves.items()} | {"x": tried.x.detach()}
    shape = leaves["x"].shape if name in HEADS else (4, COLS)
    activations = {each: leaves[each].reshape(shape) for each in ("residual", "x1", "z") if each in leaves}
    if name not in HEADS:
        activations["x"] = leaves["x"].reshape(shape)
    if "dropout" in name:
        activations |= {"mask": tried.masks[0].view(shape), "mask1": tried.masks[1].view(shape)}
    operands = Operands(**(leaves | activations))
    with_gradients = [
        each.requires_grad_() if each is not None and each.is_floating_point() else each for each in operands
    ]
    torch.library.opcheck(torch.ops.normbwd.norm.default, (*with_gradients, *options))
    with torch.no_grad():
        operands = Operands(*(None if each is None else each.detach() for each in operands))
        saved = Saved.of(operands, options, norm_forward(operands, options))
        dy, dy1, dres = (each.reshape(shape) for each in tried.came_back)
        given = dy, None if operands.weight1 is None else dy1, dres if operands.is_sum else None
        torch.library.opcheck(torch.ops.normbwd.norm_backward.default, (*given, *saved, *options, True, False))


@pytest.mark.parametrize(
    "name", ["residual", "dropout of two branches", "parallel and residual", "gate first", "heads"]
)
def test_compiled_whole(name, monkeypatch):
    torch.compiler.reset()
    tried, graphs = Tried(False, name), []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    monkeypatch.setattr(norms, "_drawn", lambda branch, p: None if branch is None else tried.masks[0])
    compiled = torch.compile(tried.ours, fullgraph=True, backend=backend)
    results = []
    for function in (compiled, tried.ours):
        leaves = {each: tensor.detach().requires_grad_() for each, tensor in tried.leaves.items()}
        outputs = function(**leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        results.append([*outputs, *torch.autograd.grad(outputs, [*leaves.values()], tried.came_back[: len(outputs)])])
    for got, wanted in zip(*results, strict=True):
        assert torch.equal(got, wanted)
    assert len(graphs) == 1
    assert graphs[0].count("normbwd.norm") == 1
    torch.compiler.reset()


# ------------------------------------------------------------------------------------------------ dropout


def test_as_many_are_dropped_as_asked_for():
    x = torch.ones(64, 256)
    assert rms_norm(x * float("nan"), dropout_p=0.25, return_residual=True)[1].isnan().all(), "as torch's"
    _, total = rms_norm(x, dropout_p=0.25, return_residual=True)
    kept = total != 0
    assert torch.equal(total[kept], torch.full_like(total[kept], 1 / 0.75))
    assert kept.double().mean() == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / x.numel()) ** 0.5)
    assert not torch.equal(kept, rms_norm(x, dropout_p=0.25, return_residual=True)[1] != 0)
    torch.manual_seed(3)
    one = rms_norm(x, dropout_p=0.25)
    torch.manual_seed(3)
    assert torch.equal(one, rms_norm(x, dropout_p=0.25))


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_recomputes_drops_the_same(reentrant):
    x, residual = (torch.randn(4, COLS, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in (1, 2))

    def block(x, residual):
        return rms_norm(x, residual=residual, dropout_p=0.5)

    results = []
    for kept in (True, False):
        torch.manual_seed(5)
        y = block(x, residual) if kept else checkpoint(block, x, residual, use_reentrant=reentrant)
        y.square().sum().backward()
        results.append([y.detach(), x.grad.clone(), residual.grad.clone()])
        x.grad = residual.grad = None
    assert all(torch.equal(got, wanted) for got, wanted in zip(*results, strict=True))
    assert (results[0][1] == 0).double().mean() == pytest.approx(0.5, abs=0.2)


# ------------------------------------------------------------------------------------------------ what is refused


def refused():
    x, weight = torch.ones(3, COLS), torch.ones(COLS)
    yield "residual must have x's shape", rms_norm, {"residual": torch.ones(4, COLS)}
    yield "x and residual must be bf16", rms_norm, {"residual": x.bfloat16()}
    yield "dropout_p must be at least 0 and below 1", rms_norm, {"dropout_p": 1.0}
    yield "dropout_p must be at least 0 and below 1", rms_norm, {"dropout_p": -0.5}
    yield "weight1 must be contiguous", rms_norm, {"weight": weight, "weight1": torch.ones(COLS + 1)}
    yield "weight must be a tensor, not", rms_norm, {"weight": (COLS,)}
    yield "weight1 needs a weight", rms_norm, {"weight1": weight}
    yield "and no gate", rms_norm, {"weight": weight, "weight1": weight, "z": x}
    yield "bias1 needs weight1", layer_norm, {"weight": weight, "bias": weight, "bias1": weight}
    yield "bias1 where there is a bias", layer_norm, {"weight": weight, "bias": weight, "weight1": weight}
    yield "x's device", rms_norm, {"residual": x.to("meta")}


@pytest.mark.parametrize(("message", "function", "options"), [*refused()])
@pytest.mark.usefixtures("both_ways")
def test_what_does_not_fit_is_refused(message, function, options):
    with pytest.raises(ValueError, match=message):
        function(torch.ones(3, COLS), **options)
