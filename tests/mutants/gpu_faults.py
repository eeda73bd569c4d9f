"""Faults that only a GPU can have, each with its honest twin: streams, addresses, indices, memory that is kept."""

from dataclasses import replace
from functools import partial

import torch

from harness.cases import Grads, NormCase
from harness.devices.holder import Holder
from harness.records.contexts import HOLDER, parse_holder
from tests.mutants.faults import Fault, spoilt
from tests.mutants.maths import gradients

RMS = NormCase("rms", 8191, 1000)  # dx is no multiple of 512 bytes, so that the allocator rounds it up
HUGE = NormCase("rms", 65537, 32768)
LONG = 400_000_000  # cycles, a fifth of a second: longer than loading a kernel that copies for the first time


def fp32(inputs):
    return gradients(inputs, torch.float32)


in_fp32 = partial(spoilt, right=fp32)


def on_a_side_stream(inputs, planted):
    """Runs where the caller's stream does not wait for it."""
    aside = torch.cuda.Stream()

    def backward():
        if not planted:
            return fp32(inputs)
        with torch.cuda.stream(aside):
            return fp32(inputs)

    return backward


def finished_on_a_side_stream(inputs, planted):
    """Starts when it should, and is not waited for at the end."""
    aside = torch.cuda.Stream()
    source = []  # lives on, else its memory goes to whoever asks next, before it has been read

    def backward():
        grads = fp32(inputs)
        if not planted:
            return grads
        source[:] = [grads.dx]
        dx = torch.zeros_like(grads.dx)
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            torch.cuda._sleep(LONG)
            dx.copy_(grads.dx)
        return replace(grads, dx=dx)

    return backward


@in_fp32
def atomics(inputs, grads):
    """Adds up rows in whatever order they arrive."""
    xhat = inputs.x.float() * inputs.rstd[:, None]
    everything = torch.zeros(inputs.case.cols, device="cuda")
    cols = torch.arange(inputs.case.cols, device="cuda").expand_as(xhat)
    everything.scatter_add_(0, cols.reshape(-1), (inputs.dy.float() * xhat).reshape(-1))
    return replace(grads, dweight=everything)


@in_fp32
def one_element_beyond_dx(inputs, grads):
    item, device = grads.dx.element_size(), grads.dx.device
    behind = grads.dx.data_ptr() + grads.dx.numel() * item
    storage = torch._C._construct_storage_from_data_pointer(behind, device, item)
    torch.empty(0, dtype=grads.dx.dtype, device=device).set_(storage).fill_(1.0)


@in_fp32
def kept_memory(inputs, grads, kept=[]):  # noqa: B006  # that is the fault
    kept.append(grads.dx.clone())


def index_of_32_bits(inputs, planted):
    """Wraps beyond 2^31 elements, and so never writes the last of them."""

    def backward():
        dx = torch.empty_like(inputs.x)
        dweight = torch.zeros(inputs.case.cols, device="cuda")
        for start in range(0, inputs.case.rows, 4096):
            rows = slice(start, start + 4096)
            case = replace(inputs.case, rows=inputs.x[rows].shape[0])
            part = gradients(replace(inputs, case=case, x=inputs.x[rows], dy=inputs.dy[rows]), torch.float32, wide=True)
            dweight += part.dweight
            last = (1 << 31) // inputs.case.cols - start if planted else None
            dx[rows][:last] = part.dx[:last].to(dx.dtype) if last is None or last > 0 else 0
        return Grads(dx, dweight)

    return backward


def answers_of_the_host(inputs, planted):
    """Decides on the host, by what a kernel would not see in a replay."""
    seen = [torch.zeros_like(inputs.dy)]

    def backward():
        if planted and torch.cuda.is_current_stream_capturing():
            return Grads(seen[0].clone(), torch.zeros(inputs.case.cols, device="cuda"))
        return fp32(inputs)

    return backward


def all_at_once(inputs, planted):
    """Starts only when every multiprocessor is free, as a cooperative launch does."""
    everywhere = Holder(*parse_holder(HOLDER))

    def backward():
        if planted and not torch.cuda.is_current_stream_capturing():
            everywhere.queue(everywhere.multiprocessors, 0, launch_cooperative_grid=True)
        return fp32(inputs)

    return backward


GPU_FAULTS = {
    "on a side stream": Fault(on_a_side_stream, RMS, "nondeterministic|wrong", "dx"),
    "finished on a side stream": Fault(
        finished_on_a_side_stream, RMS, "wrong", "^dx changed after the backward had returned$"
    ),
    "atomics": Fault(atomics, RMS, "nondeterministic", "differ, in dweight$"),
    "one element beyond dx": Fault(one_element_beyond_dx, RMS, "wrong", "outside of its own buffers.*0 bytes behind"),
    "index of 32 bits": Fault(index_of_32_bits, HUGE, "wrong", "^dx is off|^a row of dx is off"),
    "kept memory": Fault(kept_memory, RMS, "wrong", "^every call keeps [0-9]+ bytes of memory$"),
    "all at once": Fault(all_at_once, RMS, "timeout", "^waits for other kernels: it did not end within"),
    "answers of the host": Fault(answers_of_the_host, RMS, "nondeterministic|wrong", "dx"),
}
