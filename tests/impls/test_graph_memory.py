"""Memory for launches that a graph captures: cleared before, one piece a graph and stream, and used again."""

import contextlib
import threading
from types import SimpleNamespace

import pytest
import torch

from harness.cases import make_inputs
from impls.inhouse import backward, graph_memory
from impls.inhouse.graph_memory import outside_of_pools, piece, prepare
from tests.impls.inhouse_cases import cpu_case, gradients

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


class FakeCuda:
    """Streams and captures, and the memory that was zeroed while nothing was captured."""

    def __init__(self):
        self.stream, self.capture, self.made, self.waited = 7, None, [], 0

    def zeros(self, size, *, dtype, device):
        self.made.append(size)
        return torch.zeros(size, dtype=dtype)

    def synchronize(self):
        self.waited += 1


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    stand_in = SimpleNamespace(
        zeros=fake.zeros,
        int64=torch.int64,
        cuda=SimpleNamespace(
            Stream=lambda device: fake,
            stream=contextlib.nullcontext,
            current_stream=lambda device: SimpleNamespace(cuda_stream=fake.stream),
        ),
    )
    monkeypatch.setattr(graph_memory, "torch", stand_in)
    monkeypatch.setattr(graph_memory, "driver", lambda: fake)
    monkeypatch.setattr(graph_memory, "beside_captures", lambda: lambda make: make)
    monkeypatch.setattr(graph_memory, "capture_of", lambda stream: fake.capture)
    for name, empty in (("_reserves", {}), ("_pieces", {}), ("when_short", [])):
        monkeypatch.setattr(graph_memory, name, empty)
    return fake


def captured(cuda, number, size=10, stream=7):
    """A piece that a launch of this capture waits in."""
    cuda.stream, cuda.capture = stream, number
    memory = piece(CUDA, size)
    assert memory.numel() >= size
    cuda.capture = None
    return memory


def test_a_graph_clears_memory_itself_only_where_nothing_was_prepared(cuda):
    asked = []
    graph_memory.when_short.append(lambda: asked.append(1))
    captured(cuda, 1)
    captured(cuda, 1)
    assert cuda.made == [10, 10]
    assert len(asked) == 2
    prepare(CUDA, 10)
    assert not captured(cuda, 1).any()
    assert (len(cuda.made), len(asked), cuda.waited) == (3, 2, 1)


def test_launches_of_one_graph_and_stream_share_a_piece(cuda):
    prepare(CUDA, 10)
    first = captured(cuda, 1)
    first[3] = 5
    assert captured(cuda, 1).data_ptr() == first.data_ptr()
    assert captured(cuda, 1, size=4).data_ptr() == first.data_ptr()
    larger = captured(cuda, 1, size=100)
    assert larger.data_ptr() != first.data_ptr()
    assert captured(cuda, 1, size=100).data_ptr() == larger.data_ptr()


def overlap(one, other):
    return one.data_ptr() < other.data_ptr() + other.nbytes and other.data_ptr() < one.data_ptr() + one.nbytes


def test_other_graphs_and_streams_have_their_own(cuda):
    """Two graphs may replay at once, and so may two streams of one."""
    prepare(CUDA, 10)
    pieces = [captured(cuda, 1), captured(cuda, 2), captured(cuda, 1, stream=8), captured(cuda, 2, size=99)]
    for number, each in enumerate(pieces):
        assert not any(overlap(each, other) for other in pieces[:number])
        assert each.data_ptr() % 128 == pieces[0].data_ptr() % 128


def test_a_reserve_that_is_used_up_is_made_anew(cuda):
    size = graph_memory.RESERVE_WORDS // 16
    prepare(CUDA, size)
    pieces = [captured(cuda, number, size) for number in range(16)]
    captured(cuda, 16, size)
    assert cuda.made[1:] == [size]  # cleared by the graph
    for _ in range(2):
        prepare(CUDA, size)
        assert not any(overlap(captured(cuda, 17, size), each) for each in pieces)
    assert len(cuda.made) == 3


def test_what_no_graph_has_is_released(cuda):
    prepare(CUDA, 10)
    first, second = captured(cuda, 1), captured(cuda, 2)
    whole = 8 * graph_memory.RESERVE_WORDS
    assert graph_memory.release() == {"graphs": whole - first.nbytes - second.nbytes}
    assert captured(cuda, 2).data_ptr() == second.data_ptr()
    assert not overlap(captured(cuda, 3), first)
    assert cuda.made[1:] == [10]  # cleared by the graph


def test_what_lasts_is_made_in_another_thread():
    """A thread's allocations may be directed to the pool of a graph."""
    threads = []
    outside_of_pools(lambda: threads.append(threading.get_ident()) or torch.zeros(1))
    assert threads != [threading.get_ident()]


# ------------------------------------------------------------------------------------------------ what CUDA says


class FakeDriver:
    """What is asked of NVIDIA's driver."""

    def __init__(self, *, refuses=()):
        self.refuses, self.mode = refuses, 0

    def cuStreamGetId(self, stream, number):
        number._obj.value = 10 + (stream.value or 0)
        return "number" in self.refuses

    def cuThreadExchangeStreamCaptureMode(self, mode):
        self.mode, mode._obj.value = mode._obj.value, self.mode
        return 0


def test_the_number_of_a_stream_is_cudas(monkeypatch):
    monkeypatch.setattr(graph_memory, "driver", FakeDriver)
    assert (graph_memory.number_of(0), graph_memory.number_of(7)) == (10, 17)
    monkeypatch.setattr(graph_memory, "driver", lambda: FakeDriver(refuses=("number",)))
    assert graph_memory.number_of(7) is None


def test_another_threads_capture_is_not_broken(monkeypatch):
    """What is unsafe beside a capture is allowed for as long as a first call takes, but to a thread that captures."""
    fake = FakeDriver()
    monkeypatch.setattr(graph_memory, "driver", lambda: fake)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    modes, output = [], backward.output
    monkeypatch.setattr(backward, "output", lambda *args: modes.append(fake.mode) or output(*args))
    gradients(make_inputs(cpu_case("rms", 3, 8), seed=1))
    assert {*modes} == {graph_memory.RELAXED}
    assert fake.mode == 0
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with graph_memory.beside_captures():
        assert fake.mode == 0
