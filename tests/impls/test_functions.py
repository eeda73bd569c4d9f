"""`rms_norm` and `layer_norm` for a model, in Triton's interpreter: under autograd, torch.compile and checkpointing."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo import compiled_autograd
from torch.utils.checkpoint import checkpoint

from impls.inhouse.launch import KernelCall
from impls.inhouse.model import gradients, layer_norm, rms_norm
from tests.impls.model_cases import COLS, Tried, agree, near
from tests.impls.toy_models import OURS, SPOILED, TORCHS, Block, losses

NORMS = [("rms", True, False), ("rms", False, False)]
NORMS += [("layer", *each) for each in ((True, True), (True, False), (False, False))]


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize(("norm", "weight", "bias"), NORMS)
@pytest.mark.parametrize("shape", [(6, COLS), (2, 3, 2, COLS), (COLS,), (1, 3000)])
def test_fp32_is_what_torch_gives(norm, weight, bias, shape, zero_centred):
    if zero_centred and not weight:
        return
    agree(Tried(norm == "layer", shape=shape, weight=weight, bias=bias, zero_centred=zero_centred))


@pytest.mark.parametrize("shape", [(0, COLS), (2, 0, COLS)])
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_no_rows_give_zero_parameter_gradients(norm, shape):
    tried = Tried(norm == "layer", shape=shape)
    (y,), gradients, _ = tried.results(tried.ours)
    assert y.shape == gradients.pop("x").shape == shape
    assert all(torch.equal(each, torch.zeros(COLS)) for each in gradients.values())
    assert (
        torch.autograd.grad(tried.ours(**tried.leaves).sum(), tried.x)[0].shape == shape
    )  # dy is one number, expanded


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.sum(),  # dy is one number, expanded
        lambda y: (y.sum(0) * torch.arange(COLS)).sum(),  # one row, expanded
        lambda y: (y.transpose(0, 1).contiguous() * torch.arange(6)).sum(),  # transposed
        lambda y: y.new_zeros(6, 50).index_copy(1, torch.arange(COLS), y).square().sum(),  # part of longer rows
    ],
)
def test_whatever_strides_dy_has(norm, change):
    tried = Tried(norm == "layer", bias=False, shape=(6, COLS))
    ours, theirs = (
        torch.autograd.grad(change(function(**tried.leaves)), [*tried.leaves.values()])
        for function in (tried.ours, tried.torchs)
    )
    for got, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max().item())


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0].T,  # columns apart
        lambda x: x.transpose(1, 2),
        lambda x: x.transpose(0, 2),
        lambda x: x.transpose(0, 1),  # whole rows in another order
        lambda x: x[:, :, 1:4],  # part of longer rows
        lambda x: x[:, ::2],
        lambda x: x[:1].expand(5, -1, -1),
        lambda x: x[:, :, :1],
    ],
)
def test_whatever_strides_x_has(norm, view):
    tried = Tried(norm == "layer", weight=False, bias=False, shape=(4, 6, 5))
    dy = torch.randn(view(tried.x).shape, generator=torch.Generator().manual_seed(1))
    results = []
    for function in (tried.ours, tried.torchs):
        y = function(view(tried.x))
        assert y.is_contiguous() or function != tried.ours
        results.append([y.detach(), *torch.autograd.grad(y, [tried.x], dy)])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-5, atol=1e-3)  # one column: a difference of equals, times 300


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_eps_is_the_one_that_torch_takes(dtype):
    x = (torch.randn(6, COLS) * 1e-3).to(dtype)
    torch.testing.assert_close(rms_norm(x, eps=None), F.rms_norm(x, (COLS,), eps=None))


@pytest.mark.parametrize("wanting", ["x", "weight", "bias"])
def test_a_gradient_to_one_leaf_alone(wanting):
    tried = Tried(True)
    leaves = tried.leaves | {name: each.detach() for name, each in tried.leaves.items() if name != wanting}
    tried.ours(**leaves).backward(tried.came_back[0])
    assert [name for name, each in leaves.items() if each.grad is not None] == [wanting]
    near([leaves[wanting].grad], [tried.results(tried.torchs)[1][wanting]])
    with torch.no_grad():
        assert not tried.ours(**tried.leaves).requires_grad


@pytest.mark.parametrize("name", ["plain", "parallel and residual", "gate behind"])
@pytest.mark.usefixtures("both_ways")
def test_of_frozen_parameters_dx_alone_is_computed(name, monkeypatch):
    seen = []
    for kernel in ("norm_backward", "backward_with_extras"):
        own = getattr(gradients, kernel)
        monkeypatch.setattr(gradients, kernel, lambda *a, own=own, **o: seen.append(own(*a, **o)) or seen[-1])
    tried = Tried(True, name)
    leaves = tried.leaves | {key: each.detach() for key, each in tried.leaves.items() if key[:4] in ("weig", "bias")}
    outputs = tried.ours(**leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.autograd.backward(outputs, tried.came_back[: len(outputs)])
    near([leaves["x"].grad], [tried.results(tried.torchs)[1]["x"]])
    assert all(each is None for each in (seen[0][1:3] + seen[0][5:7]))
    tried.results(tried.ours)
    assert all(each is not None for each in seen[1][1:3])


# ------------------------------------------------------------------------------------------------ under torch's tools


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_whole_and_for_any_number_of_rows():
    graphs = []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    block = Block(layer_norm, COLS)
    compiled = torch.compile(block, fullgraph=True, backend=backend, dynamic=True)
    for shape in ((5, COLS), (2, 3, COLS), (7, COLS), (4, 5, COLS)):
        if shape == (7, COLS):
            known = len(graphs)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(5)).requires_grad_()
        results = []
        for function in (compiled, block):
            y = function(x)
            results.append([y, *torch.autograd.grad(y.square().sum(), [x, block.weight, block.bias])])
        for got, wanted in zip(*results, strict=True):
            assert torch.equal(got, wanted)
    assert len(graphs) == known >= 2  # one a number of dimensions, whatever they are
    assert all(graph.count("normbwd.norm") == 1 for graph in graphs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own
@pytest.mark.usefixtures("fresh_compiler")
def test_exported_whole_and_by_compiled_autograd():
    block, x, graphs = Block(layer_norm, COLS), torch.randn(6, COLS, requires_grad=True), []
    exported = torch.export.export(block, (x,), dynamic_shapes=({0: torch.export.Dim("rows", max=4096)},))
    assert [str(node.target) for node in exported.graph.nodes].count("normbwd.norm.default") == 1
    assert torch.equal(exported.module()(x[:5]), block(x[:5]))
    leaves = x, block.weight, block.bias
    wanted = torch.autograd.grad(block(x).square().sum(), leaves)
    loss = block(x).square().sum()
    with compiled_autograd._enable(torch.compile(backend=lambda graph, _: graphs.append(graph.code) or graph)):
        loss.backward()
    assert all(torch.equal(leaf.grad, right) for leaf, right in zip(leaves, wanted, strict=True))
    assert graphs[0].count("normbwd.norm_backward") == 1


def test_what_a_checkpoint_drops_is_not_kept(eager):
    """The forward runs again in the backward: once without a checkpoint, twice with one."""
    x, block = torch.ones(2, COLS, requires_grad=True), Block(layer_norm, COLS)
    block(x).sum().backward()
    assert eager == ["norm_forward", "norm_backward"]
    checkpoint(block, x, use_reentrant=False).sum().backward()
    assert eager[2:] == ["norm_forward", "norm_forward", "norm_backward"]


@pytest.mark.slow
def test_a_transformer_learns_as_with_torchs_norms():
    of = {"dtype": torch.float32, "device": "cpu", "width": 64, "batch": 1, "length": 16, "steps": 8}
    theirs, ours, spoiled = (losses(norms, **of) for norms in (TORCHS, OURS, SPOILED))
    assert ours == pytest.approx(theirs, rel=2e-6)
    assert spoiled != pytest.approx(theirs, rel=2e-6)  # the planted fault


# ------------------------------------------------------------------------------------------------ what is refused


def refused():
    x, weight = torch.ones(3, COLS), torch.ones(COLS)
    yield "last dimension", rms_norm, (torch.tensor(1.0),), {}
    yield "last dimension", rms_norm, (torch.ones(3, 0),), {}
    yield "131072 columns", rms_norm, (torch.ones(1, 131073),), {}
    yield "x must be bf16, fp16 or fp32, not torch.float64", rms_norm, (x.double(), weight), {}
    yield "weight must be bf16, fp16 or fp32, not torch.int8", rms_norm, (x, weight.to(torch.int8)), {}
    yield "weight must be contiguous", rms_norm, (x, torch.ones(COLS + 1)), {}
    yield "weight must be contiguous", rms_norm, (x, torch.ones(2 * COLS)[::2]), {}
    yield "bias must be contiguous", layer_norm, (x, weight, torch.ones(COLS - 1)), {}
    yield "bias needs a weight", layer_norm, (x, None, weight), {}
    yield "of the same dtype", layer_norm, (x, weight, weight.bfloat16()), {}
    yield "eps must be a number", layer_norm, (x, weight), {"eps": None}
    yield "needs a weight", layer_norm, (x,), {"zero_centred": True}
    yield "needs a weight", rms_norm, (x,), {"zero_centred": True}
    yield "x's device", rms_norm, (x, weight.to("meta")), {}


@pytest.mark.parametrize(("message", "function", "arguments", "options"), [*refused()])
@pytest.mark.usefixtures("both_ways")
def test_the_forward_refuses_what_it_cannot_do(message, function, arguments, options):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **options)


@pytest.mark.usefixtures("both_ways")
def test_a_second_derivative_is_refused():
    x = torch.ones(3, COLS, requires_grad=True)
    (dx,) = torch.autograd.grad(rms_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="norm_backward"):
        dx.sum().backward()


@pytest.mark.parametrize(
    "call", ["rms_norm(x, w)", pytest.param("torch.compile(rms_norm, backend='eager')(x, w)", marks=pytest.mark.slow)]
)
def test_without_a_gpu_and_without_the_interpreter_is_refused_with_what_to_do(call):
    """In a child process, because this one has told Triton to interpret."""
    code = f"""
import torch
from impls.inhouse.model import rms_norm

x, w = torch.ones(4, 64), torch.ones(64)
try:
    {call}
except ValueError as error:
    print(error)
"""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"} | hidden
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "Triton finds no GPU here; set TRITON_INTERPRET=1" in done.stdout, done.stderr[-2000:]


def test_what_else_goes_wrong_at_a_launch_is_not_hidden():
    def fail(*_, **__):
        raise RuntimeError("out of resources")

    with pytest.raises(RuntimeError, match="out of resources"):
        KernelCall({(1,): fail}, (1,)).start()
