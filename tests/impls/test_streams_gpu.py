"""What the in-house kernels trust streams with, on a GPU: refused, safe, or found by NORMBWD_CHECKS=1.

python -m pytest -m gpu tests/impls/test_streams_gpu.py
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

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
        outs = [child.communicate()[0] for child in children]
        return [(out[:2000] + out[-2000:], child.returncode) for out, child in zip(outs, children, strict=True)]
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
def test_dx_alone_is_right_and_the_same_each_time(given):
    inputs = make_inputs(given, seed=1)
    (dx, *of_parameters), (again, *_) = (gradients(inputs, dx_alone=True) for _ in range(2))
    assert of_parameters == [None, None]
    assert torch.equal(dx, again)
    check_gradients(inputs, (dx, *gradients(inputs)[1:]))


@pytest.mark.filterwarnings("ignore:`torch.jit.script")  # torch's own
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


def many_calls(folder):
    """Calls with a device that another process has a share of: both begin when each has put a file into a folder."""
    cases = [make_inputs(given, seed=1) for given in (FLAT, SHARED)]
    wanted = [gradients(inputs) for inputs in cases]
    for inputs, alone in zip(cases, wanted, strict=True):
        check_gradients(inputs, alone)
    Path(folder, str(os.getpid())).touch()
    while len(os.listdir(folder)) < 2:  # no limit: the parent has one
        time.sleep(0.01)
    for _ in range(50):
        for inputs, alone in zip(cases, wanted, strict=True):
            assert all(same(found, alone) for found in [gradients(inputs) for _ in range(20)])
    print("right")


def first_call():
    assert torch.ones(64, device="cuda").sum().item() == 64


@pytest.fixture
def under_mps(tmp_path):
    """The environment of clients of an MPS server that lasts as long as the test; skips where none can be had."""
    control = "nvidia-cuda-mps-control"
    if shutil.which(control) is None:
        pytest.skip(f"needs {control}, which comes with NVIDIA's driver")
    variables = {f"CUDA_MPS_{name}_DIRECTORY": str(tmp_path / name) for name in ("PIPE", "LOG")}
    for folder in variables.values():
        os.mkdir(folder)
    environment = os.environ | variables
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # which the clients would choose from what the server chose
    said = tmp_path / "said"  # no pipe, which the daemon would keep open

    def tell(command, *arguments):
        with said.open("w") as output:
            options = {"env": environment, "stdout": output, "stderr": subprocess.STDOUT, "timeout": 40}
            code = subprocess.run([control, *arguments], input=command, text=True, check=False, **options).returncode
        return code, said.read_text()

    code, out = tell("", "-d")
    try:
        if code:
            pytest.skip(f"MPS does not start: {out}")
        ((out, code),) = in_children("first_call", within=40, **variables)
        servers = tell("get_server_list\n")[1]
        if code or not "".join(servers.split()).isdecimal():
            pytest.skip(f"no process of torch alone runs under MPS here:\n{out}{servers}")
        yield variables
    finally:
        tell("quit -t 5\n")


@pytest.mark.timeout(300, method="thread")
@pytest.mark.parametrize("checks", ["", "0", "1"])
@pytest.mark.parametrize("shared_by", ["time_slices", "mps"])
def test_two_processes(shared_by, checks, tmp_path, request):
    """In turn, or with kernels of both at once."""
    environment = request.getfixturevalue("under_mps") if shared_by == "mps" else {}
    begun = tmp_path / "begun"
    begun.mkdir()
    for out, code in in_children("many_calls", str(begun), processes=2, NORMBWD_CHECKS=checks, **environment):
        assert (code, "right" in out) == (0, True), out


GIVEN = {"flat": FLAT, "shared": SHARED}
SAFE = ["one_stream", "two_streams", "children_in_turn", "instances_in_turn"]
UNSAFE = ["branches_at_once", "children_at_once", "instances_at_once"]


def captured(scenario, inputs):
    """A graph of launches, and the gradients that they write."""
    graph, other, found = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.Stream(), []
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream()
        if scenario == "two_streams":
            other.wait_stream(stream)
        for number in range(20):
            if scenario == "branches_at_once":  # each begins with the graph (1: CU_STREAM_SET_CAPTURE_DEPENDENCIES)
                none = None, ctypes.c_size_t(0), ctypes.c_uint(1)
                handle = ctypes.c_void_p(stream.cuda_stream)
                assert not graph_memory.driver().cuStreamUpdateCaptureDependencies(handle, *none)
            with torch.cuda.stream(other if scenario == "two_streams" and number % 2 else stream):
                found.append(gradients(inputs))
        if scenario == "two_streams":
            stream.wait_stream(other)
    return graph, found


def twice(graph, at_once):
    """A graph of which another is two nodes."""
    parent, nodes = ctypes.c_void_p(), (ctypes.c_void_p * 2)()
    assert not graph_memory.driver().cuGraphCreate(ctypes.byref(parent), ctypes.c_uint(0))
    for number in range(2):
        node = ctypes.byref(nodes, number * ctypes.sizeof(ctypes.c_void_p))
        behind = ctypes.c_size_t(0 if at_once else number)  # so many of the nodes
        assert not graph_memory.driver().cuGraphAddChildGraphNode(node, parent, nodes, behind, graph)
    return parent


def replays(scenario, given):
    """Say whether launches of a graph have the bits of a call alone, at each replay."""
    inputs, cuda, at_once = make_inputs(GIVEN[given], seed=1), graph_memory.driver(), scenario.endswith("at_once")
    wanted = gradients(inputs)
    check_gradients(inputs, wanted)
    graph, found = captured(scenario, inputs)
    raw = ctypes.c_void_p(graph.raw_cuda_graph())
    raw = twice(raw, at_once) if scenario.startswith("children") else raw
    executables = [ctypes.c_void_p() for _ in range(2 if scenario.startswith("instances") else 1)]
    for executable in executables:
        assert not cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), raw, ctypes.c_ulonglong(0))
    streams = [ctypes.c_void_p(torch.cuda.Stream().cuda_stream) for _ in range(2)]
    print("replaying", flush=True)
    for _ in range(20):
        for gradient in (each for all_of_one in found for each in all_of_one if each is not None):
            gradient.zero_()
        torch.cuda.synchronize()
        failed = [cuda.cuGraphLaunch(each, streams[at_once * number]) for number, each in enumerate(executables)]
        torch.cuda.synchronize()
        if any(failed) or not all(same(each, wanted) for each in found):
            sys.exit("wrong")
    print("right")


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("checks", ["", "1"])
@pytest.mark.parametrize("scenario", SAFE)
def test_launches_in_turn_or_on_words_of_their_own_are_right(scenario, checks, given):
    ((out, code),) = in_children("replays", scenario, given, NORMBWD_CHECKS=checks)
    assert (code, "right" in out) == (0, True), out


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("checks", ["", "1"])
@pytest.mark.parametrize("scenario", UNSAFE)
def test_launches_at_once_on_the_same_words_are_found(scenario, checks, given):
    """Without checks a replay ends all the same, by a trap or with gradients that may be wrong."""
    ((out, code),) = in_children("replays", scenario, given, NORMBWD_CHECKS=checks)
    assert "replaying" in out, out
    assert code != -signal.SIGKILL, out
    assert not checks or (code != 0 and "two launches at once" in out), out


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
