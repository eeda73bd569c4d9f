"""Launches that are kept: what a second call passes to the kernels, and all that makes a call another one.

Kernels, device and streams are fakes; what they were told is compared with what the call was given.
"""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from impls import triton_inhouse
from impls.inhouse import backward, bound, checks, graph_memory, workspace
from impls.inhouse.backward import backward_with_extras, norm_backward
from impls.inhouse.launch import KernelCall
from impls.inhouse.model import forward, rms_norm
from impls.inhouse.model.operands import NormOptions, Operands
from impls.inhouse.problem import LAUNCHES, SM_MARGIN
from impls.inhouse.tensors import ExtraOperands, Extras
from tests.impls.model_cases import HEADS, VARIANTS, Tried

ROWS, COLS = 6, 8
NAMES = ["dx", "dweight", "dbias", "partial", "state", "dy", "x", "weight", "mean", "rstd", "extra", "rows", "OPTION"]


class FakeCompiled:
    """What Triton's JIT returns: a kernel with its launcher, which writes down what it is told."""

    function, packed_metadata = 77, "metadata"

    def __init__(self, name, started, names):
        self.name, self.started, self.names = name, started, names

    def run(self, x, y, z, stream, function, metadata, launch_metadata, enter, leave, *args):
        assert (function, metadata) == (self.function, self.packed_metadata)
        assert (launch_metadata, enter, leave) == (None, None, None)
        self.started.append((self.name, (x, y, z), stream, dict(zip(self.names, args, strict=True))))


class FakeKernel:
    """A jitted kernel that is launched in the ordinary way."""

    def __init__(self, name, device, names=NAMES):
        self.arg_names, self.pre_run_hooks = names, []
        self.name, self.device = name, device
        self.compiled = FakeCompiled(name, device.started, names)

    def __getitem__(self, grid):
        def launch(*args, **options):
            self.device.ordinary.append(self.name)
            return self.compiled

        return launch


class FakeLaunch:
    """A launch of so many kernels, each with partials of its own."""

    def __init__(self, device, kernels=1):
        self.words = 4
        self.kernels = [FakeKernel(f"kernel {number}", device) for number in range(kernels)]

    def calls(self, tensors):
        state = workspace.workspace(tensors.x.device, self.words)
        partials = [tensors.empty((3, tensors.x.shape[1])) for _ in self.kernels]
        return [
            KernelCall(
                kernel,
                (5, 2),
                *tensors.gradients[:3],
                partial,
                state,
                tensors.dy.view(torch.int32),  # as `shared` reads two numbers at once
                *tensors.inputs[1:],
                tensors.extra_operands(),
                tensors.x.shape[0],
                OPTION="constant",
                num_warps=4,
            )
            for kernel, partial in zip(self.kernels, partials, strict=True)
        ]


class FakeDevice:
    """A GPU: what is current on it, and all launches, ordinary ones and those of kept calls."""

    def __init__(self):
        self.stream, self.current, self.capturing = 11, None, False
        self.stream_id, self.number = 3, 1  # torch's own number, which is the handle of a stream that is not torch's
        self.ordinary, self.started, self.allocated = [], [], []
        self.launch = FakeLaunch(self)

    def allocate(self, shape, strides, dtype):
        assert type(shape) is type(strides) is tuple  # torch's own takes no torch.Size
        self.allocated.append(torch.empty_strided(shape, strides, dtype=dtype))
        return self.allocated[-1]


@pytest.fixture
def gpu(request, monkeypatch):
    fake = FakeDevice()
    if getattr(request, "param", "") == "looked up":
        monkeypatch.setattr(bound, "make_guards", None)
    for name, value in (("is_cuda", True), ("is_cpu", False)):
        monkeypatch.setattr(torch.Tensor, name, value, raising=False)
    for module, replaced in {
        torch.cuda: {
            "current_stream": lambda device: SimpleNamespace(cuda_stream=fake.stream, stream_id=fake.stream_id),
            "is_current_stream_capturing": lambda: fake.capturing,
            "stream": contextlib.nullcontext,
            "device_of": contextlib.nullcontext,
        },
        graph_memory: {
            "piece": lambda device, size: torch.zeros(size, dtype=torch.int64),
            "number_of": lambda handle: fake.number,
        },
        bound: {
            "CompiledKernel": FakeCompiled,
            "current_stream": lambda index: fake.stream,
            "current_device": lambda: fake.current,
            "is_capturing": lambda: fake.capturing,
            "allocate": fake.allocate,
            "starts_as_known": lambda: True,
            "_kept": {},
            "_recent": {},
        },
        workspace: {"grown": [], "_by_stream": {}, "_scratch_by_stream": {}},
        backward: {"choose_for": lambda *args, **options: fake.launch},
        forward: {"forward_row": FakeKernel("forward", fake, forward.forward_row.arg_names)},
    }.items():
        for name, value in replaced.items():
            monkeypatch.setattr(module, name, value)
    return fake


def misaligned(tensor, items=1):
    """The same at an address that is no multiple of 16 bytes."""
    memory = torch.empty(tensor.numel() + 16, dtype=tensor.dtype)
    start = next(start for start in range(16) if memory[start:].data_ptr() % 16 == items * tensor.itemsize)
    return memory[start : start + tensor.numel()].view(tensor.shape)


class Call:
    """The arguments of one call; each is changed on its own by the tests."""

    def __init__(self, **changes):
        self.tensors = {
            "dy": torch.zeros(ROWS, COLS),
            "x": torch.zeros(ROWS, COLS),
            "weight": torch.zeros(COLS),
            "mean": torch.zeros(ROWS),
            "rstd": torch.zeros(ROWS),
        }
        self.options = {"has_bias": True}
        for name, change in changes.items():
            where = self.tensors if name in self.tensors else self.options
            where[name] = change(where[name]) if callable(change) and name in self.tensors else change

    def __call__(self):
        return norm_backward(*self.tensors.values(), **self.options)


def addresses_of(tensors):
    return {name: None if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()}


def warm(gpu, **changes):
    """One ordinary call, after which nothing was started in another way."""
    Call(**changes)()
    assert gpu.ordinary
    assert gpu.started == []
    gpu.ordinary.clear()


def is_kept(gpu, call):
    """Whether a call starts kernels that were kept."""
    before = len(gpu.ordinary), len(gpu.started)
    call()
    ordinary, started = len(gpu.ordinary) - before[0], len(gpu.started) - before[1]
    assert {ordinary, started} == {0, len(gpu.launch.kernels)}
    return started > 0


def test_a_second_call_starts_the_kernel_with_its_own_tensors(gpu):
    warm(gpu)
    call = Call()
    gpu.allocated.clear()
    dx, dweight, dbias = call()
    assert gpu.ordinary == []
    ((name, grid, stream, given),) = gpu.started
    assert (name, grid, stream) == ("kernel 0", (5, 2, 1), 11)
    own = {"dx": dx, "dweight": dweight, "dbias": dbias} | call.tensors
    assert {each: given[each] for each in own} == addresses_of(own)
    assert (given["rows"], given["OPTION"]) == (ROWS, "constant")
    (memory,) = workspace._by_stream.values()
    (scratch,) = workspace._scratch_by_stream.values()
    assert (given["state"], given["partial"]) == (memory.data_ptr() + 8 * workspace.FIXED_WORDS, scratch.data_ptr())
    assert scratch.nbytes >= 4 * 3 * COLS
    assert [each.data_ptr() for each in gpu.allocated] == [each.data_ptr() for each in (dx, dweight, dbias)]


def test_a_kept_call_reads_its_own_extra_tensors(gpu):
    """The planted fault: those of the first call, whose memory is somebody else's by then."""
    inputs = Call().tensors.values()
    both = [Extras(dres=torch.zeros(ROWS, COLS), z=torch.zeros(ROWS, COLS)) for _ in range(2)]
    for extras in both:
        found = backward_with_extras(*inputs, extras, has_bias=True)
    ((_, _, _, given),) = gpu.started
    extra = ExtraOperands(*given["extra"])
    own, first = ((extras.dres.data_ptr(), extras.z.data_ptr()) for extras in both[::-1])
    assert (extra.dres, extra.z) == own != first
    assert (extra.dz, extra.dres_stride, extra.dy1) == (found.dz.data_ptr(), COLS // 8, None)  # in units
    Call()()
    Call()()
    assert gpu.started[-1][3]["extra"] == ExtraOperands()


def test_outputs_have_the_shapes_and_dtypes_of_the_first_call(gpu):
    changes = {"x": lambda x: x.view(2, 3, COLS), "dy": lambda dy: dy.view(2, 3, COLS)}
    for change in ({}, changes, {"weight": lambda weight: weight.bfloat16()}, {"weight": None, "has_bias": False}):
        kernels = [[], []]
        outputs = [Call(launched=each, **change)() for each in kernels]
        first, second = (
            [each if each is None else (each.shape, each.stride(), each.dtype) for each in found] for found in outputs
        )
        assert first == second
        assert kernels == [[gpu.launch.kernels[0].compiled]] * 2
    assert len(gpu.started) == len(gpu.ordinary) == 4


def test_scratch_of_several_kernels_is_allocated_by_each_call(gpu):
    """Between two kernels of one call another thread may launch its own on the same stream."""
    gpu.launch = FakeLaunch(gpu, kernels=2)
    warm(gpu)
    gpu.allocated.clear()
    assert len(Call()()) == 3
    assert [started[3]["partial"] for started in gpu.started] == [each.data_ptr() for each in gpu.allocated[3:]]


# ------------------------------------------------------------------------------------------------ what decides

DECIDES = {
    "rows": {name: lambda t: torch.zeros(ROWS + 1, *t.shape[1:]) for name in ("dy", "x", "mean", "rstd")},
    "columns": {name: lambda t: torch.zeros(*t.shape[:-1], COLS + 2) for name in ("dy", "x", "weight")},
    "dimensions": {name: lambda t: t.view(2, 3, COLS) for name in ("dy", "x")},
    "dtype": {name: lambda t: t.bfloat16() for name in ("dy", "x")},
    "dtype of weight": {"weight": lambda t: t.bfloat16()},
    "stride of x": {"x": lambda t: torch.zeros(ROWS, 2 * COLS)[:, :COLS]},
    "stride of dy": {"dy": lambda t: torch.zeros(ROWS, 2 * COLS)[:, :COLS]},
    "expanded dy": {"dy": lambda t: t[:1].expand(ROWS, COLS)},
    "no weight": {"weight": None, "has_bias": False},
    "no mean": {"mean": None},
    "has_bias": {"has_bias": False},
    "zero_centred": {"zero_centred": True},
    "margin": {"sm_margin": 8},
    "no margin": {"sm_margin": 0},  # whatever the environment says
    "a subclass": {"x": lambda t: t.as_subclass(type("Sub", (torch.Tensor,), {}))},
    **{f"alignment of {name}": {name: misaligned} for name in ("dy", "x", "weight", "mean", "rstd")},
    "8 bytes of alignment in place of 4": {"x": lambda t: misaligned(t, 2)},
}


BOTH_WAYS = pytest.mark.parametrize("gpu", ["compared at once", "looked up"], indirect=True)


def decides(gpu, call, changes, what):
    """What is changed is not started by what was kept for the other, whichever came first; both are kept."""
    for first, second in (({}, changes), (changes, {})):
        bound.forget()
        call(**first)
        assert not is_kept(gpu, lambda second=second: call(**second)), what
        assert is_kept(gpu, call), what
        assert is_kept(gpu, lambda: call(**changes)) != (what == "a subclass"), what


@BOTH_WAYS
def test_what_decides_makes_another_call(gpu):
    for what, changes in DECIDES.items():
        decides(gpu, lambda **changes: Call(**changes)(), changes, what)


def test_the_environment_and_the_stream_decide_too(gpu, monkeypatch):
    launch = FakeLaunch(gpu)
    for change, back in (
        (lambda: monkeypatch.setenv(LAUNCHES, "a.json"), lambda: monkeypatch.delenv(LAUNCHES)),
        (lambda: monkeypatch.setenv(SM_MARGIN, "8"), lambda: monkeypatch.delenv(SM_MARGIN)),
        (lambda: setattr(gpu, "stream", 12), lambda: setattr(gpu, "stream", 11)),
    ):
        bound.forget()
        Call()()
        change()
        assert not is_kept(gpu, Call())
        assert is_kept(gpu, Call())
        back()
        assert is_kept(gpu, Call())
    (_, _, at_12, one), (_, _, at_11, other) = gpu.started[-2:]
    assert (at_12, at_11) == (12, 11)
    assert one["state"] != other["state"]
    assert one["partial"] != other["partial"]
    assert not is_kept(gpu, Call(launch=launch))
    assert is_kept(gpu, Call(launch=launch))
    assert not is_kept(gpu, Call(launch=FakeLaunch(gpu)))


def foreign_memory(monkeypatch, gpu):
    calls, foreign = FakeLaunch.calls, torch.zeros(3)

    def with_foreign(launch, tensors):
        (call,) = calls(launch, tensors)
        call.args = (*call.args[:3], foreign, *call.args[4:])
        return [call]

    monkeypatch.setattr(FakeLaunch, "calls", with_foreign)


def of_bound(name, value):
    return lambda monkeypatch, gpu: monkeypatch.setattr(bound, name, value)


def hooked(chain, hook):
    return lambda monkeypatch, gpu: monkeypatch.setitem(vars(bound.knobs.runtime), chain, hook)


def allocate_misaligned(shape, strides, dtype):
    return misaligned(torch.empty(shape, dtype=dtype))


HINDRANCES = {  # while each is so, nothing is kept; those that come after a call was kept also hinder that
    "a capture": (True, lambda monkeypatch, gpu: setattr(gpu, "capturing", True)),
    "a profiler at the begin": (True, hooked("launch_enter_hook", print)),
    "a profiler at the end": (True, hooked("launch_exit_hook", print)),
    "a chain of hooks that is not known": (True, hooked("launch_enter_hook", None)),
    "a hook of the kernel": (True, lambda monkeypatch, gpu: gpu.launch.kernels[0].pre_run_hooks.append(print)),
    "another current device": (True, lambda monkeypatch, gpu: setattr(gpu, "current", 1)),
    "memory of somebody else": (False, foreign_memory),
    "the interpreter": (False, of_bound("CompiledKernel", int)),
    "another Triton": (False, of_bound("starts_as_known", lambda: False)),
    "outputs that are not aligned": (True, of_bound("allocate", allocate_misaligned)),
}


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_what_is_not_sure_to_be_the_same_is_not_kept(gpu, monkeypatch, hindrance):
    hinders_kept_calls, hinder = HINDRANCES[hindrance]
    if hinders_kept_calls:
        warm(gpu)
        assert is_kept(gpu, Call())
    hinder(monkeypatch, gpu)
    for _ in range(2):
        assert not is_kept(gpu, Call())


@pytest.mark.parametrize(("knobs", "name"), [("runtime", "debug"), ("compilation", "instrumentation_mode")])
def test_other_settings_of_triton_make_another_call(gpu, monkeypatch, knobs, name):
    warm(gpu)
    assert is_kept(gpu, Call())
    monkeypatch.setitem(vars(getattr(bound.knobs, knobs)), name, "another")
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())


def test_this_triton_starts_kernels_as_known(monkeypatch):
    assert bound.starts_as_known.__wrapped__()
    monkeypatch.setattr(bound.JITFunction, "run", lambda self: self.kernel.run(self.grid, stream=self.stream))
    assert not bound.starts_as_known.__wrapped__()


@BOTH_WAYS
def test_inputs_at_one_address_make_another_call(gpu):
    """As where y and the residual are added up, and get one gradient; which of two the argument was cannot be told."""

    def shared(*names):
        memory = torch.zeros(ROWS, COLS)
        return Call(**({"dres": torch.zeros(ROWS, COLS)} | dict.fromkeys(names, memory)))

    for names in ((), ("dy", "dres"), ("x", "dres"), ("dy", "x", "dres")):
        assert not is_kept(gpu, shared(*names))
        call = shared(*names)
        assert is_kept(gpu, call)
        given = gpu.started[-1][3]
        addresses = given["dy"], given["x"], ExtraOperands(*given["extra"]).dres
        own = call.tensors["dy"], call.tensors["x"], call.options["dres"]
        assert addresses == tuple(each.data_ptr() for each in own)
    call = shared("dy", "dres")
    call.options["dres"] = call.tensors["dy"].as_strided((ROWS, COLS), (0, 1))  # otherwise not alike
    assert not is_kept(gpu, call)


def test_a_handle_that_another_stream_has_by_now_keeps_nothing(gpu):
    """Of streams that are not torch's, which never destroys its own."""
    gpu.stream_id = gpu.stream
    warm(gpu)
    assert is_kept(gpu, Call())
    gpu.number = 2
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())


def test_nothing_is_kept_of_what_is_released(gpu):
    warm(gpu)
    assert bound.release_memory()["words"] > 0
    assert not any(bound.release_memory().values())
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())
    triton_inhouse.release()
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())


def test_nothing_is_kept_where_every_launch_is_looked_at(gpu, monkeypatch):
    monkeypatch.setattr(bound, "IS_CHECKED", True)
    monkeypatch.setattr(backward, "IS_CHECKED", True)
    monkeypatch.setattr(checks, "take", FakeKernel("take", gpu, ["word"]))
    monkeypatch.setattr(checks, "free", FakeKernel("free", gpu, ["word"]))
    for _ in range(2):
        Call()()
    assert gpu.ordinary == 2 * ["take", "kernel 0", "free"]


@pytest.mark.parametrize("what", ["partials", "words"])
def test_more_memory_for_a_stream_drops_what_was_kept(gpu, what):
    """It would hold the smaller memory for ever."""
    warm(gpu)
    more = {"zero_centred": True}
    if what == "partials":
        more |= {name: (lambda t: torch.zeros(*t.shape[:-1], 999)) for name in ("dy", "x", "weight")}
    else:
        gpu.launch.words = 1000
    assert not is_kept(gpu, Call(**more))
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call(**more))
    assert is_kept(gpu, Call())
    assert len({started[3]["partial" if what == "partials" else "state"] for started in gpu.started}) == 1


@BOTH_WAYS
def test_only_so_many_are_kept(gpu, monkeypatch):
    monkeypatch.setattr(bound, "MOST_KEPT", 2)
    for rows in range(1, 9):
        changes = {name: lambda t, rows=rows: torch.zeros(rows, *t.shape[1:]) for name in ("dy", "x", "mean", "rstd")}
        assert not is_kept(gpu, Call(**changes))
        assert is_kept(gpu, Call(**changes))
        assert len(bound._kept) <= 2
        assert all(len(calls) <= bound.MOST_RECENT for calls in bound._recent.values())


def test_a_wrong_argument_is_refused_after_a_kept_call(gpu):
    warm(gpu)
    assert is_kept(gpu, Call())
    for message, changes in (
        ("unit column stride", {"x": lambda t: t.T.contiguous().T}),
        ("rstd must be fp32", {"rstd": lambda t: t.double()}),
        ("mean must be contiguous", {"mean": lambda t: t.repeat(2)[::2]}),
        ("one shape", {"dy": lambda t: t[:2]}),
    ):
        with pytest.raises(ValueError, match=message):
            Call(**changes)()


# ------------------------------------------------------------------------------------------------ in a model


@pytest.mark.parametrize("name", ["plain", *VARIANTS, *HEADS])
def test_every_variant_starts_what_was_kept_with_its_own_tensors(name, gpu):
    tried = [Tried(True, name) for _ in range(3)]  # two, as the first backward asks for more memory of the stream
    for each in tried[:2]:
        each.results(each.ours)
    gpu.ordinary.clear()
    gpu.started.clear()
    tried = tried[2]
    outputs, _, _ = tried.results(tried.ours)
    assert gpu.ordinary == []
    (_, grid, _, forth), (_, _, _, back) = gpu.started
    assert grid == (tried.x.numel() // tried.x.shape[-1], 1, 1)
    leaves = tried.leaves | {"x": tried.x}
    masks = dict(zip(("mask", "mask1"), tried.masks, strict=True)) if tried.options.get("dropout_p") else {}
    if "x1" not in leaves:
        masks.pop("mask1", None)
    given = {each: (leaves | masks).get(each) for each in Operands._fields}
    assert {each: forth[each] for each in given} == addresses_of(given)
    assert forth["y"] == outputs[0].data_ptr()
    assert back["dy"] == tried.came_back[0].data_ptr()
    assert (back["x"], back["rstd"], back["mean"]) == (forth["total"] or forth["x"], forth["rstd"], forth["mean"])
    extra = ExtraOperands(*back["extra"])._asdict()
    extras = {each: given[each] for each in ("mask", "mask1", "weight1", "z")}
    assert {each: extra[each] for each in extras} == addresses_of(extras)
    assert extra["dy1"] == (tried.came_back[1].data_ptr() if "weight1" in leaves else None)


FORWARD = {  # what is changed of a forward with a residual, dropout, a second branch and a gate
    "zero_centred": {"zero_centred": True},
    "sm_margin": {"sm_margin": 8},
    "eps": {"eps": 1e-3},
    "dropout_p": {"dropout_p": 0.5},
    "norm_before_gate": {"norm_before_gate": False},
    **{f"no {name}": {name: None} for name in ("residual", "x1", "z")},
    "rows": {name: torch.zeros(ROWS + 1, COLS) for name in ("x", "residual", "x1", "z")},
    "dtype": {name: torch.zeros(ROWS, COLS).bfloat16() for name in ("x", "residual", "x1", "z")},
    "dtype of weight": {"weight": torch.zeros(COLS).bfloat16()},
    **{f"alignment of {name}": {name: misaligned(torch.zeros(ROWS, COLS))} for name in ("x", "residual", "x1", "z")},
    "alignment of weight": {"weight": misaligned(torch.zeros(COLS))},
}


@BOTH_WAYS
def test_what_decides_makes_another_forward(gpu):
    def call(**changes):
        given = {name: torch.zeros(ROWS, COLS) for name in ("x", "residual", "x1", "z")} | {"weight": torch.zeros(COLS)}
        rms_norm(**(given | {"dropout_p": 0.25} | changes))

    for what, changes in FORWARD.items():
        decides(gpu, call, changes, what)


def test_a_residual_and_a_second_branch_are_told_apart(gpu):
    """They are as many tensors of the same kinds."""
    x, other = torch.zeros(ROWS, COLS), torch.zeros(ROWS, COLS)
    assert not is_kept(gpu, lambda: rms_norm(x, residual=other))
    assert not is_kept(gpu, lambda: rms_norm(x, x1=other))
    assert is_kept(gpu, lambda: rms_norm(x, residual=other))
    assert gpu.started[-1][3]["residual"] == other.data_ptr()
    assert not is_kept(gpu, lambda: rms_norm(x, residual=x))


EXTRAS = {  # what is changed of a backward with all that fits together
    "p": {"p": 0.5},
    "norm_first": {"norm_first": False},
    "no dres": {"dres": None},
    "no mask1": {"mask1": None},
    "a second norm": {"dy1": torch.zeros(ROWS, COLS), "weight1": torch.zeros(COLS), "z": None, "norm_first": False},
    "masks of bool": {name: torch.zeros(ROWS, COLS, dtype=torch.bool) for name in ("mask", "mask1")},
    "stride of dres": {"dres": torch.zeros(ROWS, 2 * COLS)[:, :COLS]},
    "dtype of bias": {"bias": torch.zeros(COLS).bfloat16()},
    "alignment of z": {"z": misaligned(torch.zeros(ROWS, COLS))},
    "alignment of mask1": {"mask1": misaligned(torch.zeros(ROWS, COLS, dtype=torch.uint8))},
    "alignment of bias": {"bias": misaligned(torch.zeros(COLS))},
}


@BOTH_WAYS
def test_what_is_extra_makes_another_backward(gpu):
    def call(**changes):
        rows = {name: torch.zeros(ROWS, COLS) for name in ("dres", "z")}
        masks = {name: torch.zeros(ROWS, COLS, dtype=torch.uint8) for name in ("mask", "mask1")}
        extras = rows | masks | {"bias": torch.zeros(COLS), "p": 0.25, "norm_first": True} | changes
        backward_with_extras(*Call().tensors.values(), Extras(**extras), has_bias=True)

    call(dy1=torch.zeros(ROWS, COLS), weight1=torch.zeros(COLS))  # so that the stream has its memory
    for what, changes in EXTRAS.items():
        decides(gpu, call, changes, what)


def test_a_class_that_is_not_known_is_asked_for_no_memory(gpu):
    """As torch's fake tensors have none."""

    class WithoutMemory(torch.Tensor):
        def data_ptr(self):
            raise RuntimeError

    x = torch.zeros(ROWS, COLS)
    rms_norm(x)
    assert is_kept(gpu, lambda: rms_norm(x))
    assert bound.find((x.as_subclass(WithoutMemory), None, None), "forward", NormOptions(False, 1e-6)) is None
