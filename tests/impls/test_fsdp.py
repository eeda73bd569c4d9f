"""Norms whose parameters are sharded: gathered for the forward, dropped, and gathered again for the backward."""

import pytest
import torch
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from impls.inhouse.model import layer_norm

COLS = 24


class Residual(nn.Module):
    """A layer, and a norm with a residual behind it."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.linspace(0.5, 1.5, COLS)), nn.Parameter(torch.zeros(COLS))
        self.linear = nn.Linear(COLS, COLS)

    def forward(self, x, residual):
        return layer_norm(self.linear(x), self.weight, self.bias, residual=residual, return_residual=True)


@pytest.fixture
def mesh(tmp_path):
    """A mesh of this process alone."""
    init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    destroy_process_group()


@pytest.mark.slow
def test_sharded_as_whole(mesh):
    torch.manual_seed(1)
    whole, sharded = Residual(), Residual()
    sharded.load_state_dict(whole.state_dict())
    fully_shard(sharded, mesh=mesh)
    x, residual = torch.randn(2, 2, COLS), torch.randn(2, 2, COLS)
    gradients = []
    for module in (whole, sharded):
        inputs = [each.clone().requires_grad_() for each in (x, residual)]
        y, total = module(*inputs)
        (y.square().sum() + total.sin().sum()).backward()
        of_parameters = [each.grad for each in module.parameters()]
        gathered = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in of_parameters]
        gradients.append([*(each.grad for each in inputs), *gathered])
    for got, wanted in zip(*gradients, strict=True):
        assert torch.equal(got, wanted)
