"""torch's norms with the in-house backward: which calls get there, what they give, and that torch's own comes back."""

import pytest
import torch
import torch.nn.functional as F

from impls.inhouse.backward import norm_backward
from impls.inhouse.model import in_torch
from impls.inhouse.model.in_torch import as_torchs_backward

ROWS, COLS = 6, 40


@pytest.fixture
def calls(monkeypatch):
    """The gradients of each call of the in-house backward."""
    found = []

    def spied(*arguments, **options):
        found.append(norm_backward(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(in_torch, "norm_backward", spied)
    return found


@pytest.fixture
def taken_over():
    with as_torchs_backward("cpu") as handle:
        yield handle


def operands(shape=(2, 3, COLS), dtype=torch.float32, weight=True, bias=True):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).requires_grad_()
    vectors = [torch.randn(COLS).to(dtype).requires_grad_() if there else None for there in (weight, bias)]
    return x, *vectors


def gradients(x, *parameters, norm=F.layer_norm):
    y = norm(x, (COLS,), *parameters)
    torch.manual_seed(1)
    wanted = [each for each in (x, *parameters) if each is not None and each.requires_grad]
    return torch.autograd.grad(y, wanted, torch.randn(y.shape).to(y.dtype))


@pytest.mark.parametrize(("weight", "bias"), [(True, True), (True, False), (False, False)])
def test_a_layer_norm_gets_the_in_house_gradients(calls, weight, bias):
    given = operands(weight=weight, bias=bias)
    torchs = gradients(*given)
    assert not calls
    with as_torchs_backward("cpu"):
        ours = gradients(*given)
    (found,) = calls
    assert all(torch.equal(got, own) for got, own in zip(ours, [g for g in found if g is not None], strict=True))
    for got, exact in zip(ours, torchs, strict=True):
        torch.testing.assert_close(got, exact)


@pytest.mark.parametrize("frozen", [{1}, {2}, {1, 2}], ids=str)
def test_a_gradient_that_nobody_wants_is_not_given(calls, taken_over, frozen):
    given = operands()
    for each in frozen:
        given[each].requires_grad_(False)
    assert len(gradients(*given)) == 3 - len(frozen)
    ((_, *of_parameters),) = calls
    assert (of_parameters == [None, None]) == (frozen == {1, 2})
    x, *parameters = (each.detach() for each in given)
    statistics = torch.native_layer_norm(x, (COLS,), *parameters, 1e-5)[1:]
    wanted = [each not in frozen for each in range(3)]
    found = torch.ops.aten.native_layer_norm_backward(x, x, (COLS,), *statistics, *parameters, wanted)
    assert [each is not None for each in found] == wanted


def of_two_dimensions(parameters=2):
    x = torch.randn(4, 5, 8, requires_grad=True)
    weight_and_bias = torch.randn(parameters, 5, 8).unbind()
    return lambda: torch.autograd.grad(F.layer_norm(x, (5, 8), *weight_and_bias).square().sum(), x)


def of_a_frozen_x():
    x, weight, bias = operands()
    return lambda: torch.autograd.grad(F.layer_norm(x.detach(), (COLS,), weight, bias).square().sum(), (weight, bias))


def in_float64():
    given = operands(dtype=torch.float64)
    return lambda: gradients(*given)


def of_strided_columns():
    x, weight, bias = operands()
    strided = torch.randn(ROWS, 2 * COLS)[:, ::2]
    return lambda: torch.ops.aten.native_layer_norm_backward(
        strided, x.detach().view(ROWS, COLS), (COLS,), *2 * [torch.ones(ROWS, 1)], weight, bias, [True] * 3
    )


def of_a_bias_alone():
    x, _, bias = operands()
    return lambda: torch.autograd.grad(F.layer_norm(x, (COLS,), None, bias).square().sum(), (x, bias))


def of_one_row():
    given = operands((COLS,))
    return lambda: gradients(*given)


def of_second_order():
    x, weight, bias = operands()

    def run():
        (dx,) = torch.autograd.grad(F.layer_norm(x, (COLS,), weight, bias).square().sum(), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), (x, weight))

    return run


@pytest.mark.parametrize(
    ("kind", "ours"),
    [
        (of_two_dimensions, 0),
        (of_a_frozen_x, 0),
        (in_float64, 0),
        (of_strided_columns, 0),
        (of_a_bias_alone, 0),
        (of_one_row, 0),
        (of_second_order, 2),  # the first derivative is the in-house one, its derivative torch's
    ],
)
def test_what_the_kernels_do_not_take_is_torchs(calls, kind, ours):
    run = kind()
    torchs = run()
    with as_torchs_backward("cpu"):
        found = run()
    assert len(calls) == ours
    for got, exact in zip(found, torchs, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-4, atol=1e-4)


def test_torch_has_its_own_again_afterwards(calls):
    given = operands()
    handle = as_torchs_backward("cpu")
    with pytest.raises(RuntimeError, match="already: remove the first handle"):
        as_torchs_backward("cpu")
    gradients(*given)
    handle.remove()
    handle.remove()
    gradients(*given)
    assert len(calls) == 1
    with as_torchs_backward("cpu"):
        gradients(*given)
    assert len(calls) == 2


@pytest.mark.parametrize("weight", [True, False])
def test_an_rms_norm_gets_them_from_the_operator_that_a_gpu_has(calls, weight):
    """On a CPU torch composes its RMSNorm of other operators, so the kernel is called as the operator calls it."""
    x, weight, _ = operands((ROWS, COLS), weight=weight)
    x = x.detach()
    rstd = (x.square().mean(1, keepdim=True) + 1e-6).rsqrt()
    wanted = True, weight is not None
    dx, dweight = in_torch._rms_norm(None, None, torch.ones_like(x), x, (COLS,), rstd, weight, wanted)
    assert dx is calls[0][0]
    assert dweight is calls[0][1]


class Torchs:
    """Stands for torch's own kernel, and keeps what it is called with."""

    def call_boxed(self, *arguments):
        self.arguments = arguments
        return "torch's"


def test_an_rms_norm_that_the_kernels_do_not_take_is_torchs(calls):
    torchs, x = Torchs(), torch.ones(ROWS, COLS, dtype=torch.float64)
    given = "keys", x, x, (COLS,), torch.ones(ROWS, 1), None, (True, False)
    assert in_torch._rms_norm(torchs, *given) == "torch's"
    assert torchs.arguments == given
    assert not calls
