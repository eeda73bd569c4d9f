"""Faulty backwards, one fault each, whose honest twin is the same code without it.

Every fault is a function of the inputs and of whether it is planted; it returns the backward. `FAULTS` says on which
inputs each is tried, and what has to be said of it.
"""

import _thread
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from harness.cases import Grads, Inputs, NormCase
from tests.mutants.maths import gradients

RMS = NormCase("rms", 64, 128, device="cpu")
LAYER = NormCase("layer", 64, 128, bias=True, device="cpu")
CORRELATED = replace(RMS, inputs="correlated")
LAYER_FP32 = replace(LAYER, dtype="fp32", weight_dtype="fp32")
WRONG = r"off by rho"


@dataclass(frozen=True)
class Fault:
    """A fault, the case that shows it, the row it must get, and whether usual inputs hide it."""

    plant: Callable[[Inputs, bool], Callable[[], Grads]]
    case: NormCase
    status: str
    reason: str
    hidden: bool = False


FAULTS: dict[str, Fault] = {}


def fault(case: NormCase, reason: str = WRONG, *, status: str = "wrong", inputs: str = "normal", hidden: bool = False):
    """Enter a fault; its name is the function's, in words."""

    def enter(plant):
        name = plant.__name__.replace("_", " ")
        suffix = "" if name not in FAULTS else f" ({inputs})"
        FAULTS[name + suffix] = Fault(plant, replace(case, inputs=inputs), status, reason, hidden)
        return plant

    return enter


def spoilt(spoil, right=gradients):
    """A fault that does something to gradients that are right."""

    def plant(inputs, planted):
        def backward():
            grads = right(inputs)
            return (spoil(inputs, grads) or grads) if planted else grads

        return backward

    plant.__name__ = spoil.__name__
    return plant


def misread(read):
    """A fault that takes other inputs for those that it was given."""
    return lambda inputs, planted: lambda: gradients(read(inputs) if planted else inputs)


# What is left out, mixed up or of the wrong kind


@fault(RMS)
@spoilt
def last_row_of_dx_unwritten(inputs, grads):
    dx = torch.empty_like(grads.dx)
    dx[:-1] = grads.dx[:-1]
    return replace(grads, dx=dx)


@fault(RMS)
@spoilt
def scratch_uninitialised(inputs, grads):
    """Adds to partial sums that nobody has set to zero."""
    scratch = torch.empty(2, inputs.case.cols)
    scratch[0] = grads.dweight.float()
    return replace(grads, dweight=scratch.sum(0).to(grads.dweight.dtype))


class Lazy(torch.Tensor):
    """A tensor that could put its work off until somebody looks."""


for name, case, reason, spoil in (
    ("row left out of dweight", RMS, "^dweight is off", lambda i, g: {"dweight": gradients(i, rows=-1).dweight}),
    ("dbias missing", LAYER, "^dbias is missing$", lambda i, g: {"dbias": None}),
    (
        "dweight and dbias swapped",
        LAYER,
        "^dweight is off.*dbias is off",
        lambda i, g: {"dweight": g.dbias, "dbias": g.dweight},
    ),
    ("dtype of dx", RMS, r"^dx is torch\.float16 instead of torch\.bfloat16$", lambda i, g: {"dx": g.dx.half()}),
    ("shape of dweight", RMS, r"^dweight has shape \(1, 128\)", lambda i, g: {"dweight": g.dweight[None]}),
    ("lazily negated dx", RMS, "^dx is a lazily negated tensor", lambda i, g: {"dx": torch._neg_view(-g.dx)}),
    ("lazy dx", RMS, "^dx is a Lazy, not a plain tensor$", lambda i, g: {"dx": g.dx.as_subclass(Lazy)}),
    (
        "dweight in the memory of x",
        RMS,
        "^dweight lies in the memory of the input x$",
        lambda i, g: {"dweight": i.x[0]},
    ),
    ("row correction left out", CORRELATED, "^dx is off", lambda i, g: {"dx": gradients(i, correction=False).dx}),
):
    FAULTS[name] = Fault(spoilt(lambda i, g, spoil=spoil: replace(g, **spoil(i, g))), case, "wrong", reason)


# How sums are formed


@fault(replace(RMS, rows=2048), "^dweight is off")
@spoilt
def sums_in_bf16(inputs, grads):
    total = torch.zeros(inputs.case.cols, dtype=torch.bfloat16)
    for row in products(inputs).bfloat16():
        total += row
    return replace(grads, dweight=total)


@fault(replace(RMS, rows=512, dtype="fp32", weight_dtype="fp32"), "differ, in dweight", status="nondeterministic")
def sums_in_any_order(inputs, planted):
    """What atomics do: fp32 sums whose order changes from run to run, seen because dweight stays in fp32."""

    def backward():
        order = torch.tensor(sorted(range(inputs.case.rows), key=lambda row: os.urandom(2) if planted else row))
        return replace(gradients(inputs), dweight=products(inputs).float()[order].sum(0))

    return backward


def products(inputs):
    """dy * xhat in fp64."""
    case = inputs.case
    x, dy = (tensor.reshape(-1, case.cols).double() for tensor in (inputs.x, inputs.dy))
    if case.norm == "layer":
        x = x - x.mean(1, keepdim=True)
    return dy * x * (x.square().mean(1, keepdim=True) + inputs.eps).rsqrt()


# What is remembered


@fault(RMS, "^dx, dweight did not follow new contents of dy at the same address$")
def remembered_by_address(inputs, planted):
    answers = {}

    def backward():
        key = inputs.dy.data_ptr() if planted else object()
        if key not in answers:
            answers[key] = gradients(inputs)
        return Grads(*(t if t is None else t.clone() for t in (answers[key].dx, answers[key].dweight)))

    return backward


@fault(RMS, "^dweight did not follow new contents")
def dweight_from_the_forward(inputs, planted):
    early = gradients(inputs)
    return lambda: replace(gradients(inputs), dweight=early.dweight.clone()) if planted else gradients(inputs)


RSTD = {}


@fault(RMS)
def rstd_of_the_first_inputs(inputs, planted):
    """Kept from one preparation to the next, as by a cache that knows the shape alone."""
    rstd = RSTD.setdefault(inputs.case, inputs.rstd.clone()) if planted else inputs.rstd.clone()

    def backward():
        scale = (rstd / inputs.rstd)[:, None]
        grads = gradients(inputs)
        return replace(grads, dx=(grads.dx * scale).to(grads.dx.dtype))

    return backward


@fault(RMS, "^dweight is off")
def added_to_the_last_answer(inputs, planted):
    total = torch.zeros(inputs.case.cols)

    def backward():
        grads = gradients(inputs)
        if planted and total.any():
            return replace(grads, dweight=(total.add_(grads.dweight)).to(grads.dweight.dtype))
        total.copy_(grads.dweight)
        return grads

    return backward


# What is touched that is not its own


@fault(RMS, "^the backward changed its input x$")
@spoilt
def x_changed(inputs, grads):
    inputs.x[0, 0] += 1


@fault(RMS, "^the backward changed its input dy; an adapter may declare in_place for dy$")
@spoilt
def dy_changed_undeclared(inputs, grads):
    inputs.dy.copy_(grads.dx)


@fault(RMS, "^the backward wrote outside of its input weight$")
@spoilt
def written_one_element_too_far(inputs, grads):
    weight = inputs.weight
    weight.as_strided((1,), (1,), weight.storage_offset() + len(weight)).fill_(1.0)


@fault(RMS, "^the backward wrote outside of its input x$", inputs="strided-x")
@spoilt
def written_between_rows(inputs, grads):
    x = inputs.x
    x.as_strided((1,), (1,), x.storage_offset() + inputs.case.cols).fill_(1.0)


@fault(LAYER, "^dweight and dbias lie in the same memory$")
@spoilt
def sums_that_share_memory(inputs, grads):
    both = torch.empty(inputs.case.cols + 1, dtype=grads.dweight.dtype)
    return replace(grads, dweight=both[:-1].copy_(grads.dweight), dbias=both[1:].copy_(grads.dbias))


@fault(RMS, "^the backward changed torch's default dtype, torch's number of threads$")
@spoilt
def settings_changed(inputs, grads):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(torch.get_num_threads() + 1)


def behind_the_callers_back(start):
    """Hands the last step over to `start(finish)`, which does not wait for it."""

    def plant(inputs, planted):
        def backward():
            grads = gradients(inputs)
            out = Grads(torch.zeros_like(grads.dx), grads.dweight)
            (start if planted else call)(lambda: out.dx.copy_(grads.dx))
            return out

        return backward

    plant.__name__ = start.__name__
    return plant


def call(finish):
    finish()


@fault(RMS, "^the backward left a thread at work: late$")
@behind_the_callers_back
def work_in_a_thread(finish):
    threading.Thread(target=later, args=(0.2, finish), name="late", daemon=True).start()


@fault(RMS, "^dx changed after the backward had returned$")
@behind_the_callers_back
def work_in_a_hidden_thread(finish):
    """One that Python does not list, as a library's own would be."""
    _thread.start_new_thread(later, (0.02, finish))


def later(delay_s, finish):
    time.sleep(delay_s)
    finish()


@fault(RMS, "^ValueError: no such row$", status="crashed")
@spoilt
def raises(inputs, grads):
    raise ValueError("no such row")


def from_the_fourth_call(harm):
    """What a few calls do not show."""

    def plant(inputs, planted):
        calls = []

        def backward():
            calls.append(None)
            grads = gradients(inputs)
            return (harm(inputs, grads) or grads) if planted and len(calls) > 3 else grads

        return backward

    plant.__name__ = harm.__name__
    return plant


@fault(RMS, "^the backward changed its input x$")
@from_the_fourth_call
def x_changed_later(inputs, grads):
    inputs.x[0, 0] += 1


@fault(RMS, r"^dx is torch\.float16 instead of torch\.bfloat16$")
@from_the_fourth_call
def dtype_of_dx_later(inputs, grads):
    return replace(grads, dx=grads.dx.half())


# What only some numbers show


def formula(inputs, *, rstd=None, row_mean=lambda mean: mean, xhat=None, product=lambda p: p, compute=torch.float32):
    """The backward in fp32, with a piece of it exchanged."""
    case = inputs.case
    x, dy = (tensor.reshape(-1, case.cols).to(compute) for tensor in (inputs.x, inputs.dy))
    weight = torch.ones((), dtype=compute) if inputs.weight is None else inputs.weight.to(compute)
    centred = x - x.mean(1, keepdim=True) if case.norm == "layer" else x
    scale = (rstd or usual_rstd)(x, centred, inputs.eps)
    hat = centred * scale if xhat is None else xhat(centred * scale, weight, inputs)
    wdy = dy * weight
    dx = wdy - hat * row_mean((wdy * hat).mean(1, keepdim=True))
    if case.norm == "layer":
        dx = dx - wdy.mean(1, keepdim=True)
    dtype = inputs.x.dtype
    return Grads(
        (dx * scale).to(dtype).reshape(inputs.x.shape),
        product(dy * hat).to(compute).sum(0).to(inputs.weight.dtype),
        dy.sum(0).to(inputs.weight.dtype) if case.bias else None,
    )


def usual_rstd(x, centred, eps):
    return (centred.square().mean(1, keepdim=True) + eps).rsqrt()


def exchanged(**piece):
    """A fault that is one piece of the formula."""
    return lambda inputs, planted: lambda: formula(inputs, **(piece if planted else {}))


def enter(name, plant, case, inputs=None, reason=WRONG, status="wrong"):
    """A fault that usual inputs hide, or without unusual `inputs` the usual shape."""
    shown_by = inputs or f"{case.rows} x {case.cols}"
    FAULTS[f"{name} ({shown_by})"] = Fault(plant, replace(case, inputs=inputs or "normal"), status, reason, hidden=True)


def one_pass(x, centred, eps):
    return (x.square().mean(1, keepdim=True) - x.mean(1, keepdim=True).square() + eps).rsqrt()


def squares_in_fp16(x, centred, eps):
    return (centred.half().square().float().mean(1, keepdim=True) + eps).rsqrt()


def from_y(keep):
    """Xhat as a kernel finds it that saved y: from y, rounded, by a division by the weight."""

    def xhat(hat, weight, inputs):
        bias = torch.zeros(()) if inputs.bias is None else inputs.bias.float()
        return ((hat * weight + bias).to(torch.float16).float() - bias) / keep(weight)

    return xhat


def clamped(weight):
    return torch.where(weight >= 0, 1.0, -1.0) * weight.abs().clamp_min(1e-2)


enter("row mean in bf16", exchanged(row_mean=lambda mean: mean.bfloat16().float()), RMS, "correlated")
for off_centre in ("mean-10", "mean-100", "mean-1000"):
    case = LAYER if off_centre == "mean-1000" else LAYER_FP32
    enter("variance in one pass", exchanged(rstd=one_pass), case, off_centre)
enter("divides by the weight", exchanged(xhat=from_y(lambda weight: weight)), RMS, "zero-weights")
enter("divides by a clamped weight", exchanged(xhat=from_y(clamped)), RMS, "tiny-weights")
enter("recovers xhat from y", exchanged(xhat=from_y(lambda weight: weight)), LAYER, "large-bias")
enter("squares in fp16", exchanged(rstd=squares_in_fp16), RMS, "outliers")
enter("products in fp16", exchanged(product=lambda p: p.half()), RMS, "large-dy")
enter("products in fp16", exchanged(product=lambda p: p.half()), RMS, "small-dy")


def without_eps(x, centred, eps):
    return centred.square().mean(1, keepdim=True).rsqrt()


def eps_outside(x, centred, eps):
    return 1 / (centred.square().mean(1, keepdim=True).sqrt() + eps)


enter("eps left out", exchanged(rstd=without_eps), LAYER, "constant-rows")
enter("eps left out", exchanged(rstd=without_eps), RMS, "zero-rows")
for eps in (1e-12, 1e-6, 1e-3):
    fixed = misread(lambda inputs: replace(inputs, eps=1e-5))
    enter(f"eps of 1e-5 where {eps} is asked for", fixed, replace(RMS, eps=eps), "small-x")
enter("eps outside of the root", exchanged(rstd=eps_outside), RMS, "small-x")


@spoilt
def cubed_rstd(inputs, grads):
    """The row correction as x * rstd^3 * sum(wdy * x), as the formula can be rearranged."""
    x, wdy = inputs.x.float(), inputs.dy.float() * inputs.weight.float()
    rstd = usual_rstd(x, x, inputs.eps)
    correction = x * rstd.pow(3) * (wdy * x).mean(1, keepdim=True)
    return replace(grads, dx=(wdy * rstd - correction).to(inputs.x.dtype))


enter("rstd to the third power", cubed_rstd, RMS, "large-x")


def flushed(tensor):
    """Subnormal numbers of fp32 as zero."""
    return torch.where(tensor.abs() < 2.0**-126, 0.0, tensor)


@spoilt
def flushes_what_it_writes(inputs, grads):
    return replace(grads, dx=flushed(grads.dx))


def swallows(name):
    return misread(lambda inputs: replace(inputs, **{name: getattr(inputs, name).nan_to_num(0.0, 0.0, 0.0)}))


@spoilt
def spreads(inputs, grads):
    """Sums over two rows at once, of which one may be spoilt."""
    grads.dx[(~grads.dx.isfinite().all(1)).roll(1)] = math.nan


flushes_what_it_reads = misread(lambda inputs: replace(inputs, x=flushed(inputs.x)))
FLUSH = "takes subnormal numbers as zero: "
enter("subnormal numbers flushed as they are read", flushes_what_it_reads, RMS, "subnormal-x", f"{FLUSH}dweight", "ok")
enter("subnormal numbers flushed as they are written", flushes_what_it_writes, RMS, "subnormal-dy", f"{FLUSH}dx", "ok")
for spoilt_input in ("nan-x", "inf-x", "nan-dy", "inf-dy", "nan-weight"):
    enter("swallowed", swallows(spoilt_input.partition("-")[2]), LAYER, spoilt_input, "^dx is off by rho inf")
enter("spread to the next row", spreads, RMS, "nan-x", "^dx is off by rho inf")
enter("spread to the next row", spreads, RMS, "nan-dy", "^dx is off by rho inf")


# What only some layouts show


def from_memory(tensor, strides, offset=0):
    """The rows, or vector, that lie there if strides (and an offset) are taken for granted; the buffer is a ring."""
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    places = torch.tensor(tensor.storage_offset() + offset)
    sizes = (tensor.numel() // tensor.shape[-1], tensor.shape[-1])[-len(strides) :]
    for size, stride in zip(sizes, strides, strict=True):
        places = places[..., None] + torch.arange(size) * stride
    return flat[places % len(flat)].reshape(tensor.shape)


def takes_for_granted(name, strides):
    """Reads an input as if it had these strides, given it and its columns."""

    def read(inputs):
        tensor = getattr(inputs, name)
        return replace(inputs, **{name: from_memory(tensor, strides(tensor, inputs.case.cols))})

    return misread(read)


def rounds_addresses_down(name):
    def read(inputs):
        tensor = getattr(inputs, name)
        return replace(inputs, **{name: from_memory(tensor, tensor.stride(), -(tensor.storage_offset() % 8))})

    return misread(read)


@spoilt
def takes_the_second_dimension_for_columns(inputs, grads):
    rstd = 1 if inputs.x.dim() == 2 else (inputs.x.double().square().mean(1, keepdim=True) + inputs.eps).rsqrt()
    return replace(grads, dx=(grads.dx * rstd).to(grads.dx.dtype))


for layout, strides in {
    **dict.fromkeys(("strided-x", "expanded-dy", "summed-dy", "transposed-dy"), lambda tensor, cols: (cols, 1)),
    **dict.fromkeys(("every-other-x", "transposed-x"), lambda tensor, cols: (tensor.stride(0), 1)),
    "sliced-x": lambda tensor, cols: (tensor.stride(-2), 1),
    "strided-weight": lambda tensor, cols: (1,),
}.items():
    enter(
        "strides taken for granted",
        takes_for_granted(layout.partition("-")[2].removeprefix("other-"), strides),
        RMS,
        layout,
    )
for layout, name in (("misaligned", "x"), ("misaligned-weight", "weight")):
    enter("addresses rounded down", rounds_addresses_down(name), RMS, layout)
enter("second dimension taken for columns", takes_the_second_dimension_for_columns, RMS, "3-d")


# What only some shapes show


def most(rows=None, cols=None, multiple=1):
    """Leaves what is beyond so many rows or columns, or beyond a multiple of some columns, as it finds it."""

    def spoil(inputs, grads):
        last_col = min(cols or inputs.case.cols, inputs.case.cols // multiple * multiple)
        dx = torch.zeros_like(grads.dx)
        dx[:rows, :last_col] = grads.dx[:rows, :last_col]
        return replace(grads, dx=dx)

    return spoilt(spoil)


@spoilt
def nothing_to_do(inputs, grads):
    """Returns early where there are no rows, with gradients that nobody has written."""
    return replace(grads, dweight=torch.full_like(grads.dweight, 3.0)) if inputs.case.rows == 0 else None


@spoilt
def two_rows_at_least(inputs, grads):
    return replace(grads, dweight=grads.dweight * 0) if inputs.case.rows == 1 else None


@spoilt
def unbiased(inputs, grads):
    """Sums over columns divided by one less, where there is but one."""
    return replace(grads, dx=grads.dx / 0) if inputs.case.cols == 1 else None


@spoilt
def rows_by_eight(inputs, grads):
    return replace(grads, dweight=gradients(inputs, rows=inputs.case.rows // 8 * 8).dweight)


enter("no rows, nothing written", nothing_to_do, replace(RMS, rows=0), reason="^dweight is off by rho inf")
enter("a lone row left out", two_rows_at_least, replace(RMS, rows=1), reason="^dweight is off")
enter("as many rows as a grid may have", most(rows=65536), replace(RMS, rows=65537, cols=8))
enter("a lone column", unbiased, replace(RMS, cols=1))
enter("columns in pairs", most(multiple=2), replace(RMS, cols=515))
enter("rows by eight", rows_by_eight, replace(RMS, rows=31, cols=515), reason="^dweight is off")
enter("columns by eight", most(multiple=8), replace(RMS, cols=132))
enter("columns of one block less", most(multiple=64), replace(RMS, cols=127))
enter("columns of one block more", most(multiple=128), replace(RMS, cols=129))
enter("columns of half a row", most(cols=32768), replace(RMS, rows=2, cols=65536))


# What only other parameters show


@misread
def weight_as_it_is(inputs):
    return replace(inputs, case=replace(inputs.case, zero_centred=False))


@misread
def weight_of_two(inputs):
    return replace(inputs, weight=torch.full((inputs.case.cols,), 2.0))


@spoilt
def dweight_cut_to_bf16(inputs, grads):
    return replace(grads, dweight=grads.dweight.bfloat16().float())


for name, plant, changes in (
    ("zero-centred weight taken as it is", weight_as_it_is, {"zero_centred": True}),
    ("a weight where there is none", weight_of_two, {"weight": False}),
    ("dweight in x's dtype", dweight_cut_to_bf16, {"weight_dtype": "fp32"}),
):
    FAULTS[name] = Fault(plant, replace(CORRELATED, **changes), "wrong", WRONG)
