import pytest
import torch

from harness.timing.cpu import CpuDevice
from harness.timing.work import TensorWork

CACHE = 1 << 16


@pytest.fixture
def work():
    return TensorWork("cpu", CpuDevice(1 << 12), CACHE, multiples=4, gbps=None)


def test_a_copy_copies_its_bytes_and_no_more(work):
    work._to.zero_()
    work.copies(CACHE).run()
    assert torch.equal(work._to[:CACHE], work._from[:CACHE])
    assert not work._to[CACHE:].any()


def test_elementwise_kernel_writes_whole_blocks(work):
    work._to.zero_()
    work.elementwise(2 * CACHE + 100).run()
    written, source = work._to.view(torch.int32), work._from.view(torch.int32)
    assert torch.equal(written[: 2 * CACHE // 4], -source[: 2 * CACHE // 4])
    assert not written[2 * CACHE // 4 :].any()


def test_fresh_probe_reads_the_other_half(work, monkeypatch):
    read = []
    monkeypatch.setattr(work, "_read", lambda half: read.append((half.data_ptr() - work._from.data_ptr(), half.nbytes)))
    probe, fresh = work.probe(), work.fresh_probe()
    for _ in range(9):
        probe.run()
        fresh.run()
    assert set(read[::2]) == {(0, CACHE // 2)}
    halves = [place * 2 // CACHE for place, _ in read[1::2]]
    assert halves == [1, 2, 3, 4, 5, 6, 7, 1, 2]
