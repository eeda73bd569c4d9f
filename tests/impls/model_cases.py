"""A norm with what a model has around it, its inputs, and what torch's own operators make of them in float64."""

from unittest.mock import patch

import torch
import torch.nn.functional as F

from impls.inhouse.model import layer_norm, norms, rms_norm

COLS = 24
P = 0.3
# By name: the tensors beside x, weight and bias, and the options.
VARIANTS = {
    "residual": (("residual",), {"return_residual": True}),
    "residual that ends": (("residual",), {}),
    "two branches": (("residual", "x1"), {"return_residual": True}),
    "dropout": (("residual",), {"return_residual": True, "dropout_p": P}),
    "dropout without a residual": ((), {"return_residual": True, "dropout_p": P}),
    "dropout of two branches": (("residual", "x1"), {"return_residual": True, "dropout_p": P}),
    "parallel": (("weight1",), {}),
    "parallel and residual": (("residual", "weight1"), {"return_residual": True}),
    "gate behind": (("z",), {}),
    "gate first": (("z",), {"norm_before_gate": False}),
    "gate first and residual": (("residual", "z"), {"norm_before_gate": False, "return_residual": True}),
    "zero-centred": (("residual",), {"return_residual": True, "zero_centred": True}),
    "nothing is added": ((), {"return_residual": True}),
}
HEADS = {  # slices of a projection
    "heads": lambda wide: wide.view(4, 3, COLS)[:, :2],
    "heads of sequences": lambda wide: wide.view(2, 2, 3, COLS)[:, :, 1:],
}


class Tried:
    """A norm with its inputs, by name, and a gradient for each of at most three outputs."""

    def __init__(
        self, layer, name="plain", dtype=torch.float32, *, shape=(2, 2, COLS), weight=True, bias=True, **options
    ):
        more, own = VARIANTS.get(name, ((), {}))
        self.options, cols = own | options, shape[-1]
        generator = torch.Generator().manual_seed(len(name))

        def normal(*shape):
            return torch.randn(shape, generator=generator).to(dtype)

        self.layer, bias = layer, layer and bias
        wide = normal(4, 3 * COLS).requires_grad_()
        self.x = HEADS[name](wide) if name in HEADS else normal(*shape).requires_grad_()
        shape = self.x.shape
        self.leaves = {"x": wide if name in HEADS else self.x}
        self.leaves |= {
            each: normal(cols).requires_grad_() for each, has in (("weight", weight), ("bias", bias)) if has
        }
        for each in more:
            self.leaves[each] = normal(*((COLS,) if each == "weight1" else shape)).requires_grad_()
        if bias and "weight1" in more:
            self.leaves["bias1"] = normal(COLS).requires_grad_()
        self.heads = HEADS.get(name, lambda x: x)
        self.masks = [torch.rand(shape, generator=generator) > P for _ in range(2)]
        self.came_back = [normal(*shape) for _ in range(3)]

    def ours(self, x, weight=None, bias=None, **tensors):
        tensors |= self.options
        x = self.heads(x)
        return layer_norm(x, weight, bias, **tensors) if self.layer else rms_norm(x, weight, 1e-5, **tensors)

    def torchs(self, x, weight=None, bias=None, residual=None, x1=None, weight1=None, bias1=None, z=None):
        def options(return_residual=False, dropout_p=0.0, norm_before_gate=True, zero_centred=False):
            return return_residual, dropout_p, norm_before_gate, zero_centred

        return_residual, p, behind, zero_centred = options(**self.options)
        total = self.heads(x)
        if p:
            total = total * self.masks[0] / (1 - p)
        if x1 is not None:
            total = total + (x1 * self.masks[1] / (1 - p) if p else x1)
        if residual is not None:
            total = total + residual
        entering = total if z is None or behind else total * F.silu(z)

        def normed(weight, bias):
            weight = weight + 1 if zero_centred else weight
            if self.layer:
                return F.layer_norm(entering, entering.shape[-1:], weight, bias, 1e-5)
            return F.rms_norm(entering, entering.shape[-1:], weight, 1e-5)

        outputs = [normed(weight, bias)]
        if z is not None and behind:
            outputs = [outputs[0] * F.silu(z)]
        if weight1 is not None:
            outputs.append(normed(weight1, bias1))
        if return_residual:
            outputs.append(total)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def with_masks(self, function):
        """What a function returns where dropout draws these masks."""
        masks = iter(self.masks)
        with patch.object(norms, "_drawn", lambda branch, p: None if branch is None else next(masks)):
            return function()

    def results(self, function, dtype=None, used=None):
        """The outputs, and the gradient of every leaf, in another dtype throughout if one is given."""
        leaves = {name: each.detach().to(dtype or each.dtype).requires_grad_() for name, each in self.leaves.items()}
        outputs = self.with_masks(lambda: function(**leaves))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (output, dy.to(output.dtype))
            for place, (output, dy) in enumerate(zip(outputs, self.came_back, strict=False))
            if used is None or place in used
        ]
        found = torch.autograd.grad(
            [output for output, _ in pairs], [*leaves.values()], [dy for _, dy in pairs], allow_unused=True
        )
        return [each.detach() for each in outputs], dict(zip(leaves, found, strict=True)), outputs[0].grad_fn


def near(found, wanted):
    for ours, right in zip(found, wanted, strict=True):
        theirs = torch.zeros_like(ours) if right is None else right
        scale = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(ours.double(), theirs.double(), rtol=2e-5, atol=2e-5 * scale)


def agree(tried, used=None):
    outputs, found, node = tried.results(tried.ours, used=used)
    wanted_outputs, wanted, _ = tried.results(tried.torchs, torch.float64, used)
    near(outputs, wanted_outputs)
    near(found.values(), wanted.values())
    assert all(each.is_contiguous() for each in outputs)
    return type(node).__name__
