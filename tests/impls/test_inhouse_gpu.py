"""The in-house kernels on a GPU: right in every regime, and the same bits whatever else the device does.

Every result is compared with one that was computed alone and checked against float64. What a call leaves behind in
memory is never what the next is to write there: inputs alternate, and results are spoiled once they are compared.
"""

import ctypes
import dataclasses
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import cycle

import pytest
import torch
import torch.nn.functional as F

from harness.cases import NormCase, make_inputs
from impls.inhouse import bound, graph_memory, workspace
from impls.inhouse.backward import choose_for, norm_backward
from impls.inhouse.model import layer_norm, rms_norm
from impls.inhouse.model.in_torch import as_torchs_backward
from impls.inhouse.regimes.few_rows import FewRows
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.regimes.shared import Shared
from impls.inhouse.regimes.two_pass import TwoPass
from tests.impls.inhouse_cases import check_gradients, gradients, rho

# A hang is in the driver, where no signal is seen: end the process.
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]


def case(norm, rows, cols, **options):
    return NormCase(norm, rows, cols, bias=norm == "layer", **options)


REGIMES = {
    (4096, 256): OnePass,
    (4096, 2048): OnePass,
    (2048, 8192): OnePass,
    (4096, 4608): OnePass,  # between powers of two, where half tiles and packed programs take over
    (2304, 5632): OnePass,
    (4096, 7168): OnePass,
    (512, 16384): Shared,
    (1024, 16384): Shared,  # rows for a second tile of delay
    (96, 32768): Shared,
    (300, 16386): Shared,  # rows that begin at 4 bytes
    (64, 131072): Shared,
    (300, 16385): TwoPass,
    (29, 17389): FewRows,
    (64, 4096): FewRows,
    (257, 8192): FewRows,  # turns of columns that overlap
}
CASES = [case(norm, *shape) for shape in REGIMES for norm in ("rms", "layer")]
CASES += [case(norm, 1024, 16384, dtype="fp16", weight_dtype="fp16") for norm in ("rms", "layer")]
CASES += [case(norm, 1024, 16384, weight_dtype="fp32") for norm in ("rms", "layer")]
CASES += [case(norm, 1024, 16384, dtype="fp32", weight_dtype="fp32") for norm in ("rms", "layer")]
CASES += [case(norm, 64, 4096, dtype="fp16", weight_dtype="fp32") for norm in ("rms", "layer")]
CASES += [NormCase(norm, *shape, weight=False) for norm in ("rms", "layer") for shape in ((64, 4096), (1024, 16384))]
CASES += [NormCase("layer", 1024, 16384)]  # a mean, and one accumulator
FLAT, SHARED, WIDER, WIDEST = (
    case("layer", *shape) for shape in ((4096, 2048), (1024, 16384), (96, 32768), (64, 131072))
)


@pytest.fixture(autouse=True, scope="module")
def kernels_are_compiled():
    assert os.environ.get("TRITON_INTERPRET") != "1", "in Triton's interpreter there is nothing to see: use -m gpu"
    yield
    known.cache_clear()
    torch.cuda.empty_cache()


@cache
def known(case, seed):
    """Inputs, and their gradients as they are when nothing else runs, which are checked."""
    inputs = make_inputs(case, seed)
    torch.cuda.synchronize()
    found = gradients(inputs)
    check_gradients(inputs, found)
    return inputs, found


def two_of_each(*cases):
    return [known(case, seed) for seed in (1, 2) for case in cases]


def wrong_bytes(found, wanted):
    """How many bytes differ: a number on the device, which nobody waits for here."""
    pairs = [(got, right) for got, right in zip(found, wanted, strict=True) if right is not None]
    return sum((got.view(torch.uint8) != right.view(torch.uint8)).sum() for got, right in pairs)


class Calls:
    """Calls one after another on a stream of their own, or a given one, compared there."""

    def __init__(self, runs, stream=None):
        self.runs = cycle(runs)
        self.stream = stream or torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            self.wrong = torch.zeros((), dtype=torch.int64, device="cuda")

    def next(self):
        inputs, wanted = next(self.runs)
        with torch.cuda.stream(self.stream):
            found = self.call(inputs)
            self.wrong += wrong_bytes(found, wanted)
            for gradient in found:
                if gradient is not None:
                    gradient.fill_(float("nan"))

    def call(self, inputs):
        return gradients(inputs)

    def all_right(self):
        self.stream.synchronize()
        return self.wrong.item() == 0


class Replays(Calls):
    """The same by replays of a CUDA graph, into which new inputs are copied every time."""

    def __init__(self, runs, stream=None):
        super().__init__(runs, stream)
        inputs, _ = runs[0]
        self.tensors = ("x", "dy", "weight", "mean", "rstd")
        kept = {name: getattr(inputs, name) for name in self.tensors}
        self.inputs = dataclasses.replace(inputs, **{k: v if v is None else v.clone() for k, v in kept.items()})
        gradients(self.inputs)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.found = gradients(self.inputs)

    def call(self, inputs):
        for name in self.tensors:
            if (given := getattr(inputs, name)) is not None:
                getattr(self.inputs, name).copy_(given)
        self.graph.replay()
        return self.found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_right_in_every_regime(case):
    inputs, _ = known(case, 1)
    launch = choose_for(inputs.dy, inputs.x, inputs.weight, case.bias, layer=case.norm == "layer")
    assert type(launch) is REGIMES[case.rows, case.cols]
    assert getattr(launch, "fused", False) == (type(launch) in (OnePass, Shared))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_the_same_bits_over_50_runs(case):
    calls = Calls(two_of_each(case), torch.cuda.current_stream())
    for _ in range(2 * 50):
        calls.next()
    assert calls.all_right()


@pytest.mark.parametrize("pair", [(SHARED, WIDER), (FLAT, SHARED), (WIDEST, FLAT)], ids=lambda pair: pair[0].key)
def test_two_streams_at_once(pair):
    both = [Calls(two_of_each(*pair)), Calls(two_of_each(*pair[::-1]))]
    for _ in range(50):
        for calls in both:
            calls.next()
    assert all(calls.all_right() for calls in both)


def test_a_graph_may_hold_several_launches():
    """One memory pool for all: what the first gave back may be what the next waits in."""
    runs = [known(each, 1) for each in (SHARED, FLAT, WIDER, SHARED)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [gradients(inputs) for inputs, _ in runs]
    for _ in range(10):
        for gradient in (each for each in sum(found, ()) if each is not None):
            gradient.fill_(float("nan"))
        graph.replay()
        assert sum(wrong_bytes(got, wanted) for got, (_, wanted) in zip(found, runs, strict=True)).item() == 0


def nodes_of(graph):
    """How many nodes CUDA has in a captured graph that was kept."""
    number = ctypes.c_size_t()
    cuda = graph_memory.driver()
    assert cuda.cuGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(number)) == 0
    return number.value


@pytest.mark.parametrize("case", [FLAT, SHARED], ids=lambda case: case.key)
def test_a_captured_call_is_one_node(case):
    inputs, _ = known(case, 1)
    graph, spoiled = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        found = gradients(inputs)
    with torch.cuda.graph(spoiled):  # planted: what the graph would have to clear itself
        gradients(inputs)
        torch.zeros(100, device="cuda")
    assert (nodes_of(graph), nodes_of(spoiled)) == (1, 2)
    del found


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize("norm", [rms_norm, layer_norm])
def test_under_torchs_own_graphs(norm):
    """Which refuse memory that a call leaves in their pool."""
    torch.compiler.reset()
    compiled = torch.compile(lambda x, weight: norm(2 * x, weight) * 3, mode="reduce-overhead", fullgraph=True)
    generator = torch.Generator("cuda").manual_seed(5)
    x, dy = (torch.randn(96, 2048, device="cuda", generator=generator) for _ in range(2))
    weight = torch.linspace(0.5, 1.5, 2048, device="cuda")
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    wanted = torch.autograd.grad(norm(2 * x, weight) * 3, leaves, dy)
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        found = torch.autograd.grad(compiled(*leaves), leaves, dy)
        for got, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-5 * right.abs().max().item())


def test_graphs_replay_beside_eager_calls():
    all_calls = [Replays(two_of_each(SHARED)), Replays(two_of_each(SHARED)), Replays(two_of_each(FLAT))]
    all_calls += [Calls(two_of_each(SHARED, FLAT)), Calls(two_of_each(WIDER), torch.cuda.current_stream())]
    for _ in range(30):
        for calls in all_calls:
            calls.next()
    assert all(calls.all_right() for calls in all_calls)


@pytest.mark.parametrize("streams", [(0, 1, 2, 3), (0, 0)])
def test_threads(streams, monkeypatch):
    made = [torch.cuda.Stream() for _ in range(4)]
    runs = two_of_each(FLAT, SHARED, WIDEST)
    bound.forget()
    monkeypatch.setattr(workspace, "_by_stream", {})  # so that they meet where it is made, and where it grows
    together = threading.Barrier(len(streams))

    def work(stream):
        calls = Calls(runs, made[stream])
        together.wait()
        for _ in range(30):
            calls.next()
        return calls.all_right()

    with ThreadPoolExecutor(len(streams)) as pool:
        assert all(pool.map(work, streams))


def test_words_of_other_launches_are_not_taken(monkeypatch):
    calls = Calls(two_of_each(WIDEST, SHARED, WIDEST, FLAT, WIDER))
    bound.forget()
    monkeypatch.setattr(workspace, "_by_stream", {})
    for _ in range(50):
        calls.next()
    assert calls.all_right()
    (shared_by_all,) = workspace._by_stream.values()
    assert shared_by_all.count_nonzero() > 1000


def test_a_wrong_byte_would_be_seen():
    inputs, wanted = known(SHARED, 1)
    found = [gradient.clone() for gradient in wanted]
    assert wrong_bytes(found, wanted).item() == 0
    found[1].view(torch.uint8)[5] ^= 1
    assert wrong_bytes(found, wanted).item() == 1
    calls = Calls([(inputs, found)])
    calls.next()
    assert not calls.all_right()


# ------------------------------------------------------------------------------------------------ in a model


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_an_eager_norm_has_no_operator(norm):
    """And a second call of it starts what was kept."""
    x = torch.randn(64, 2048, device="cuda", requires_grad=True)
    for _ in range(2):
        y = {"rms": rms_norm, "layer": layer_norm}[norm](x)
        assert type(y.grad_fn).__name__ == "_EagerNormBackward"
        y.backward(torch.ones_like(y))
    kept = {key[0][2] for key in bound._kept if (64, 2048) in [traits[3] for traits in key[1:] if traits]}
    assert kept == {"forward", "backward"}


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("shape", [(4096, 2048), (8, 64, 16384), (300, 16385)])
def test_functions_give_the_kernels_own_gradients(norm, shape):
    generator = torch.Generator("cuda").manual_seed(3)

    def normal(*of):
        return torch.randn(of, dtype=torch.bfloat16, device="cuda", generator=generator)

    leaves = [normal(*shape).requires_grad_(), (normal(shape[-1]) / 8 + 1).detach().requires_grad_()]
    leaves += [normal(shape[-1]).requires_grad_()] if norm == "layer" else []
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    dy = normal(*shape)
    if norm == "rms":
        y, exact = rms_norm(*leaves), torch.nn.functional.rms_norm(wide[0], shape[-1:], wide[1], 1e-6)
    else:
        y, exact = layer_norm(*leaves), torch.nn.functional.layer_norm(wide[0], shape[-1:], *wide[1:])
    found = [y, *torch.autograd.grad(y, leaves, dy)]
    wanted = [exact, *torch.autograd.grad(exact, wide, dy.double())]
    for got, right in zip(found, wanted, strict=True):
        assert rho(got.detach(), right.detach()) <= 1.05


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_torchs_own_norms_can_have_the_backward(norm):
    x, dy = (torch.randn(8, 64, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.ones(2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    x.requires_grad_()
    if norm == "rms":
        y = F.rms_norm(x, (2048,), weight, 1e-6)
        mean, rstd = None, torch.ops.aten._fused_rms_norm(x, [2048], weight, 1e-6)[1].view(-1)
    else:
        y = F.layer_norm(x, (2048,), weight, None, 1e-5)
        mean, rstd = (each.view(-1) for each in torch.native_layer_norm(x, [2048], weight, None, 1e-5)[1:])
    wanted = norm_backward(dy, x.detach(), weight.detach(), mean, rstd)
    with as_torchs_backward():
        found = torch.autograd.grad(y, (x, weight), dy)
    assert all(torch.equal(got, right) for got, right in zip(found, wanted, strict=False))
