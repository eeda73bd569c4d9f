"""What the in-house kernels trust streams with, on a GPU: refused, safe, or found by NORMBWD_CHECKS=1.

python -m pytest -m gpu tests/impls/test_streams_gpu.py
"""

import ctypes
import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch.func import jvp

import normbwd
from harness.cases import make_inputs
from impls.inhouse import arrivals, graph_memory, workspace
from impls.inhouse.backward import norm_backward
from impls.inhouse.model import rms_norm
from tests.impls.inhouse_cases import check_gradients, gradients
from tests.impls.test_inhouse_gpu import CASES, FLAT, SHARED, case

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120, method="thread")]


def same(found, wanted):
    return all(one is other is None or torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def in_children(function, *arguments, processes=1, within=100, **environment):
    """The exit codes and outputs of processes that run a function of this file, killed where they take too long."""
    command = [sys.executable, "-m", __name__, function, *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    children = [subprocess.Popen(command, env=os.environ | environment, **options) for _ in range(processes)]
    late = threading.Timer(within, lambda: [child.kill() for child in children])
    late.start()
    try:
        return [(child.communicate()[0][-2000:], child.returncode) for child in children]
    finally:
        late.cancel()


def test_the_handle_of_a_stream_of_each_thread_is_refused():
    inputs = make_inputs(FLAT, seed=1)
    with torch.cuda.stream(torch.cuda.ExternalStream(2)), pytest.raises(ValueError, match="cudaStreamPerThread"):
        gradients(inputs)


def streams_of_one_handle(cuda, most=100):
    """Streams that are created and destroyed until a handle comes again, each as torch sees it while it lives."""
    seen = set()
    for _ in range(most):
        handle = ctypes.c_void_p()
        assert not cuda.cuStreamCreate(ctypes.byref(handle), 1)
        yield handle.value in seen, torch.cuda.ExternalStream(handle.value)
        seen.add(handle.value)
        assert not cuda.cuStreamDestroy_v2(handle)


def test_a_handle_that_comes_again_has_other_words():
    inputs = make_inputs(FLAT, seed=1)
    wanted = gradients(inputs)
    owners, came_again = [], 0
    for again, stream in streams_of_one_handle(graph_memory.driver()):
        with torch.cuda.stream(stream):
            owners.append(workspace.owner(inputs.x.device))
            found = [gradients(inputs) for _ in range(3)]
            stream.synchronize()
        assert all(same(each, wanted) for each in found)
        came_again += again
        if came_again > 3:
            break
    assert came_again
    assert len({*owners}) == len(owners)
    normbwd.release_memory()


@pytest.mark.parametrize("given", [FLAT, SHARED], ids=str)
def test_memory_that_is_released_comes_again(given):
    inputs = make_inputs(given, seed=1)
    wanted = gradients(inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = gradients(inputs)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    released = normbwd.release_memory()
    assert all(released.values())
    assert torch.cuda.memory_allocated() < before
    for each in replayed:
        if each is not None:
            each.zero_()
    for _ in range(3):
        graph.replay()
        assert same(gradients(inputs), wanted)
    torch.cuda.synchronize()
    assert same(replayed, wanted)


@pytest.mark.parametrize("given", CASES, ids=str)
def test_dx_alone_has_the_same_bits(given):
    inputs = make_inputs(given, seed=1)
    (wanted, *_), (dx, *of_parameters) = gradients(inputs), gradients(inputs, dx_alone=True)
    assert torch.equal(dx, wanted)
    assert of_parameters == [None, None]


def test_a_forward_derivative_is_torchs():
    x, weight = torch.randn(64, 4096, device="cuda"), torch.randn(4096, device="cuda")
    found = jvp(lambda x: rms_norm(x, weight), (x,), (x.cos(),))[1]
    x, weight = x.cpu(), weight.cpu()  # where torch composes its norm
    wanted = jvp(lambda x: F.rms_norm(x, (4096,), weight, 1e-6), (x,), (x.cos(),))[1]
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------ in other processes


STEPS = {
    "nothing": lambda inputs: None,
    "words": lambda inputs: workspace.arrival_words(inputs.x.device),
    "reserve": lambda inputs: graph_memory.prepare(inputs.x.device, 1 << 10),
    "forward": lambda inputs: rms_norm(inputs.x, inputs.weight),
    "backward": gradients,
    "torch's memory": lambda inputs: torch.empty(1 << 28, device="cuda"),
    "synchronize": lambda inputs: torch.cuda.synchronize(),
}


def beside_a_capture(step):
    """The first call of its kind in another thread, while this one captures: says what broke, if anything."""
    inputs, begun, results = make_inputs(case("layer", 3000, 1928), seed=1), threading.Event(), []
    x, graph = torch.ones(64, device="cuda"), torch.cuda.CUDAGraph()
    assert torch.equal(x + 1, x * 2)  # loads torch's kernels

    def call():
        begun.wait()
        try:
            results.append(STEPS[step](inputs))
        except Exception as error:
            print("broken in the call:", error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        with torch.cuda.graph(graph, capture_error_mode="global"):
            y = x + 1
            begun.set()
            thread.join()
        graph.replay()
        assert torch.equal(y, x + 1)
        if step == "backward":
            check_gradients(inputs, *results)
    except Exception as error:
        print("broken in the capture:", error)
    print("ended", flush=True)
    os._exit(0)  # a capture that was broken leaves torch's allocator in no state to end in order


@pytest.mark.parametrize("step", STEPS)
def test_a_first_call_does_not_break_another_threads_capture(step):
    """A synchronization does, which shows that all others would be seen; torch's own memory may."""
    ((out, code),) = in_children("beside_a_capture", step)
    print(out)
    assert (code, "ended" in out) == (0, True), out
    assert ("broken" in out) == (step == "synchronize") or step == "torch's memory", out


def many_calls():
    """Calls with a device that another process has a share of."""
    for given in (FLAT, SHARED):
        inputs = make_inputs(given, seed=1)
        wanted = gradients(inputs)
        check_gradients(inputs, wanted)
        for _ in range(300):
            assert same(gradients(inputs), wanted)
    print("right")


@pytest.mark.parametrize("checks", ["", "0", "1"])
def test_two_processes_in_time_slices(checks):
    for out, code in in_children("many_calls", processes=2, NORMBWD_CHECKS=checks):
        assert code == 0, out
        assert "right" in out


def one_graph_twice():
    """A graph that is instantiated twice, and launched on two streams at once."""
    inputs = make_inputs(FLAT, seed=1)
    gradients(inputs)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        for _ in range(20):
            gradients(inputs)
    cuda, executables = graph_memory.driver(), []
    for _ in range(2):
        executable = ctypes.c_void_p()
        raw = ctypes.c_void_p(graph.raw_cuda_graph())
        assert not cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), raw, ctypes.c_ulonglong(0))
        executables.append(executable)
    streams = [torch.cuda.Stream() for _ in executables]
    for _ in range(50):
        for executable, stream in zip(executables, streams, strict=True):
            cuda.cuGraphLaunch(executable, ctypes.c_void_p(stream.cuda_stream))
    torch.cuda.synchronize()


def test_a_graph_that_runs_beside_itself_is_found():
    ((out, code),) = in_children("one_graph_twice", NORMBWD_CHECKS="1")
    assert code != 0
    assert "two launches at once" in out


def lost_arrival():
    """A launch on words of which something was lost, as where memory is discarded behind torch's back."""
    inputs = make_inputs(FLAT, seed=1)
    gradients(inputs)
    workspace.arrival_words(inputs.x.device)[arrivals.ARRIVED.value] -= arrivals.WORTH.value
    gradients(inputs)
    torch.cuda.synchronize()


@pytest.mark.parametrize(("checks", "message"), [("", "unspecified launch failure"), ("1", "never arrived")])
def test_a_wait_that_cannot_end_ends(checks, message):
    ((out, code),) = in_children("lost_arrival", NORMBWD_CHECKS=checks)
    assert code != 0
    assert message in out


def test_many_rows_beyond_32_bits():
    """Rows times columns beyond 2^31, and columns that 4 does not divide, against float64 of some rows."""
    rows, cols = (1 << 23) + 5, 258
    if torch.cuda.mem_get_info()[0] < 32 << 30:
        pytest.skip("needs 32 GiB of free memory")
    x = torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
    dy, weight = torch.randn_like(x), torch.randn(cols, device="cuda", dtype=torch.bfloat16)
    rstd = torch.cat([(part.float().square().mean(1) + 1e-6).rsqrt() for part in x.split(1 << 20)])
    dx, dweight, _ = norm_backward(dy, x, weight, None, rstd)
    for some in (slice(0, 99), slice(rows // 2, rows // 2 + 99), slice(rows - 99, rows)):
        xhat = x[some].double() * rstd[some, None]
        g = dy[some].double() * weight
        wanted = rstd[some, None] * (g - xhat * (g * xhat).mean(1, keepdim=True))
        torch.testing.assert_close(dx[some].double(), wanted, rtol=2**-7, atol=2**-9)
    exact = torch.zeros(cols, device="cuda", dtype=torch.float64)
    for start in range(0, rows, 1 << 20):
        some = slice(start, start + (1 << 20))
        exact += (dy[some].double() * x[some].double() * rstd[some, None]).sum(0)
    torch.testing.assert_close(dweight.double(), exact, rtol=2**-7, atol=2**-9 * exact.abs().max().item())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
