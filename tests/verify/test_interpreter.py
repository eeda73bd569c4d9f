"""A Triton kernel that runs in the CPU interpreter is verified and never timed, whoever wrote it."""

import pytest
import torch

from harness.cases import Grads
from harness.verify.interpreter import NEVER_TIMED, watch_interpreter
from tests.mutants.maths import gradients, implementation
from tests.worker.test_trial import session

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="here Triton compiles")


@triton.jit
def copy_kernel(source, target, size, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < size
    tl.store(target + offsets, tl.load(source + offsets, inside), inside)


def copied(tensor):
    """A copy, made by a Triton kernel."""
    target = torch.empty_like(tensor)
    copy_kernel[(triton.cdiv(tensor.numel(), 256),)](tensor, target, tensor.numel(), block=256)
    return target


def in_backward(inputs):
    def backward():
        grads = gradients(inputs)
        return Grads(copied(grads.dx), grads.dweight, grads.dbias)

    return backward


def in_forward(inputs):
    copied(inputs.x)
    return lambda: gradients(inputs)


@pytest.mark.parametrize(("prepare", "untimed"), [(in_backward, NEVER_TIMED), (in_forward, None)])
def test_interpreted_kernels_are_not_timed(prepare, untimed):
    row = session(implementation("mine", prepare)).row("mine")
    assert (row.status, row.untimed, row.timing is None) == ("ok", untimed, untimed is not None)


def test_the_watch_ends():
    with watch_interpreter() as interpreted:
        copied(torch.zeros(300))
    copied(torch.zeros(300))
    assert len(interpreted) == 1


def test_nothing_is_watched_where_triton_compiles(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    with watch_interpreter() as interpreted:
        copied(torch.zeros(300))
    assert not interpreted
