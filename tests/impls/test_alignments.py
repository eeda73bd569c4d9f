"""Rows that begin behind multiples of 16 bytes are read 16 bytes at a time, those of one alignment by one program."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl

from harness.cases import make_inputs
from impls.inhouse.regimes import one_pass_kernel
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.tensors import CallTensors, Extras, NormGradients
from tests.impls.inhouse_cases import gradients, gradients_with_extras, ratios_with_extras
from tests.impls.test_around import case_with

pytestmark = pytest.mark.slow

FLAT = OnePass(rows=2, chunks=3, cols=128, warps=2, programs=17, fold=True, stages=1)


def call(rows, cols, dtype=torch.bfloat16, stride=None, offset=0, **extras):
    """A call on matrices of one buffer's part each; strides are those of contiguous rows where none is given."""

    def matrix(stride=None, offset=0):
        return torch.empty(rows * (cols + 8) + 8, dtype=dtype).as_strided((rows, cols), (stride or cols, 1), offset)

    vector = torch.empty(cols, dtype=dtype)
    beside = Extras(**{name: matrix(of) if name != "mask" else torch.empty(rows, cols) for name, of in extras.items()})
    x = matrix(stride, offset)
    gradients = NormGradients(matrix(), vector, None)
    return CallTensors(gradients, matrix(), x, vector, None, torch.empty(rows), False, beside)


@pytest.mark.parametrize(
    ("given", "alignments"),
    [
        ({"rows": 8, "cols": 4096}, 1),
        ({"rows": 8, "cols": 2648}, 1),
        ({"rows": 8, "cols": 2652}, 1),
        ({"rows": 8, "cols": 2650}, 4),
        ({"rows": 8, "cols": 2649}, 8),
        ({"rows": 4, "cols": 2650}, 4),
        ({"rows": 7, "cols": 2649}, 8),  # the last 16 bytes of a matrix are not all its own
        ({"rows": 7, "cols": 2649, "dres": None}, 1),
        ({"rows": 8, "cols": 2649, "stride": 2650}, 1),
        ({"rows": 8, "cols": 2649, "offset": 8}, 8),
        ({"rows": 8, "cols": 2649, "offset": 1}, 1),
        ({"rows": 8, "cols": 2649, "dtype": torch.float32}, 1),
        ({"rows": 8, "cols": 2649, "dres": None}, 8),
        ({"rows": 8, "cols": 2649, "dres": 2650}, 1),
        ({"rows": 8, "cols": 2649, "dy1": None}, 1),
        ({"rows": 8, "cols": 2649, "dres": None, "mask": None}, 1),
    ],
    ids=str,
)
def test_alignments_are_those_of_all_matrices(given, alignments):
    assert call(**given).alignments == alignments


def seen(monkeypatch):
    """The alignments of each launch, as the kernel is told them."""
    found, told = [], OnePass._alignments
    monkeypatch.setattr(OnePass, "_alignments", lambda self, tensors: found.append(told(self, tensors)) or found[-1])
    return found


@pytest.mark.parametrize(("norm", "features"), [("layer", ()), ("rms", ("residual",))], ids=str)
@pytest.mark.parametrize(
    ("rows", "cols", "alignments"), [(8, 371, 8), (56, 377, 8), (36, 374, 4), (13, 375, 8), (9, 374, 4), (70, 372, 1)]
)
def test_gradients_are_right_at_every_alignment(rows, cols, alignments, norm, features, monkeypatch):
    inputs = make_inputs(case_with(norm, features, rows, cols, dtype="bf16", weight_dtype="bf16"), seed=1)
    found = seen(monkeypatch)
    ratios = ratios_with_extras(inputs, gradients_with_extras(inputs, launch=FLAT))
    assert found == [alignments if "residual" not in features or rows * cols % 8 == 0 else 1]
    assert all(ratio <= 1.05 for ratio in ratios.values()), ratios


@pytest.mark.parametrize(
    "launch",
    [dataclasses.replace(FLAT, programs=7), dataclasses.replace(FLAT, cols=64, chunks=6, fold=False)],
    ids=["too few programs", "rows that are not folded"],
)
def test_what_has_no_room_for_them_reads_as_before(launch, monkeypatch):
    found = seen(monkeypatch)
    inputs = make_inputs(case_with("layer", (), 16, 371, dtype="bf16", weight_dtype="bf16"), seed=2)
    assert all(
        ratio <= 1.05 for ratio in ratios_with_extras(inputs, gradients_with_extras(inputs, launch=launch)).values()
    )
    inputs = make_inputs(case_with("layer", (), 16, 383, dtype="bf16", weight_dtype="bf16"), seed=2)
    gradients(inputs, launch=FLAT)  # a tile of 384 columns has no room for 383 that begin at the eighth element
    assert found == [1, 1]


def test_rows_are_read_without_their_neighbours():
    """One row is NaN in x; its neighbours share 16 bytes with it."""
    inputs = make_inputs(case_with("rms", (), 24, 371, dtype="bf16", weight_dtype="bf16"), seed=3)
    inputs.x[7] = float("nan")
    dx, *_ = gradients(inputs, launch=FLAT)
    assert dx.isnan().any(1).nonzero().flatten().tolist() == [7]


@triton.jit
def store_all(tensor, tile, row, place, shift, rows, cols, FIRST: tl.constexpr, LAST: tl.constexpr):
    """The planted fault: whole pieces of 16 bytes are stored where a row begins within one."""
    tl.store(tensor + row * cols // 8 * 8 + place, tile, mask=(row < rows) & (place // 8 * 8 < cols + shift))


def test_neighbours_that_are_written_are_seen(monkeypatch):
    inputs = make_inputs(case_with("rms", (), 24, 371, dtype="bf16", weight_dtype="bf16"), seed=4)
    monkeypatch.setattr(one_pass_kernel, "store_shifted", store_all)
    assert ratios_with_extras(inputs, gradients_with_extras(inputs, launch=FLAT))["dx"] > 1.05
