"""My RMSNorm: plain torch operators, as an example of an implementation that is not this project's.

    normbwd bench --impl examples/my_norm.py --impls my-norm,torch-eager --shapes 4096x1024

Replace the body of `prepare` by a call of your kernel; docs/add-an-implementation.md has the whole contract.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.cases import Grads, Inputs, NormCase, contiguous_rows

name = "my-norm"
requires = ("torch",)  # modules that have to be importable; torch and yours are imported in functions only


def unsupported(case: NormCase) -> str | None:
    """Say why this case cannot run, or None: what cannot be computed is said here, never computed wrong."""
    if case.norm != "rms":
        return "my norm is an RMSNorm"
    if not case.weight:
        return "my norm always has a weight"
    return None


def notes(case: NormCase) -> list[str]:
    """What a reader of my row should know about how it was run."""
    return ["1 + weight is formed in fp32"] if case.zero_centred else []


def prepare(inputs: Inputs) -> Callable[[], Grads]:
    """Do all that is not the backward, untimed; return the backward, which is called many times."""
    assert inputs.weight is not None  # unsupported() has seen to it
    x, dtype = contiguous_rows(inputs.x), inputs.weight.dtype  # (rows, cols), whatever dimensions and strides x has
    weight = inputs.weight.float() + (1.0 if inputs.case.zero_centred else 0.0)
    rstd = inputs.rstd[:, None]  # a kernel with a forward of its own would call it here and use what that saved

    def backward() -> Grads:
        dy = contiguous_rows(inputs.dy)  # timed: a training step hands over another dy each time
        xhat = x.float() * rstd
        wdy = dy.float() * weight
        dx = rstd * (wdy - xhat * (wdy * xhat).mean(1, keepdim=True))
        dweight = (dy.float() * xhat).sum(0)
        return Grads(dx.to(x.dtype).view(inputs.x.shape), dweight.to(dtype))

    return backward
