"""Launches that are kept: what a second call passes to the kernels, and all that makes a call another one.

Kernels, device and streams are fakes; what they were told is compared with what the call was given.
"""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from impls.inhouse import backward, bound, graph_memory, workspace
from impls.inhouse.backward import backward_around, norm_backward
from impls.inhouse.launch import KernelCall
from impls.inhouse.model import forward, rms_norm
from impls.inhouse.model.operands import Options
from impls.inhouse.problem import LAUNCHES, SM_MARGIN
from impls.inhouse.tensors import Around, Beside
from tests.impls.test_model_variants import HEADS, VARIANTS, Tried

ROWS, COLS = 6, 8
NAMES = ["dx", "dweight", "dbias", "partial", "state", "dy", "x", "weight", "mean", "rstd", "beside", "rows", "OPTION"]


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
                tensors.dx,
                tensors.dweight,
                tensors.dbias,
                partial,
                state,
                tensors.dy.view(torch.int32),  # as `shared` reads two numbers at once
                tensors.x,
                tensors.weight,
                tensors.mean,
                tensors.rstd,
                tensors.beside(),
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
        self.ordinary, self.started, self.allocated = [], [], []
        self.launch = FakeLaunch(self)

    def allocate(self, shape, strides, dtype):
        assert type(shape) is type(strides) is tuple  # torch's own takes no torch.Size
        self.allocated.append(torch.empty_strided(shape, strides, dtype=dtype))
        return self.allocated[-1]


@pytest.fixture(params=["compared at once", "looked up"])
def gpu(request, monkeypatch):
    fake = FakeDevice()
    if request.param == "looked up":
        monkeypatch.setattr(bound, "make_guards", None)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=fake.stream))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: fake.capturing)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
    monkeypatch.setattr(graph_memory, "piece", lambda device, size: torch.zeros(size, dtype=torch.int64))
    monkeypatch.setattr(bound, "CompiledKernel", FakeCompiled)
    monkeypatch.setattr(bound, "current_stream", lambda index: fake.stream)
    monkeypatch.setattr(bound, "current_device", lambda: fake.current)
    monkeypatch.setattr(bound, "is_capturing", lambda: fake.capturing)
    monkeypatch.setattr(bound, "allocate", fake.allocate)
    monkeypatch.setattr(bound, "starts_as_known", lambda: True)
    monkeypatch.setattr(workspace, "grown", [])
    monkeypatch.setattr(backward, "choose_for", lambda *args, **options: fake.launch)
    monkeypatch.setattr(forward, "forward_row", FakeKernel("forward", fake, forward.forward_row.arg_names))
    for module, name in (
        (bound, "_kept"),
        (bound, "_recent"),
        (workspace, "_by_stream"),
        (workspace, "_scratch_by_stream"),
    ):
        monkeypatch.setattr(module, name, {})
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
    assert {each: given[each] for each in own} == {each: tensor.data_ptr() for each, tensor in own.items()}
    assert (given["rows"], given["OPTION"]) == (ROWS, "constant")
    (memory,) = workspace._by_stream.values()
    (scratch,) = workspace._scratch_by_stream.values()
    assert (given["state"], given["partial"]) == (memory.data_ptr() + 8 * workspace.FIXED_WORDS, scratch.data_ptr())
    assert scratch.nbytes >= 4 * 3 * COLS
    assert [each.data_ptr() for each in gpu.allocated] == [each.data_ptr() for each in (dx, dweight, dbias)]


def test_a_kept_call_reads_its_own_tensors_around_the_norm(gpu):
    """The planted fault: those of the first call, whose memory is somebody else's by then."""
    inputs = Call().tensors.values()
    arounds = [Around(dres=torch.zeros(ROWS, COLS), z=torch.zeros(ROWS, COLS)) for _ in range(2)]
    for around in arounds:
        found = backward_around(*inputs, around, has_bias=True)
    ((_, _, _, given),) = gpu.started
    beside = Beside(*given["beside"])
    own, first = ((around.dres.data_ptr(), around.z.data_ptr()) for around in arounds[::-1])
    assert (beside.dres, beside.z) == own != first
    assert (beside.dz, beside.dres_stride, beside.dy1) == (found.dz.data_ptr(), COLS // 8, None)  # in units
    Call()()
    Call()()
    assert gpu.started[-1][3]["beside"] == Beside()
    Call(dres=torch.zeros(ROWS, COLS))()
    dres = torch.zeros(ROWS, COLS)
    Call(dres=dres)()
    assert Beside(*gpu.started[-1][3]["beside"]).dres == dres.data_ptr()


def test_outputs_have_the_shapes_and_dtypes_of_the_first_call(gpu):
    changes = {"x": lambda x: x.view(2, 3, COLS), "dy": lambda dy: dy.view(2, 3, COLS)}
    for change in ({}, changes, {"weight": lambda weight: weight.bfloat16()}, {"weight": None, "has_bias": False}):
        first, second = Call(**change)(), Call(**change)()
        traits = [
            [each if each is None else (each.shape, each.stride(), each.dtype) for each in outputs]
            for outputs in (first, second)
        ]
        assert traits[0] == traits[1]
    assert len(gpu.started) == len(gpu.ordinary) == 4


def test_compiled_kernels_are_told_of_a_kept_call_too(gpu):
    kernels = [[], []]
    for each in kernels:
        Call(launched=each)()
    assert kernels[0] == kernels[1] == [gpu.launch.kernels[0].compiled]


def test_scratch_of_several_kernels_is_allocated_by_each_call(gpu):
    """Between two kernels of one call another thread may launch its own on the same stream."""
    gpu.launch = FakeLaunch(gpu, kernels=2)
    warm(gpu)
    gpu.allocated.clear()
    results = Call()()
    assert len(results) == 3
    assert [started[3]["partial"] for started in gpu.started] == [each.data_ptr() for each in gpu.allocated[3:]]
    (memory,) = workspace._by_stream.values()
    assert [started[3]["state"] for started in gpu.started] == [memory.data_ptr() + 8 * workspace.FIXED_WORDS] * 2


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
    "a subclass": {"x": lambda t: t.as_subclass(type("Sub", (torch.Tensor,), {}))},
    **{f"alignment of {name}": {name: misaligned} for name in ("dy", "x", "weight", "mean", "rstd")},
    "8 bytes of alignment in place of 4": {"x": lambda t: misaligned(t, 2)},
}


@pytest.mark.parametrize("changes", DECIDES.values(), ids=DECIDES.keys())
def test_what_decides_makes_another_call(gpu, changes):
    warm(gpu)
    assert is_kept(gpu, Call())
    assert not is_kept(gpu, Call(**changes))
    assert is_kept(gpu, Call())  # the first is still there


def test_the_last_calls_are_compared_at_once(gpu):
    warm(gpu)
    Call()()
    assert sum(map(len, bound._recent.values())) == (bound.make_guards is not None)
    for rows in range(1, 2 + bound.MOST_RECENT):
        changes = {name: lambda t, rows=rows: torch.zeros(rows, *t.shape[1:]) for name in ("dy", "x", "mean", "rstd")}
        for _ in range(3):
            Call(**changes)()
    assert all(len(calls) <= bound.MOST_RECENT for calls in bound._recent.values())
    assert is_kept(gpu, Call())


@pytest.mark.parametrize("changes", DECIDES.values(), ids=DECIDES.keys())
def test_one_that_was_kept_does_not_serve_the_plain_call(gpu, changes):
    Call(**changes)()
    assert not is_kept(gpu, Call())


def test_another_launch_makes_another_call(gpu):
    warm(gpu)
    launch = FakeLaunch(gpu)
    assert not is_kept(gpu, Call(launch=launch))
    assert is_kept(gpu, Call(launch=launch))
    assert gpu.started[-1][0] == launch.kernels[0].name
    assert not is_kept(gpu, Call(launch=FakeLaunch(gpu)))


@pytest.mark.parametrize("variable", ["a.json", "b.json"])
def test_another_file_of_launches_makes_another_call(gpu, monkeypatch, variable):
    warm(gpu)
    monkeypatch.setenv(LAUNCHES, variable)
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())
    monkeypatch.setenv(LAUNCHES, "another.json")
    assert not is_kept(gpu, Call())
    monkeypatch.delenv(LAUNCHES)
    assert is_kept(gpu, Call())


def test_another_margin_makes_another_call(gpu, monkeypatch):
    warm(gpu)
    assert not is_kept(gpu, Call(sm_margin=8))
    assert is_kept(gpu, Call(sm_margin=8))
    assert not is_kept(gpu, Call(sm_margin=0))  # whatever the environment says
    monkeypatch.setenv(SM_MARGIN, "8")
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())
    monkeypatch.delenv(SM_MARGIN)
    assert is_kept(gpu, Call())


def test_another_stream_has_its_own(gpu):
    warm(gpu)
    gpu.stream = 12
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())
    gpu.stream = 11
    assert is_kept(gpu, Call())
    (_, _, at_12, one), (_, _, at_11, other) = gpu.started
    assert (at_12, at_11) == (12, 11)
    assert one["state"] != other["state"]
    assert one["partial"] != other["partial"]


def test_nothing_is_kept_for_tensors_of_another_device_than_the_current(gpu):
    """It would be launched on the current one."""
    gpu.current = 1  # the tensors' has no number
    for _ in range(3):
        assert not is_kept(gpu, Call())
    gpu.current = None
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())


def test_a_capture_goes_the_ordinary_way(gpu):
    warm(gpu)
    gpu.capturing = True
    for _ in range(2):
        assert not is_kept(gpu, Call())
    gpu.capturing = False
    assert is_kept(gpu, Call())


@pytest.mark.parametrize("chain", ["launch_enter_hook", "launch_exit_hook"])
def test_a_profiler_hears_of_every_launch(gpu, chain):
    def hook(*args):
        """Listen."""

    warm(gpu)
    assert is_kept(gpu, Call())
    listeners = getattr(bound.knobs.runtime, chain)
    listeners.add(hook)
    try:
        for _ in range(2):
            assert not is_kept(gpu, Call())
            assert not is_kept(gpu, Call(zero_centred=True))
    finally:
        listeners.remove(hook)
    assert is_kept(gpu, Call())
    assert not is_kept(gpu, Call(zero_centred=True))  # nothing was kept meanwhile


@pytest.mark.parametrize("chain", ["launch_enter_hook", "launch_exit_hook"])
@pytest.mark.parametrize("hook", [None, print])
def test_a_hook_in_place_of_the_chain_is_heard(gpu, monkeypatch, chain, hook):
    warm(gpu)
    assert is_kept(gpu, Call())
    monkeypatch.setitem(vars(bound.knobs.runtime), chain, hook)
    for _ in range(2):
        assert not is_kept(gpu, Call())


def test_a_hook_of_the_kernel_is_heard(gpu):
    warm(gpu)
    assert is_kept(gpu, Call())
    gpu.launch.kernels[0].pre_run_hooks.append(print)
    assert not is_kept(gpu, Call())
    gpu.launch.kernels[0].pre_run_hooks.clear()
    assert is_kept(gpu, Call())


@pytest.mark.parametrize(
    ("knobs", "name", "value"), [("runtime", "debug", True), ("compilation", "instrumentation_mode", "fpsan")]
)
def test_other_settings_of_triton_are_kept_to(gpu, monkeypatch, knobs, name, value):
    warm(gpu)
    assert is_kept(gpu, Call())
    monkeypatch.setitem(vars(getattr(bound.knobs, knobs)), name, value)
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())  # bound with that setting
    monkeypatch.undo()


def test_inputs_at_one_address_make_another_call(gpu):
    """As where y and the residual are added up, and get one gradient; which of two the argument was cannot be told."""

    def shared(*names):
        memory = torch.zeros(ROWS, COLS)
        changes = {name: memory if name in ("x", "dy", "dres") else torch.zeros(ROWS) for name in names}
        return Call(**({"dres": torch.zeros(ROWS, COLS)} | changes))

    for names in ((), ("dy", "dres"), ("x", "dres"), ("dy", "x", "dres")):
        assert not is_kept(gpu, shared(*names))
        call = shared(*names)
        assert is_kept(gpu, call)
        given = gpu.started[-1][3]
        addresses = given["dy"], given["x"], Beside(*given["beside"]).dres
        own = call.tensors["dy"], call.tensors["x"], call.options["dres"]
        assert addresses == tuple(each.data_ptr() for each in own)
        traits = shared(*names)
        assert is_kept(gpu, traits)
    assert is_kept(gpu, shared())
    for names in (("dy", "dres"), ("x", "dres")):
        call = shared(*names)
        view = call.tensors["dy"] if "dy" in names else call.tensors["x"]
        call.options["dres"] = view.as_strided((ROWS, COLS), (0, 1))  # at one address, and otherwise not alike
        assert not is_kept(gpu, call)


def test_memory_that_is_not_known_is_not_kept(gpu, monkeypatch):
    calls = FakeLaunch.calls
    foreign = torch.zeros(3)

    def with_foreign(launch, tensors):
        (call,) = calls(launch, tensors)
        call.args = (*call.args[:3], foreign, *call.args[4:])
        return [call]

    monkeypatch.setattr(FakeLaunch, "calls", with_foreign)
    for _ in range(2):
        assert not is_kept(gpu, Call())


def test_an_output_that_is_not_aligned_goes_the_ordinary_way(gpu, monkeypatch):
    warm(gpu)
    monkeypatch.setattr(bound, "allocate", lambda shape, strides, dtype: misaligned(torch.empty(shape, dtype=dtype)))
    assert not is_kept(gpu, Call())


def test_what_is_interpreted_is_not_kept(gpu, monkeypatch):
    monkeypatch.setattr(bound, "CompiledKernel", int)
    for _ in range(2):
        assert not is_kept(gpu, Call())


def test_another_triton_is_not_kept(gpu, monkeypatch):
    monkeypatch.setattr(bound, "starts_as_known", lambda: False)
    for _ in range(2):
        assert not is_kept(gpu, Call())


def test_this_triton_starts_kernels_as_known(monkeypatch):
    assert bound.starts_as_known.__wrapped__()
    monkeypatch.setattr(bound.JITFunction, "run", lambda self: self.kernel.run(self.grid, stream=self.stream))
    assert not bound.starts_as_known.__wrapped__()


def test_more_memory_for_a_stream_drops_what_was_kept(gpu):
    """It would hold the smaller memory for ever."""
    warm(gpu)
    wide = {name: (lambda t: torch.zeros(*t.shape[:-1], 999)) for name in ("dy", "x", "weight")}
    assert not is_kept(gpu, Call(**wide))
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call(**wide))
    assert is_kept(gpu, Call())
    assert len({started[3]["partial"] for started in gpu.started}) == 1


def test_more_words_for_a_stream_drop_what_was_kept(gpu):
    warm(gpu)
    gpu.launch.words = 1000
    assert not is_kept(gpu, Call(zero_centred=True))
    assert not is_kept(gpu, Call())
    assert is_kept(gpu, Call())
    assert is_kept(gpu, Call(zero_centred=True))
    assert len({started[3]["state"] for started in gpu.started}) == 1


def test_only_so_many_are_kept(gpu, monkeypatch):
    monkeypatch.setattr(bound, "MOST_KEPT", 2)
    for rows in (1, 2, 3):
        changes = {name: lambda t, rows=rows: torch.zeros(rows, *t.shape[1:]) for name in ("dy", "x", "mean", "rstd")}
        assert not is_kept(gpu, Call(**changes))
        assert is_kept(gpu, Call(**changes))
    assert len(bound._kept) == 1


def test_a_wrong_argument_is_refused_after_a_kept_call(gpu):
    warm(gpu)
    assert is_kept(gpu, Call())
    for message, changes in (
        ("unit column stride", {"x": lambda t: t.T.contiguous().T}),
        ("rstd must be fp32", {"rstd": lambda t: t.double()}),
        ("mean must be contiguous", {"mean": lambda t: t.repeat(2)[::2]}),
        ("weight must be contiguous", {"weight": lambda t: t[:4]}),
        ("one shape", {"dy": lambda t: t[:2]}),
    ):
        with pytest.raises(ValueError, match=message):
            Call(**changes)()


# ------------------------------------------------------------------------------------------------ in a model


def addresses_of(tensors):
    return {name: None if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", ["plain", *VARIANTS, *HEADS])
@pytest.mark.parametrize("layer", [False, True])
def test_every_variant_starts_what_was_kept_with_its_own_tensors(name, layer, gpu, monkeypatch):
    tried = [Tried(layer, name) for _ in range(3)]  # two, as the first backward asks for more memory of the stream
    for each in tried[:2]:
        each.results(each.ours, monkeypatch)
    assert gpu.ordinary == ["forward", "kernel 0", "forward"]
    gpu.ordinary.clear()
    gpu.started.clear()
    tried = tried[2]
    outputs, found, _ = tried.results(tried.ours, monkeypatch)
    (_, grid, _, forth), (_, _, _, back) = gpu.started
    assert gpu.ordinary == []
    leaves, total, y1 = tried.leaves | {"x": tried.x}, tried.x, None
    assert grid == (tried.x.numel() // tried.x.shape[-1], 1, 1)
    masks = dict(zip(("mask", "mask1"), tried.masks, strict=True)) if tried.options.get("dropout_p") else {}
    if "x1" not in leaves:
        masks.pop("mask1", None)
    names = "x", "weight", "bias", "residual", "mask", "x1", "mask1", "weight1", "bias1", "z"
    given = {each: (leaves | masks).get(each) for each in names}
    assert {each: forth[each] for each in names} == addresses_of(given)
    y, *more = outputs
    if "weight1" in leaves:
        y1 = more.pop(0)
    if "residual" in leaves or "x1" in leaves or masks:
        total = more.pop(0) if more else None  # else autograd alone has it
    assert (forth["y"], forth["y1"]) == tuple(addresses_of({"y": y, "y1": y1}).values())
    dy, *rest = tried.came_back[: len(outputs)]
    dy1 = rest.pop(0) if "weight1" in leaves else None
    assert back["dy"] == dy.data_ptr()
    assert back["x"] == (forth["total"] or tried.x.data_ptr())
    assert total is None or back["x"] == total.data_ptr()
    assert (back["weight"], back["rstd"], back["mean"]) == (leaves["weight"].data_ptr(), forth["rstd"], forth["mean"])
    beside = Beside(*back["beside"])._asdict()
    around = {each: given[each] for each in ("mask", "mask1", "weight1", "z")} | {"dy1": dy1}
    assert {each: beside[each] for each in around} == addresses_of(around)
    gradients = {"weight": back["dweight"], "bias": back["dbias"], "weight1": beside["dweight1"], "z": beside["dz"]}
    assert {each: address for each, address in gradients.items() if each in found} == addresses_of(
        {each: found[each] for each in gradients if each in found}
    )


FORWARD = {  # what is changed of a forward with a residual, dropout, a second branch and a gate
    **{option: {option: value} for option, value in {"zero_centred": True, "sm_margin": 8}.items()},
    "eps": {"eps": 1e-3},
    "dropout_p": {"dropout_p": 0.5},
    "norm_before_gate": {"norm_before_gate": False},
    **{f"no {name}": {name: None} for name in ("residual", "x1", "z")},
    "rows": {name: torch.zeros(ROWS + 1, COLS) for name in ("x", "residual", "x1", "z")},
    "columns": {
        name: torch.zeros(*rows, COLS + 4)
        for name, rows in {"x": [ROWS], "residual": [ROWS], "x1": [ROWS], "z": [ROWS], "weight": []}.items()
    },
    "dtype": {name: torch.zeros(ROWS, COLS).bfloat16() for name in ("x", "residual", "x1", "z")},
    "dtype of weight": {"weight": torch.zeros(COLS).bfloat16()},
    **{f"alignment of {name}": {name: misaligned(torch.zeros(ROWS, COLS))} for name in ("x", "residual", "x1", "z")},
    "alignment of weight": {"weight": misaligned(torch.zeros(COLS))},
}


@pytest.mark.parametrize("changes", FORWARD.values(), ids=FORWARD.keys())
def test_what_decides_makes_another_forward(gpu, changes):
    def call(**changes):
        given = {name: torch.zeros(ROWS, COLS) for name in ("x", "residual", "x1", "z")} | {"weight": torch.zeros(COLS)}
        rms_norm(**(given | {"dropout_p": 0.25} | changes))

    assert not is_kept(gpu, call)
    assert is_kept(gpu, call)
    assert not is_kept(gpu, lambda: call(**changes))
    assert is_kept(gpu, call)
    assert is_kept(gpu, lambda: call(**changes))


def test_one_added_tensor_is_not_another(gpu):
    """A residual and a second branch are as many tensors of the same kinds."""
    x, other = torch.zeros(ROWS, COLS), torch.zeros(ROWS, COLS)
    assert not is_kept(gpu, lambda: rms_norm(x, residual=other))
    assert not is_kept(gpu, lambda: rms_norm(x, x1=other))
    assert is_kept(gpu, lambda: rms_norm(x, residual=other))
    assert gpu.started[-1][3]["residual"] == other.data_ptr()
    assert not is_kept(gpu, lambda: rms_norm(x, residual=x))
    gpu.stream = 12
    assert not is_kept(gpu, lambda: rms_norm(x, residual=other))


AROUND = {  # what is changed of a backward with all that fits together
    "p": {"p": 0.5},
    "norm_first": {"norm_first": False},
    "no dres": {"dres": None},
    "no mask1": {"mask1": None},
    "a second norm": {"dy1": torch.zeros(ROWS, COLS), "weight1": torch.zeros(COLS), "z": None, "norm_first": False},
    "masks of bool": {name: torch.zeros(ROWS, COLS, dtype=torch.bool) for name in ("mask", "mask1")},
    "stride of dres": {"dres": torch.zeros(ROWS, 2 * COLS)[:, :COLS]},
    "stride of z": {"z": torch.zeros(ROWS, 2 * COLS)[:, :COLS]},
    "dtype of bias": {"bias": torch.zeros(COLS).bfloat16()},
    **{f"alignment of {name}": {name: misaligned(torch.zeros(ROWS, COLS))} for name in ("dres", "z")},
    **{
        f"alignment of {name}": {name: misaligned(torch.zeros(ROWS, COLS, dtype=torch.uint8))}
        for name in ("mask", "mask1")
    },
    "alignment of bias": {"bias": misaligned(torch.zeros(COLS))},
}


@pytest.mark.parametrize("changes", AROUND.values(), ids=AROUND.keys())
def test_what_is_around_makes_another_backward(gpu, changes):
    def call(**changes):
        around = {
            "dres": torch.zeros(ROWS, COLS),
            "mask": torch.zeros(ROWS, COLS, dtype=torch.uint8),
            "mask1": torch.zeros(ROWS, COLS, dtype=torch.uint8),
            "z": torch.zeros(ROWS, COLS),
            "bias": torch.zeros(COLS),
            "p": 0.25,
            "norm_first": True,
        } | changes
        backward_around(*Call().tensors.values(), Around(**around), has_bias=True)

    for more in ({"p": 0.25}, changes):
        assert not is_kept(gpu, lambda more=more: call(**more))
    assert is_kept(gpu, call)
    assert is_kept(gpu, lambda: call(**changes))


def test_a_kept_forward_is_not_asked_for_what_has_no_memory(gpu):
    """As torch's fake tensors have none: a class that is not known is looked at no further."""

    class WithoutMemory(torch.Tensor):
        def data_ptr(self):
            raise RuntimeError

    x = torch.zeros(ROWS, COLS)
    rms_norm(x)
    assert is_kept(gpu, lambda: rms_norm(x))
    assert bound.find((x.as_subclass(WithoutMemory), None, None), "forward", Options(False, 1e-6)) is None
    assert bound.find((x, None, None), "forward", Options(False, 1e-6)) is not None
