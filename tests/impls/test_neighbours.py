"""The launches that are tried: few, dealt out evenly, and none that could hang a device or leave a column out."""

from dataclasses import replace
from itertools import product

import pytest

from impls.inhouse.exchange import Exchange
from impls.inhouse.problem import GpuLimits
from impls.inhouse.regimes.choice import choose, neighbours
from impls.inhouse.regimes.few_rows import FewRows
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.regimes.shared import MOST_DELAY, MOST_SUMS, MOST_WORDS, Shared
from impls.inhouse.regimes.shared_kernel import SLOTS
from impls.inhouse.regimes.two_pass import TwoPass
from tests.impls.problems import H200, problem

GPUS = {
    "h200": H200,
    "rtx": GpuLimits(multiprocessors=170, shared_bytes=99 * 1024, shared_total=100 * 1024, ptx=True),
    "mi300": GpuLimits(multiprocessors=304, shared_bytes=64 * 1024, shared_total=64 * 1024),
    "tiny": GpuLimits(),
}
MOST = 56  # that a tuning measures
WIDTHS = [1, 17, 64, 65, 384, 768, 1023, 1024, 2048, 2880, 4096, 5120, 8192, 8193, 16384, 16386, 65536, 131072]
ROWS = (1, 7, 2048, 100_000)


def around(asked, gpu):
    return neighbours(asked, gpu, choose(asked, gpu))


def every_problem():
    norms, dtypes, weight_dtypes = ("rms", "layer"), ("bf16", "fp32"), ("bf16", None)
    for cols, rows, norm, dtype, weight_dtype in product(WIDTHS, ROWS, norms, dtypes, weight_dtypes):
        yield problem(cols, rows, norm, dtype, weight_dtype)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_every_neighbour_keeps_to_the_limits(gpu):
    for asked in every_problem():
        current = choose(asked, gpu)
        found = neighbours(asked, gpu, current)
        assert found[0] == current
        assert len(set(found)) == len(found) <= MOST + 1
        for launch in found:
            assert launch.violation(asked, gpu) is None, (asked, launch)
            pieces = getattr(launch, "chunks", getattr(launch, "parts", None))
            if pieces is not None:
                piece = getattr(launch, "row_cols", launch.cols)
                assert (pieces - 1) * piece < asked.cols <= pieces * piece
            if isinstance(launch, OnePass):
                assert launch.cols >= 256 * launch.warps or not launch.fold
                assert not launch.packed or (gpu.ptx and asked.item_bytes == 2)
            if isinstance(launch, Shared):
                assert launch.parts > 1
                assert Exchange(launch.parts, launch.rows * (2 if asked.norm == "layer" else 1)).loads in (1, 2, 4)


def test_tiles_are_shared_evenly():
    """One program less would leave somebody another turn; as many take the tiles of each alignment."""
    for asked in every_problem():
        for launch in around(asked, H200):
            if isinstance(launch, TwoPass | FewRows):
                continue
            number = launch.groups if isinstance(launch, Shared) else launch.programs
            alignments = asked.alignments if isinstance(launch, OnePass) and launch.fold else 1
            if -(-asked.rows // launch.rows) < alignments:
                alignments = 1
            tiles = -(-asked.rows // (launch.rows * alignments))
            turns = -(-tiles * alignments // number)
            assert number == alignments * -(-tiles // turns)


def broken():
    """One for each rule: the problem, a launch that keeps to all rules, what is changed, and what is said."""
    rows, wide, layer = problem(4096), problem(20480), problem(65536, norm="layer")
    flat = choose(rows, H200)
    for change, why in (
        ({"rows": 3}, "powers of two"),
        ({"warps": 64, "cols": 16384, "chunks": 1}, "out of range"),
        ({"programs": 0}, "out of range"),
        ({"chunks": 3}, "do not fit"),
        ({"chunks": 5}, "do not fit"),
        ({"cols": 512, "chunks": 8}, "share columns"),
        ({"programs": 3 * 132 + 1}, "registers for fewer"),
        ({"programs": 2 * 132, "maxnreg": None}, "registers for fewer"),
        ({"programs": 2 * 132, "stages": 5}, "shared memory for fewer"),
        ({"stages": 65}, "too much shared memory"),
    ):
        yield rows, flat, change, why
    yield problem(4096, dtype="fp32"), choose(problem(4096, dtype="fp32"), H200), {"packed": True}, "32-bit"
    parts = choose(wide, H200)
    for change, why in (
        ({"cols": 3}, "powers of two"),
        ({"groups": 0}, "out of range"),
        ({"parts": 7}, "do not fit"),
        ({"groups": parts.groups + 2}, "said to be resident"),
        ({"maxnreg": None}, "registers for fewer"),
        ({"maxnreg": 176}, "registers for fewer"),
        ({"maxnreg": 100}, "registers out of range"),
        ({"rows": 8}, "more sums"),
        ({"delay": 4}, "a delay"),
        ({"stages": 9}, "shared memory for fewer"),
        ({"stages": 17}, "too much shared memory"),
    ):
        yield wide, parts, change, why
    yield layer, choose(layer, H200), {"cols": 1024, "parts": 64}, "more sums"
    asked = problem(4096, rows=8)
    few = choose(asked, H200)
    for change, why in (
        ({"rows": 3}, "powers of two"),
        ({"row_cols": 3}, "powers of two"),
        ({"warps": 64}, "out of range"),
        ({"chunks": 3}, "do not fit"),
        ({"chunks": 5}, "do not fit"),
        ({"stages": 0}, "out of range"),
        ({"stages": 30}, "too much shared memory"),
    ):
        yield asked, few, change, why
    two = choose(problem(16385), H200)
    yield problem(16385), two, {"sum_cols": 5000}, "powers of two"
    yield problem(16385), two, {"groups": 0}, "out of range"
    yield problem(16385), two, {"stages": 16}, "too much shared memory"
    yield problem(16385), two, {"fused": True}, "do not wait"


@pytest.mark.parametrize(("asked", "launch", "change", "why"), [*broken()], ids=str)
def test_each_rule_that_is_broken_is_named(asked, launch, change, why):
    assert launch.violation(asked, H200) is None
    assert why in replace(launch, **change).violation(asked, H200)


def test_rules_of_devices_without_ptx():
    parts = choose(problem(20480), H200)
    for asked, gpu in ((problem(20480), replace(H200, ptx=False)), (problem(20480, in_pairs=False), H200)):
        assert "words" in parts.violation(asked, gpu)
    assert "PTX" in choose(problem(4096), H200).violation(problem(4096), replace(H200, ptx=False))
    other = replace(H200, ptx=False)
    for rows in (8, 8192):
        asked = problem(4096, rows=rows)
        limited = replace(choose(asked, other), maxnreg=128)
        assert "registers" in limited.violation(asked, other)


def test_the_limits_are_those_of_the_kernels():
    assert SLOTS.value > 2 * MOST_DELAY + 1
    assert MOST_SUMS == Exchange.MOST
    assert Exchange(MOST_WORDS, 1).loads == 4
    assert Exchange(32, 4).words == MOST_WORDS


def test_a_launch_is_dealt_out_anew():
    flat = choose(problem(2048, norm="layer"), H200)
    assert flat.programs > 132
    fewer = problem(2048, rows=5000, norm="layer")
    assert flat.resized_for(fewer, H200) == choose(fewer, H200)
    parts = choose(problem(16384, rows=4096), H200)
    assert parts.resized_for(problem(16384, rows=2048), H200) == choose(problem(16384, rows=2048), H200)
    two = choose(problem(16385), H200)
    assert two.resized_for(problem(16385, rows=3), H200).groups == 1
    few = choose(problem(4096, rows=8), H200)
    assert few.resized_for(problem(4096, rows=16), H200) == few


@pytest.mark.parametrize("extras", [("z",), ("dres", "mask")], ids=["gate", "mask"])
def test_shared_rows_take_no_mask_and_no_gate(extras):
    asked = replace(problem(4096, 8192, "rms", "bf16", "bf16"), extras=extras)
    assert Shared.choose(asked, H200).violation(asked, H200) == "masks and gates, which shared rows do not read"
    assert not [launch for launch in around(asked, H200) if isinstance(launch, Shared)]
    assert Shared.choose(asked, H200).violation(replace(asked, extras=("dres",)), H200) is None
