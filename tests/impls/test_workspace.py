"""The memory by which programs wait for each other: one piece a stream, and one for every captured launch."""

from types import SimpleNamespace

import pytest
import torch

from impls.inhouse import graph_memory
from impls.inhouse import workspace as module
from impls.inhouse.workspace import FIXED_WORDS, arrival_words, workspace

CPU = torch.device("cpu")


class FakeCuda:
    """What workspace.py asks of torch.cuda: the current stream of a device, and whether it is captured."""

    def __init__(self):
        self.stream, self.number = 7, 1
        self.capturing = False

    def current_stream(self, device):
        return SimpleNamespace(cuda_stream=self.stream)

    def number_of(self, handle):
        return self.number

    def is_current_stream_capturing(self):
        return self.capturing


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    fake = FakeCuda()
    for name in ("current_stream", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(graph_memory, "number_of", fake.number_of)
    monkeypatch.setattr(module, "_by_stream", {})
    return fake


def use(words, device=CPU):
    """A launch that leaves its marks; returns where it did."""
    exchange = workspace(device, words)
    arrivals = arrival_words(device)
    assert (arrivals.dtype, arrivals.numel()) == (torch.int64, FIXED_WORDS)
    assert exchange.dtype == torch.int64
    assert exchange.numel() >= words
    return arrivals, exchange


def same(one, other):
    return all(a.data_ptr() == b.data_ptr() for a, b in zip(one, other, strict=True))


def test_a_stream_keeps_its_memory():
    first = use(10)
    assert not any(each.any() for each in first)
    first[0][1] = 5
    first[1][3] = 6
    for words in (10, 0, 4):
        again = use(words)
        assert same(first, again)
        assert (again[0][1], again[1][3]) == (5, 6)


def test_another_stream_of_the_same_handle_has_another(cuda):
    """The first may be destroyed with launches under way, and CUDA gives its handle again."""
    first = use(10)
    cuda.number = 2
    assert not same(first, use(10))


def test_a_handle_of_several_streams_is_refused(cuda):
    cuda.stream = 2
    with pytest.raises(ValueError, match="cudaStreamPerThread"):
        use(10)


def test_what_is_released_is_counted_and_made_anew():
    first = use(10)
    first[0][0] = 7
    kept = module.of_stream(CPU, 1000)
    assert module.release() == {"words": 8 * (FIXED_WORDS + 10), "partials": 1000}
    assert module.release() == {"words": 0, "partials": 0}
    again = use(10)
    assert not same(first, again)
    assert not again[0].any()
    assert kept[1].numel() == 1000


def test_a_captured_launch_has_its_own(cuda):
    eager = use(10)
    cuda.capturing = True
    kept = [use(10), use(10)]
    assert not same(*kept)
    assert not any(same(eager, each) for each in kept)
    assert not any(each.any() for piece in kept for each in piece)
    cuda.capturing = False
    assert same(eager, use(10))
