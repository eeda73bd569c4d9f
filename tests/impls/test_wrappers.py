"""Norms of tensors that wrap others: distributed ones in two processes, and jagged ones, as torch's own norms."""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F

from impls.inhouse.model import layer_norm, rms_norm

COLS = 8
SHAPE = (3, 5, COLS)  # that two processes do not share evenly
SHARDED = [[0], [1], [2], [None]]  # the dimension of x, or None where all have all of it


def torchs(x, weight, bias, residual):
    total = x + residual
    if bias is None:
        return F.rms_norm(total, (COLS,), weight, 1e-5), total
    return F.layer_norm(total, (COLS,), weight, bias, 1e-5), total


def ours(x, weight, bias, residual):
    options = {"eps": 1e-5, "residual": residual, "return_residual": True}
    return rms_norm(x, weight, **options) if bias is None else layer_norm(x, weight, bias, **options)


def results(norm, x, weight, bias, residual, weigh):
    """Both outputs, and the gradients of all that there is."""
    outputs = norm(x, weight, bias, residual)
    leaves = [each for each in (x, weight, bias, residual) if each is not None]
    return [*outputs, *torch.autograd.grad([weigh(outputs)], leaves)]


def wrong_in_process(rank, store):
    """What is not as torch has it on whole tensors, in one of two processes."""
    from torch.distributed import init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    x, residual, weights, bias = torch.randn(SHAPE), torch.randn(SHAPE), torch.randn(COLS), torch.randn(COLS)
    wrong = []

    def weigh(outputs):
        return sum((output * output.sin()).sum() for output in outputs)

    for of_rows, with_bias in [(each[0], with_bias) for each in SHARDED for with_bias in (False, True)]:
        placement = Replicate() if of_rows is None else Shard(of_rows)
        whole = [each.clone().requires_grad_() for each in (x, weights, bias, residual)]
        spread = [
            distribute_tensor(each, mesh, [where]).requires_grad_()
            for each, where in ((x, placement), (weights, Replicate()), (bias, Replicate()), (residual, placement))
        ]
        if not with_bias:
            whole[2] = spread[2] = None
        wanted, found = results(torchs, *whole, weigh), results(ours, *spread, weigh)
        rows = placement if of_rows != 2 else Replicate()
        parameter = Partial() if of_rows in (0, 1) else Replicate()
        expected = [rows, rows, None, parameter, *([parameter] if with_bias else []), None]
        for number, (got, right, where) in enumerate(zip(found, wanted, expected, strict=True)):
            near = torch.allclose(got.full_tensor(), right, rtol=1e-4, atol=1e-4)
            if not near or got.shape != right.shape or (where is not None and got.placements != (where,)):
                wrong.append([str(placement), with_bias, number, str(got.placements), near])
    for given in ((spread[0], weights), (x, spread[1])):
        try:
            rms_norm(*given)
            wrong.append("a plain tensor beside a distributed one")
        except ValueError as error:
            if "all are DTensors or none" not in str(error):
                wrong.append(str(error))
    return wrong


@pytest.mark.slow
def test_distributed_tensors_as_whole_ones(tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(rank), f"{tmp_path}/store"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TRITON_INTERPRET": "1"},
        )
        for rank in range(2)
    ]
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err[-2000:]
        assert json.loads(out) == []


@pytest.fixture
def jagged():
    return torch.nested.nested_tensor([torch.randn(rows, COLS) for rows in (3, 0, 5)], layout=torch.jagged)


@pytest.mark.filterwarnings("ignore")  # torch's own, of its prototype
@pytest.mark.parametrize("bias", [None, torch.ones(COLS, requires_grad=True)])
def test_sequences_of_any_length(jagged, bias):
    given = jagged.requires_grad_(), torch.randn(COLS, requires_grad=True), bias
    residual = torch.nested.nested_tensor_from_jagged(torch.randn(8, COLS), jagged.offsets()).requires_grad_()

    def weigh(outputs):
        return sum((output * output.sin()).values().sum() for output in outputs)

    found, wanted = (results(norm, *given, residual, weigh) for norm in (ours, torchs))
    assert found[0].to_padded_tensor(0.0).shape == wanted[0].to_padded_tensor(0.0).shape
    for got, right in zip(found, wanted, strict=True):
        assert got.is_nested == right.is_nested
        pair = (got.values(), right.values()) if got.is_nested else (got, right)
        torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_that_are_refused(jagged):
    with pytest.raises(ValueError, match="must not be the jagged one"):
        rms_norm(jagged.transpose(1, 2))
    with pytest.raises(ValueError, match=r"layout=torch\.jagged"):
        rms_norm(torch.nested.nested_tensor([torch.ones(2, COLS)]))
    with pytest.raises(ValueError, match="0 of a nested tensor"):
        rms_norm(jagged, dropout_p=0.5)
    with pytest.raises(ValueError, match="must have x's shape"):
        rms_norm(jagged, residual=jagged.values())
    holes = torch.nested.nested_tensor_from_jagged(torch.ones(8, COLS), torch.tensor([0, 4, 8]), torch.tensor([3, 4]))
    with pytest.raises(ValueError, match="no holes"):
        rms_norm(holes)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(wrong_in_process(int(sys.argv[1]), sys.argv[2])))
