"""The in-house kernels' maths, in Triton's interpreter: right, rounded once, reproducible, and refusing the rest."""

import dataclasses
from itertools import product

import pytest
import torch

from harness.cases import make_inputs
from impls import triton_inhouse
from impls.inhouse import backward, workspace
from impls.inhouse.backward import norm_backward
from impls.inhouse.problem import GpuLimits
from impls.inhouse.regimes import shared
from impls.inhouse.regimes.choice import choose
from impls.inhouse.regimes.few_rows import FewRows
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.regimes.shared import Shared
from impls.inhouse.regimes.two_pass import TwoPass
from tests.impls.gpuless import KERNELS
from tests.impls.inhouse_cases import check, cpu_case, gradients, reference, rho
from tests.impls.problems import WITH_ACCUMULATORS, problem

H200 = GpuLimits(multiprocessors=132, shared_bytes=227 * 1024, shared_total=228 * 1024, ptx=True)
RTX = GpuLimits(multiprocessors=170, shared_bytes=99 * 1024, shared_total=100 * 1024, ptx=True)
MI300 = GpuLimits(multiprocessors=304, shared_bytes=64 * 1024, shared_total=64 * 1024)
WIDE = TwoPass(rows=2, cols=64, warps=4, groups=3, sum_cols=128)
FEW = FewRows(rows=4, cols=64, chunks=4, row_cols=64, warps=4)


PARAMETERS = [
    {},
    {"zero_centred": True},
    {"weight": False},
]


NORMS = [("rms", False, parameters) for parameters in PARAMETERS]
NORMS += [("layer", False, parameters) for parameters in PARAMETERS]
NORMS += [("layer", True, parameters) for parameters in PARAMETERS if parameters.get("weight", True)]


@pytest.mark.parametrize("rows", [7, 33])  # few for what a CPU looks like, and many
@pytest.mark.parametrize("cols", [17, 256, 600])
@pytest.mark.parametrize(("norm", "bias", "parameters"), NORMS, ids=str)
def test_every_norm_with_every_parameter(norm, bias, parameters, cols, rows):
    check(make_inputs(cpu_case(norm, rows, cols, bias=bias, **parameters), seed=1))


@pytest.mark.parametrize("rows", [7, 33])
@pytest.mark.parametrize(("dtype", "weight_dtype"), [*product(("bf16", "fp16", "fp32"), repeat=2)])
def test_weight_may_have_another_dtype_than_x(dtype, weight_dtype, rows):
    check(make_inputs(cpu_case("layer", rows, 256, dtype=dtype, weight_dtype=weight_dtype, bias=True), seed=2))


@pytest.mark.parametrize(("rows", "cols"), [(1, 17), (1, 1000), (3, 1024), (7, 2880), (2, 8192), (2, 9000)])
def test_the_launch_of_each_width_is_right(rows, cols):
    inputs = make_inputs(cpu_case("rms", rows, cols), seed=3)
    check(inputs)


@pytest.mark.parametrize("rows", [1, 65])
def test_one_column_cancels_to_almost_nothing(rows):
    """With one column xhat is near 1, and dx is what fp32 leaves of a difference of equals: bounded, not relative."""
    inputs = make_inputs(cpu_case("rms", rows, 1), seed=3)
    dx, dweight, _ = gradients(inputs)
    wanted_dx, wanted_dweight, _, _ = reference(inputs)
    assert (dx.double() - wanted_dx).abs().max() <= 2**-8 * wanted_dx.abs().max() + 2**-20 * inputs.rstd.max()
    assert rho(dweight, wanted_dweight) <= 1.05


@pytest.mark.parametrize(("norm", "bias"), [("rms", False), ("layer", True)])
@pytest.mark.parametrize(
    "launch",
    [
        OnePass(rows=8, chunks=3, cols=64, warps=4, programs=2, fold=False),
        OnePass(rows=4, chunks=2, cols=128, warps=2, programs=3, fold=True, stages=1),
        WIDE,
        FEW,
    ],
    ids=lambda launch: f"{type(launch).__name__}-{launch.rows}x{launch.cols}",
)
def test_an_explicit_launch_is_honoured(norm, bias, launch):
    check(make_inputs(cpu_case(norm, 17, 190, bias=bias), seed=4), launch=launch)


@pytest.mark.parametrize("launch", [None, WIDE, FEW])
def test_rows_may_be_strided(launch):
    inputs = make_inputs(cpu_case("layer", 9, 190, bias=True), seed=5)
    wide = torch.full((9, 200), float("nan"), dtype=inputs.x.dtype)
    x, dy = wide[:, 3:193].copy_(inputs.x), wide.clone()[:, :190].copy_(inputs.dy)
    strided = gradients(dataclasses.replace(inputs, x=x, dy=dy), launch=launch)
    for got, wanted in zip(strided, gradients(inputs, launch=launch), strict=True):
        assert torch.equal(got, wanted)


def test_dy_may_be_one_row_expanded():
    inputs = make_inputs(cpu_case("rms", 9, 256), seed=6)
    dy = inputs.dy[:1].expand(9, 256)
    check(dataclasses.replace(inputs, dy=dy))


@pytest.mark.parametrize("bias", [False, True])
def test_no_rows_give_zero_parameter_gradients(bias):
    dx, dweight, dbias = gradients(make_inputs(cpu_case("layer", 0, 64, bias=bias), seed=7))
    assert dx.shape == (0, 64)
    assert dx.dtype == dweight.dtype == torch.bfloat16
    assert torch.equal(dweight, torch.zeros(64, dtype=torch.bfloat16))
    assert dbias is None if not bias else torch.equal(dbias, dweight)


@pytest.mark.parametrize("launch", [None, WIDE, FEW])
def test_the_same_bits_again(launch):
    inputs = make_inputs(cpu_case("layer", 17, 256, bias=True), seed=8)
    first, second = gradients(inputs, launch=launch), gradients(inputs, launch=launch)
    assert all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("launch", [None, WIDE, FEW])
def test_a_row_of_nan_spoils_only_its_own_dx(launch):
    inputs = make_inputs(cpu_case("layer", 9, 190, bias=True), seed=9)
    clean = gradients(inputs, launch=launch)[0]
    inputs.dy[4] = float("nan")
    dx, dweight, dbias = gradients(inputs, launch=launch)
    others = [row for row in range(9) if row != 4]
    assert torch.equal(dx[others], clean[others])
    assert dx[4].isnan().all()
    assert dweight.isnan().all()
    assert dbias.isnan().all()


def test_a_row_correction_that_is_left_out_would_be_seen():
    """The planted fault: what `check` compares is not so forgiving that half of the formula could be missing."""
    inputs = make_inputs(cpu_case("layer", 17, 256, bias=True), seed=10)
    dx = gradients(inputs)[0]
    wrong = dx.float() + inputs.rstd[:, None] * (inputs.dy.float() * inputs.weight.float()).mean(1, keepdim=True)
    assert rho(dx, reference(inputs)[0]) <= 1.05 < rho(wrong.to(dx.dtype), reference(inputs)[0])


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_leading_dimensions_are_rows(norm):
    inputs = make_inputs(cpu_case(norm, 12, 40, bias=norm == "layer"), seed=12)
    flat = gradients(inputs)
    deep = gradients(dataclasses.replace(inputs, x=inputs.x.view(2, 3, 2, 40), dy=inputs.dy.view(2, 3, 2, 40)))
    assert deep[0].shape == (2, 3, 2, 40)
    assert torch.equal(deep[0].view(12, 40), flat[0])
    assert torch.equal(deep[1], flat[1])


def test_faults_of_the_interpreter_are_left_out(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for inputs in ("subnormal-x", "subnormal-dy"):
        case = dataclasses.replace(cpu_case("rms", 12, 40), inputs=inputs)
        assert "interpreter loses bits" in triton_inhouse.unsupported(dataclasses.replace(case, dtype="bf16"))
        assert triton_inhouse.unsupported(dataclasses.replace(case, dtype="fp32")) is None
        assert triton_inhouse.unsupported(dataclasses.replace(case, dtype="bf16", device="cuda")) is None


def refused():
    inputs = make_inputs(cpu_case("layer", 4, 8, bias=True), seed=11)
    dy, x, weight, mean, rstd = inputs.dy, inputs.x, inputs.weight, inputs.mean, inputs.rstd
    tall = torch.zeros(2, 131073, dtype=torch.bfloat16)
    yield "131072 columns", (tall, tall, None, None, rstd[:2]), {}
    many = torch.zeros(1, 8, dtype=torch.bfloat16).expand(2**31 - 1023, 8)  # the last tile would end beyond 32 bits
    yield "at most 2147482624 rows", (many, many, None, None, rstd), {}
    yield "unit column stride", (dy, x.T.contiguous().T, weight, mean, rstd), {}
    yield "unit column stride", (dy.T.contiguous().T, x, weight, mean, rstd), {}
    yield "one shape", (dy[:2], x, weight, mean, rstd), {}
    yield "more leading dimensions", (dy[0], x[0], weight, mean, rstd), {}
    apart = torch.zeros(2, 2, 3, 8, dtype=torch.bfloat16)[:, :1].expand(2, 2, 3, 8)
    yield "no rows of equal distance", (apart, apart, weight, mean, rstd), {}
    yield "alike", (dy.float(), x, weight, mean, rstd), {}
    yield "alike", (dy.double(), x.double(), weight, mean, rstd), {}
    yield "weight must be bf16", (dy, x, weight.double(), mean, rstd), {}
    yield "weight must be contiguous", (dy, x, weight[:4], mean, rstd), {}
    yield "rstd must be fp32", (dy, x, weight, mean, rstd.double()), {}
    yield "mean must be contiguous", (dy, x, weight, mean.repeat(2)[::2], rstd), {}
    yield "needs a weight", (dy, x, None, mean, rstd), {"has_bias": True}
    yield "needs a weight", (dy, x, None, mean, rstd), {"zero_centred": True}
    yield "x's device", (dy, x, weight.to("meta"), mean, rstd), {}


@pytest.mark.parametrize(("message", "arguments", "options"), [*refused()])
def test_what_it_cannot_do_is_refused(message, arguments, options):
    with pytest.raises(ValueError, match=message):
        norm_backward(*arguments, **options)


WIDTHS = [1, 17, 64, 65, 384, 768, 1023, 1024, 2880, 4096, 5120, 8192, 8193, 16384, 16386, 65536, 131072]


@pytest.mark.parametrize("gpu", [H200, RTX, MI300, GpuLimits()], ids=["h200", "rtx", "mi300", "tiny"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("cols", WIDTHS)
def test_every_launch_covers_the_row_and_fits(gpu, dtype, cols):
    for rows, accumulators in product((1, 7, 100_000), (0, 1, 2)):
        asked = problem(cols, rows, dtype=dtype, **WITH_ACCUMULATORS[accumulators])
        assert asked.accumulators == accumulators
        launch = choose(asked, gpu)
        for size in (launch.rows, launch.cols, launch.warps):
            assert size & (size - 1) == 0
        narrow = cols <= 8192 or (cols % 2 and cols <= 18432)
        light = accumulators <= 1 and cols <= 16384
        most = 2 * gpu.multiprocessors if narrow else gpu.multiprocessors // 2 if light else 0
        assert isinstance(launch, FewRows) == (rows <= most)
        if isinstance(launch, FewRows):
            assert launch.chunks * launch.row_cols >= cols > (launch.chunks - 1) * launch.row_cols
            assert launch.chunks * launch.row_cols <= 64 * 32 * launch.warps
            continue
        if isinstance(launch, OnePass):
            assert launch.chunks * launch.cols >= cols > (launch.chunks - 1) * launch.cols
            assert 1 <= launch.programs <= -(-rows // launch.rows)
            assert not launch.fold or launch.cols >= 256 * launch.warps  # a thread holds the same columns of every row
            assert not launch.packed or gpu.ptx
            assert launch.fused == (gpu.ptx and accumulators > 0)
            one_each = launch.programs * launch.rows >= rows
            assert one_each == (accumulators == 0) or rows == 7
            assert launch.stages == 1 or not one_each or accumulators
        else:
            assert cols > 8192
            assert 1 <= launch.groups <= max(1, -(-rows // launch.rows))
        if isinstance(launch, Shared):
            assert (launch.parts - 1) * launch.cols < cols <= launch.parts * launch.cols
            assert gpu.ptx
        whole = 12288 if dtype == "bf16" and accumulators < 2 and gpu.ptx else 8192
        assert isinstance(launch, OnePass) == (cols <= whole)
        shared = whole < cols <= 64 * 4096 // asked.item_bytes and cols % 2 == 0 and gpu.ptx
        assert isinstance(launch, Shared) == shared


@pytest.mark.parametrize("gpu", [H200, RTX], ids=["h200", "rtx"])
@pytest.mark.parametrize("cols", WIDTHS)
@pytest.mark.parametrize("accumulators", [0, 1, 2])
def test_programs_that_wait_are_all_resident(gpu, cols, accumulators):
    """By registers and by shared memory: else some begin when others end."""
    for rows in (1, 400, 100_000):
        asked = problem(cols, rows, **WITH_ACCUMULATORS[accumulators])
        launch = choose(asked, gpu)
        if not getattr(launch, "fused", False):
            continue
        residents = -(-launch.programs // gpu.multiprocessors)
        maxnreg = getattr(launch, "maxnreg", None) or 255
        assert residents * launch.warps * 32 * maxnreg <= 65536 or residents == 1
        chunks = launch.chunks if isinstance(launch, OnePass) else 1
        buffers = launch.stages if isinstance(launch, Shared) else launch.stages - 1
        tiles = 2 * 2 * launch.rows * chunks * launch.cols * buffers
        assert residents * (tiles + 1024) <= gpu.shared_total
        assert launch.violation(asked, gpu) is None


def test_tiles_are_dealt_out_evenly():
    """8192 rows in tiles of 2 are 32 turns for 128 programs, as they are for 132, of which 4 would have one more."""
    flat = choose(problem(4096, rows=2048), H200)
    assert (flat.rows, flat.programs) == (2, 128)
    wide = choose(problem(16384, rows=2048), H200)
    assert (wide.groups, wide.delay, wide.residents, wide.maxnreg) == (49, 2, 3, 168)
    wider = choose(problem(16386, rows=2048), H200)
    assert (wider.parts, wider.groups, wider.delay, wider.residents) == (9, 43, 2, 3)


@pytest.mark.parametrize(("norm", "bias", "sums"), [("rms", False, 1), ("layer", False, 1), ("layer", True, 2)])
@pytest.mark.parametrize(
    ("kernel", "cols", "launch"),
    [
        ("backward_rows", 2048, OnePass(2, 2, 1024, 4, 128, fold=True, fused=True)),
        ("backward_rows", 200, OnePass(16, 4, 64, 4, 9, fold=False, fused=True)),
        ("backward_parts", 4096, Shared(2, 2, 33, 1, 2)),
        ("finish", 9000, TwoPass(4, 1024, 4, 2)),
    ],
)
def test_the_last_sum_is_dealt_out_evenly(kernel, cols, launch, norm, bias, sums, monkeypatch):
    """Each program has one tile of one gradient, and as few have none as tiles of powers of two allow."""
    launched = {}

    class Told:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            return lambda *arguments, **options: launched.update({self.name: (grid[0], options)})

    for name, module in KERNELS.items():
        monkeypatch.setattr(f"impls.inhouse.{module}.{name}", Told(name))
    monkeypatch.setattr(workspace, "workspace", lambda device, words: None)
    gradients(make_inputs(cpu_case(norm, 9, cols, bias=bias), seed=1), launch=launch)
    programs, options = launched[kernel]
    tile = options.get("FINISH_COLS") or options["C"]
    tiles = sums * -(-cols // tile)
    if kernel == "finish":
        assert programs == tiles
    else:
        assert programs >= tiles
        assert tile == 8 or programs < 2 * tiles


@pytest.mark.parametrize(
    ("cols", "tile_rows", "two", "three"),
    [  # groups resident with two programs a multiprocessor, and with three
        (12290, 2, 37, 56),
        (16384, 2, 33, 49),
        (16386, 2, 29, 44),
        (65538, 1, 8, 12),
    ],
)
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_programs_of_shared_rows_follow_their_turns(norm, cols, tile_rows, two, three):
    fewest = 67 if norm == "rms" and cols <= 16384 else 1  # fewer are few rows
    last_of_two, last_of_short = 8 * two * tile_rows, (8 * three - 1) * tile_rows  # rows
    expected = {  # residents, registers, delay, stages, groups
        fewest: (2, 248, 1, 3, two),
        last_of_two: (2, 248, 1, 3, two),
        last_of_two + 1: (3, 168, 1, 3, three),
        last_of_short: (3, 168, 1, 3, three),
        last_of_short + 1: (3, 168, 2, 4, three),
    }
    if cols <= 16384:
        four = 4 * 132 // -(-cols // 2048)
        of_short = (4, 128, 1, 3, four) if norm == "rms" else (3, 168, 1, 3, three)
        expected |= {last_of_short + 1: of_short, (16 * three - 1) * tile_rows: of_short}
        expected[16 * three * tile_rows] = (3, 168, 2, 4, three)
    for rows, (*sizes, groups) in expected.items():
        launch = choose(problem(cols, rows, norm), H200)
        assert [launch.residents, launch.maxnreg, launch.delay, launch.stages] == sizes
        tiles = -(-rows // tile_rows)
        assert launch.groups == -(-tiles // -(-tiles // groups))


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("cols", [8194, 9216, 10240, 11008, 12286, 12288])
def test_wide_rows_of_one_program_are_packed_where_masks_take_registers(norm, cols):
    launch = choose(problem(cols, 4096, norm, bias=False), H200)
    assert isinstance(launch, OnePass)
    assert (launch.warps, launch.stages) == (8, 3)
    assert launch.packed == (cols < launch.chunks * launch.cols)


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize(
    ("rows", "cols", "tile_rows", "residents"),
    [
        (32768, 1024, 2, 2),
        (16896, 1024, 2, 2),  # 16 turns of two programs a multiprocessor with 4 rows each
        (16895, 1024, 4, 2),
        (16384, 2048, 1, 2),
        (8192, 4096, 1, 1),
        (4224, 4096, 1, 1),
    ],
)
def test_a_tile_of_fp32_with_many_turns_has_the_bytes_of_a_16_bit_one(norm, rows, cols, tile_rows, residents):
    """Where a 16-bit one is a row, half as many programs have the bytes in flight."""
    launch = choose(problem(cols, rows, norm, dtype="fp32", weight_dtype="fp32"), H200)
    assert (launch.warps, launch.rows) == (4, tile_rows)
    assert -(-launch.programs // H200.multiprocessors) == residents


@pytest.mark.parametrize(
    ("rows", "cols", "in_pairs", "launch"),
    [
        (8, 17, False, FewRows(64, 32, 1, 32, 4)),
        (192, 1024, True, FewRows(64, 32, 1, 1024, 4)),
        (193, 2880, True, FewRows(64, 32, 3, 1024, 4, stages=3)),
        (8, 4096, True, FewRows(64, 32, 4, 1024, 4, maxnreg=128)),
        (264, 8192, True, FewRows(64, 32, 8, 1024, 4, stages=3)),
        (66, 12288, True, FewRows(64, 64, 6, 2048, 8)),
        (64, 17389, False, FewRows(64, 64, 9, 2048, 16)),
        (65, 17389, False, FewRows(128, 64, 9, 2048, 16)),
    ],
)
def test_how_few_rows_are_cut(rows, cols, in_pairs, launch):
    assert choose(problem(cols, rows=rows, in_pairs=in_pairs), H200) == launch


@pytest.mark.parametrize(
    ("cols", "norm", "in_pairs", "most"),
    [
        (1, "layer", False, 264),
        (8192, "layer", True, 264),
        (18431, "layer", False, 264),
        (18433, "rms", False, 0),
        (8194, "rms", True, 66),
        (16384, "rms", True, 66),
        (16386, "rms", True, 0),
        (16384, "layer", True, 0),
    ],
)
def test_how_many_rows_are_few(cols, norm, in_pairs, most):
    for rows in (1, max(1, most), most + 1):
        launch = choose(problem(cols, rows, norm, in_pairs=in_pairs), H200)
        assert isinstance(launch, FewRows) == (rows <= most)


@pytest.mark.parametrize(
    ("shared", "residents", "delay"), [(228, 3, 2), (196, 3, 1), (164, 3, 1), (100, 2, 1), (64, 1, 1), (48, None, None)]
)
def test_shared_memory_limits_residents_and_delay(shared, residents, delay):
    gpu = dataclasses.replace(H200, shared_total=shared * 1024, shared_bytes=(shared - 1) * 1024)
    asked = problem(16384, rows=8192)
    launch = choose(asked, gpu)
    assert (getattr(launch, "residents", None), getattr(launch, "delay", None)) == (residents, delay)
    assert isinstance(launch, Shared if residents else TwoPass)
    assert launch.violation(asked, gpu) is None


def test_a_row_that_would_not_be_resident_is_not_shared():
    asked = problem(16384, rows=100)  # more than half a row a multiprocessor
    for multiprocessors, regime in ((8, Shared), (7, TwoPass)):
        gpu = dataclasses.replace(H200, multiprocessors=multiprocessors)
        launch = choose(asked, gpu)
        assert type(launch) is regime
        assert launch.violation(asked, gpu) is None


@pytest.mark.parametrize(
    ("change", "in_pairs"),
    [
        (lambda x: x, True),
        (lambda x: torch.zeros(4, 11, dtype=x.dtype)[:, :10], False),  # odd distance between rows
        (lambda x: torch.zeros(4, 12, dtype=x.dtype)[:, 1:11], False),  # begins at an odd element
        (lambda x: torch.zeros(4, 12, dtype=x.dtype)[:, 2:12], True),
        (lambda x: torch.zeros(4, 9, dtype=x.dtype), False),
        (lambda x: x[:1].expand(4, 10), True),
    ],
)
def test_words_are_read_where_rows_begin_on_words(change, in_pairs, monkeypatch):
    asked = []
    monkeypatch.setattr(backward, "choose", lambda problem, gpu: asked.append(problem.in_pairs))
    x = change(torch.zeros(4, 10, dtype=torch.bfloat16))
    plain = torch.zeros(4, x.shape[1], dtype=torch.bfloat16)
    backward.choose_for(plain, x, None, False, layer=False)
    backward.choose_for(x, plain, None, False, layer=True)
    assert asked == [in_pairs, in_pairs]


def test_words_are_told_by_the_address_alone():
    """In memory that begins on half a word, as another library's may, an odd element begins a whole one."""
    memory = torch.arange(33, dtype=torch.int16).untyped_storage()[2:]
    tensor = torch.empty(0, dtype=torch.bfloat16).set_(memory, 1, (4, 6), (8, 1))
    assert (tensor.storage_offset(), tensor.data_ptr() % 4) == (1, 0)
    words = shared._as_pairs(tensor)
    assert (words.data_ptr(), words.shape, words.stride()) == (tensor.data_ptr(), (4, 3), (4, 1))
    assert words.dtype == torch.int32
