"""Launches that are kept, so that a call like an earlier one decides nothing again.

Triton binds and specialises every argument of a kernel in Python, at every launch. The result depends on shapes,
strides, dtypes and alignments alone, and so do the choice of the launch and every check of the arguments. So the first
call of a kind goes the ordinary way and leaves a `BoundCall` (`keep`): the compiled kernels, with all arguments but the
addresses of its inputs and outputs. The next call of that kind allocates its outputs and starts them (`restart`).

What is not sure to be the same again is not kept: in Triton's interpreter, in a capture, on AMD (where Triton looks at
the size of the memory behind a tensor), with hooks of a profiler, or with a Triton that starts kernels in another way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from . import graph_memory, workspace
from .checks import IS_CHECKED
from .device import allocate, current_device, current_stream, is_capturing, make_guards
from .launch import KernelCall

MOST_KEPT = 4096  # calls; where rows differ in every step, all are dropped then
MOST_RECENT = 4  # of one stream, that are compared with one after another
ALIGNED = 16  # bytes: a pointer to a multiple of them has a kernel of its own in Triton
# How Triton 3.6 to 3.9 start a compiled kernel.
START = (
    "kernel.run(grid_0, grid_1, grid_2, stream, kernel.function, kernel.packed_metadata, launch_metadata, "
    "knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook, *bound_args.values())"
)

Tensors = Sequence[torch.Tensor | None]

_kept: dict[Hashable, BoundCall] = {}  # by all that a call depends on
# The last of them, by the classes of tensors and all else that is not compared. What is compared stands with each call:
# a function that compares the tensors, and which inputs are at one address.
_recent: dict[Hashable, list[tuple[Callable[..., bool], Hashable, BoundCall]]] = {}


@dataclass(frozen=True, slots=True)
class BoundCall:
    """The kernels of one call, compiled, with all arguments but addresses.

    `outputs` are the shape, strides and dtype of what each call allocates, None where there is no such gradient; the
    last of them, from `results` on, only the kernels need. `starts` has for each kernel what its launcher takes, and a
    function that picks its arguments from the addresses of outputs and inputs, and `constants`.
    """

    kernels: list[Any]
    starts: list[tuple[Any, ...]]
    outputs: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype] | None]
    results: int
    constants: list[Any]
    lasting: list[torch.Tensor]  # memory of the stream, to which constants point
    hooks: list[list[Any]]
    settings: tuple[dict[str, Any], dict[str, Any]]
    owner: workspace.Owner | None  # of the stream, where it is not torch's own, whose streams are never destroyed

    def disturbed(self) -> bool:
        """Whether a profiler listens, Triton's settings are others, or the stream's handle is another stream by now."""
        if self.owner is not None and self.owner != workspace.owner(self.lasting[-1].device):
            return True
        return any(self.hooks) or self.settings != (vars(knobs.runtime), vars(knobs.compilation))

    def start(self, addresses: list[int], stream: int) -> list[torch.Tensor | None] | None:
        """Start all kernels on a stream, given the addresses of the inputs that there are; return the outputs.

        None, and nothing is started, where an output is not aligned as those were that this was bound with.
        """
        outputs: list[torch.Tensor | None] = []
        values: list[Any] = []
        for memory in self.outputs:
            output = address = None
            if memory is not None:
                output = allocate(*memory)
                address = output.data_ptr()
                if address % ALIGNED:
                    return None
            outputs.append(output)
            values.append(address)
        values += addresses
        values += self.constants
        for run, x, y, z, function, metadata, pick in self.starts:
            run(x, y, z, stream, function, metadata, None, None, None, *pick(values))
        return outputs[: self.results]


# ------------------------------------------------------------------------------------------------ what is kept


def restart(
    tensors: tuple[torch.Tensor | None, ...], *decided_by: Hashable, launched: list[Any] | None = None
) -> list[torch.Tensor | None] | None:
    """Start the kernels that are kept for a call with these inputs; return its outputs, or None where none are kept.

    What a call depends on `find` says. The compiled kernels are added to `launched`.
    """
    found = find(tensors, *decided_by)
    if found is None:
        return None
    call, addresses, stream = found
    outputs = call.start(addresses, stream)
    if outputs is not None and launched is not None:
        launched.extend(call.kernels)
    return outputs


def find(tensors: tuple[torch.Tensor | None, ...], *decided_by: Hashable) -> tuple[BoundCall, list[int], int] | None:
    """The call that is kept for these inputs, and what its `start` takes for them; None where none is to be started.

    The call depends on the inputs, the first of which is there, on the device, the stream, and `decided_by`.
    """
    first = tensors[0]
    assert first is not None
    if not first.is_cuda or is_capturing():
        return None
    device = current_device()
    stream = current_stream(device)
    classes = device, stream, *decided_by, *map(type, tensors)
    recent = _recent.get(classes)
    if recent is None:
        return None  # before anything is asked of tensors of a class that may have no memory
    given: list[torch.Tensor] = []
    addresses: list[int] = []
    bits = 0
    for tensor in tensors:
        if tensor is not None:
            address = tensor.data_ptr()
            given.append(tensor)
            addresses.append(address)
            bits |= address
    shared = None
    if len({*addresses}) < len(addresses):
        shared = _shared(addresses)
        # Torch compares no tensor with itself.
        given = [tensor if shared[place] == place else tensor.detach() for place, tensor in enumerate(given)]
    is_aligned = not bits % ALIGNED
    if is_aligned:
        for alike, their_shared, call in recent:
            if shared == their_shared and alike(*given):
                return None if call.disturbed() else (call, addresses, stream)
    call = _kept.get(((device, stream, *decided_by, shared), *map(_traits, tensors)))
    if call is None or call.disturbed():
        return None
    if is_aligned and make_guards is not None:  # among the last ones, where torch can compare tensors at once
        guards = make_guards(*given, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        _recent[classes] = [(guards.check, shared, call), *recent][:MOST_RECENT]
    return call, addresses, stream


def _shared(addresses: list[int]) -> tuple[int, ...]:
    """Which of these are one address: for each the place of the first."""
    return tuple(map(addresses.index, addresses))


def _traits(tensor: torch.Tensor | None) -> Hashable:
    """All of a tensor that a call depends on."""
    if tensor is None:
        return None
    return type(tensor), tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.data_ptr() % ALIGNED


def keep(
    calls: list[KernelCall],
    compiled: list[Any],
    inputs: tuple[torch.Tensor | None, ...],
    outputs: Tensors,
    scratch: Tensors,
    *decided_by: Hashable,
) -> None:
    """Keep for `restart` what was launched with these tensors, if it is sure to be the same again."""
    first = inputs[0]
    assert first is not None
    if not first.is_cuda or is_capturing() or IS_CHECKED:
        return
    call = bind(calls, compiled, inputs, outputs, scratch)
    if workspace.grown or len(_kept) >= MOST_KEPT:
        workspace.grown.clear()
        forget()  # earlier calls hold the smaller memory
    if call is not None:
        device = current_device()
        around = (device, current_stream(device), *decided_by)
        addresses = [tensor.data_ptr() for tensor in inputs if tensor is not None]
        shared = _shared(addresses) if len({*addresses}) < len(addresses) else None
        _kept[(*around, shared), *map(_traits, inputs)] = call
        _recent[(*around, *map(type, inputs))] = []  # the one in whose place it comes may have been there


def forget() -> None:
    """Drop all that is kept; every call goes the ordinary way once more."""
    _kept.clear()
    _recent.clear()


def release_memory() -> dict[str, int]:
    """Free the memory that the in-house kernels keep between calls; return its bytes, by kind.

    These are the words by which programs wait, the partials of the largest call of each stream, and what is kept for
    CUDA graphs. What living graphs use stays. The next call of each kind goes the ordinary way and makes it anew. Call
    it before memory is discarded behind torch's back, as sleep modes do.
    """
    forget()
    return workspace.release() | graph_memory.release()


graph_memory.when_short.append(forget)  # on the ordinary way memory is prepared


# ------------------------------------------------------------------------------------------------ binding


def bind(
    calls: list[KernelCall], compiled: list[Any], inputs: Tensors, outputs: Tensors, scratch: Tensors
) -> BoundCall | None:
    """The call with all arguments but the addresses of inputs and outputs; None where it cannot be kept.

    `scratch` is memory that the kernels alone need. A single kernel has the stream's own, as nothing comes between its
    writing and its reading; between several kernels another thread may launch, so that each call allocates it.
    """
    device = next(tensor.device for tensor in inputs if tensor is not None)
    hooks = [_listeners(knobs.runtime.launch_enter_hook), _listeners(knobs.runtime.launch_exit_hook)]
    if not all(isinstance(kernel, CompiledKernel) for kernel in compiled) or not starts_as_known():
        return None
    hooks += [call.kernel.pre_run_hooks for call in calls]
    plain = all(tensor is None or type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in inputs)
    if any(hooks) or not plain or device.index != current_device():
        return None
    allocated = [*outputs, *(scratch if len(calls) > 1 else ())]
    read = [tensor for tensor in inputs if tensor is not None]
    changing = [*allocated, *read]
    places = {tensor.data_ptr(): place for place, tensor in enumerate(changing) if tensor is not None}
    # Of inputs at one address any may be the argument, as they are at one address in every such call.
    if len(places) < len({tensor.data_ptr() for tensor in read}) + sum(each is not None for each in allocated):
        return None  # whether an output or an input is the argument cannot be told
    if any(tensor is not None and tensor.data_ptr() % ALIGNED for tensor in (*outputs, *scratch)):
        return None
    lasting = workspace.of_stream(device, sum(map(_bytes, scratch)) if len(calls) == 1 else 0)
    moved = _moved(scratch, lasting[-1].data_ptr()) if len(calls) == 1 else {}
    constants: list[Any] = []
    starts = []
    for call, kernel in zip(calls, compiled, strict=True):
        given: dict[str, Any] = dict(zip(call.kernel.arg_names, call.args, strict=False)) | call.options
        picked: list[int | tuple[int, ...]] = []
        for name in call.kernel.arg_names:
            within: Any = given[name] if isinstance(given[name], tuple) else ()
            several = any(hasattr(each, "data_ptr") for each in within)
            numbers: list[int] = []
            for argument in within if several else [given[name]]:
                value: Any = argument
                if hasattr(argument, "data_ptr"):
                    address = argument.data_ptr()
                    if address in places:
                        numbers.append(places[address])
                        continue
                    is_lasting = any(0 <= address - memory.data_ptr() < memory.nbytes for memory in lasting)
                    if address not in moved and not is_lasting:
                        return None
                    value = moved.get(address, address)
                numbers.append(len(changing) + len(constants))
                constants.append(value)
            picked.append(tuple(numbers) if several else numbers[0])
        x, y, z = (*call.grid, 1, 1)[:3]
        starts.append((kernel.run, x, y, z, kernel.function, kernel.packed_metadata, _picker(picked)))
    memory = [None if each is None else (tuple(each.shape), each.stride(), each.dtype) for each in allocated]
    settings = dict(vars(knobs.runtime)), dict(vars(knobs.compilation))
    stream = torch.cuda.current_stream(device)
    is_external = stream.cuda_stream != 0 and stream.stream_id == stream.cuda_stream
    owner = workspace.owner(device) if is_external else None
    return BoundCall(compiled, starts, memory, len(outputs), constants, lasting, hooks, settings, owner)


def _picker(places: list[int | tuple[int, ...]]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """A function that picks the values of these places, those of a tuple of places as a tuple; there is at most one."""
    flat = [place for place in places if isinstance(place, int)]
    nested = [place for place in places if isinstance(place, tuple)]
    if not nested:
        return itemgetter(*flat)
    at = places.index(nested[0])
    before, within, behind = itemgetter(*flat[:at]), itemgetter(*nested[0]), itemgetter(*flat[at:])
    return lambda values: (*before(values), within(values), *behind(values))


def _listeners(hook: Any) -> list[Any]:
    """The functions of a chain of hooks, which may become more; one that is not known counts as a function."""
    return getattr(hook, "calls", [hook])


def _moved(scratch: Tensors, address: int) -> dict[int, int]:
    """The address in lasting memory that takes the place of each tensor's."""
    moved = {}
    for tensor in scratch:
        if tensor is not None:
            moved[tensor.data_ptr()] = address
            address += _bytes(tensor)
    return moved


def _bytes(tensor: torch.Tensor | None) -> int:
    """What a tensor takes of lasting memory, in which every piece is aligned."""
    return 0 if tensor is None else -(-tensor.nbytes // 256) * 256


@lru_cache
def starts_as_known() -> bool:
    """Whether this Triton, on this kind of device, starts kernels as those that this was written for."""
    text = " ".join(inspect.getsource(JITFunction.run).split())
    return START in text and torch.version.hip is None
