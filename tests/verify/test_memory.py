"""The device memory of a backward: what its tensors ask for, not the blocks that the allocator happens to reuse."""

from types import SimpleNamespace

import pytest
import torch

from harness.verify import verifier

ON_A_GPU = SimpleNamespace(case=SimpleNamespace(device="cuda"))


@pytest.mark.parametrize(("requested", "extra"), [((700, 900), 200), ((0, 0), 1 << 20)], ids=["native", "async"])
def test_a_larger_block_that_is_reused_is_no_memory_of_the_backward(monkeypatch, requested, extra):
    current, peak = requested
    stats = {"requested_bytes": {"all": {"current": current, "peak": peak}}}
    stats["allocated_bytes"] = {"all": {"current": 1 << 20, "peak": 2 << 20}}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda: stats)
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    assert verifier._with_peak(ON_A_GPU, lambda: "grads") == ("grads", extra)


@pytest.mark.gpu
def test_extra_memory_is_the_same_whatever_the_allocator_has_in_stock():
    def backward():
        return [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (3 << 20, 2 << 20)][:1]

    taken = []
    for stock in (2 << 20, (2 << 20) + 700_000):
        torch.cuda.empty_cache()
        kept = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (12 << 20, stock, 12 << 20)]
        del kept[1]
        taken.append(verifier._with_peak(ON_A_GPU, backward)[1])
    assert taken == [2 << 20] * 2
