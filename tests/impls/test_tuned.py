"""The file of tuned launches: its round trip, what it serves, and what is said where it cannot."""

import json
from dataclasses import replace

import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.cases.tuned import TunedCase, TunedFile, read_tuned
from impls import triton_inhouse
from impls.inhouse.backward import choose_for
from impls.inhouse.problem import LAUNCHES, GpuLimits, problem_of
from impls.inhouse.regimes.choice import choose
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.tuned import find, from_fields
from tests.impls.inhouse_cases import runs_of
from tests.impls.problems import H200

TINY = GpuLimits()
CASE = NormCase("rms", 64, 256, device="cpu")
PROBLEM = problem_of(CASE)
LAUNCH = OnePass(rows=4, chunks=4, cols=64, warps=2, programs=2, fold=False, stages=1)


def launch_for(*asked):
    return (tuned := find(*asked)) and tuned.launch


def tuned(case=CASE, launch=LAUNCH, **more):
    chosen = {"config_name": "warps=2", "config": launch.as_fields()} if launch else {}
    return TunedCase(**{"impl": "triton-inhouse", "case": case, "tried": 3, "default_us": 20.0} | chosen | more)


def launches(*cases, device="cpu", multiprocessors=4):
    return TunedFile(device=device, multiprocessors=multiprocessors, date="2025-06-01T12:00:00", cases=list(cases))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a file of launches, and have the choice read it."""

    def write(file, name="launches.json"):
        path = tmp_path / name
        path.write_text(file if isinstance(file, str) else file.model_dump_json(), encoding="utf-8")
        monkeypatch.setenv(LAUNCHES, str(path))
        return str(path)

    read_tuned.cache_clear()
    find.cache_clear()
    return write


def each_regime():
    for cols, gpu, dtype in ((256, TINY, "bf16"), (16384, H200, "bf16"), (16384, TINY, "fp32")):
        problem = replace(PROBLEM, rows=1000, cols=cols, dtype=dtype)
        yield choose(problem, gpu)
    yield choose(replace(PROBLEM, rows=4), TINY)


@pytest.mark.parametrize("launch", [*each_regime()], ids=lambda launch: type(launch).__name__)
def test_a_launch_survives_the_round_trip(launch, written):
    assert from_fields(json.loads(json.dumps(launch.as_fields()))) == launch
    file = launches(tuned(launch=launch), tuned(launch=None))
    assert read_tuned(written(file)) == file
    assert "\n" not in launch.describe()


def at(rows, **changes):
    return replace(PROBLEM, rows=rows, **changes)


def measured(rows, launch=LAUNCH):
    return tuned(replace(CASE, rows=rows), launch)


def test_the_exact_case_serves_first_then_the_nearest(written):
    other = replace(LAUNCH, rows=8)
    path = written(launches(measured(64), measured(100, other), measured(1000, None)))
    assert launch_for(path, "cpu", at(64), TINY) == LAUNCH
    assert launch_for(path, "cpu", at(100), TINY) == other
    assert launch_for(path, "cpu", at(79), TINY) == LAUNCH.resized_for(at(79), TINY)
    assert launch_for(path, "cpu", at(81), TINY) == other.resized_for(at(81), TINY)
    assert launch_for(path, "cpu", at(80), TINY) == LAUNCH.resized_for(at(80), TINY)  # as near to both: the smaller
    assert launch_for(path, "cpu", at(32), TINY) == LAUNCH.resized_for(at(32), TINY)
    assert launch_for(path, "cpu", at(200), TINY) == other.resized_for(at(200), TINY)
    assert find(path, "cpu", at(200), TINY).tuned_for == 100


def test_the_default_stays_where_no_case_is_near(written):
    path = written(launches(measured(64), measured(100), measured(1000, None)))
    assert [launch_for(path, "cpu", at(rows), TINY) for rows in (31, 201, 0, 900, 1000, 2000)] == [None] * 6


def test_another_problem_is_not_served(written):
    path = written(launches(tuned()))
    assert launch_for(path, "cpu", at(64), TINY) == LAUNCH
    others = {"norm": "layer", "cols": 258, "dtype": "fp16", "weight_dtype": "fp32", "bias": True, "in_pairs": False}
    for name, value in others.items():
        assert launch_for(path, "cpu", at(64, **{name: value}), TINY) is None, name


def test_a_gate_before_a_norm_serves_none_behind_it(written):
    before, behind = (problem_of(replace(CASE, features=(name,))) for name in ("gated", "gated-norm-first"))
    path = written(launches(tuned(replace(CASE, features=("gated",)))))
    assert [launch_for(path, "cpu", problem, TINY) for problem in (before, behind)] == [LAUNCH, None]


def complaint(path, device="cpu", problem=PROBLEM, gpu=TINY):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is looked at by the caller
        launch_for(path, device, problem, gpu)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_measured_launches_serve(written):
    path = written(launches(tuned(impl="quack"), tuned(default_us=None)))
    assert launch_for(path, "cpu", PROBLEM, TINY) is None


def test_another_device_is_refused(written):
    path = written(launches(tuned(), device="NVIDIA H200", multiprocessors=132))
    assert complaint(path, "NVIDIA B200", gpu=replace(H200, multiprocessors=148)) == (
        f"{path} belongs to NVIDIA H200 (132 multiprocessors), and this is NVIDIA B200 (148 multiprocessors); "
        "run `normbwd tune` here, or unset NORMBWD_LAUNCHES"
    )
    part = complaint(path, "NVIDIA H200", gpu=replace(H200, multiprocessors=16))
    assert "and this is NVIDIA H200 (16 multiprocessors)" in part


def test_a_wrong_file_is_refused_before_a_run(written, tmp_path, monkeypatch):
    monkeypatch.delenv(LAUNCHES, raising=False)
    assert triton_inhouse.misconfigured("cpu") is None
    written(launches(tuned()))
    assert triton_inhouse.misconfigured("cpu") is None
    written(launches(tuned(), device="NVIDIA B200", multiprocessors=148), "other.json")
    assert "other.json belongs to NVIDIA B200 (148 multiprocessors), and this is cpu" in triton_inhouse.misconfigured(
        "cpu"
    )
    monkeypatch.setenv(LAUNCHES, "absent.json")
    assert triton_inhouse.misconfigured("cpu").startswith("cannot read absent.json: No such file or directory")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"regime": "three"}, "its regime is none of few rows, one pass, shared, two passes"),
        ({"colour": 1}, "unknown colour; there are chunks, "),
        ({"rows": "many"}, "rows: Input should be a valid integer"),
        ({"rows": None}, "rows: Input should be a valid integer"),
    ],
)
def test_a_config_that_is_no_launch_is_refused(written, change, why):
    config = LAUNCH.as_fields() | change
    problem = complaint(written(launches(tuned(config=config))))
    assert f"has no launch for rms 64 x 256: {why}" in problem
    assert problem.endswith("; run `normbwd tune` again")
    assert "has no launch for rms 64 x 256: a launch has fields" in complaint(written(launches(tuned(config=3)), "3"))


def test_a_file_of_an_earlier_schema_is_refused(written):
    older = launches(tuned()).model_dump_json().replace('"schema_version":2', '"schema_version":1')
    assert "has schema 1, and this version reads 2; run `normbwd tune` again, or unset" in complaint(written(older))


def test_a_launch_that_could_hang_is_refused(written):
    wide = replace(CASE, rows=100_000, cols=4096)
    problem = problem_of(wide)
    launch = replace(choose(problem, H200), programs=1000)
    path = written(launches(tuned(wide, launch), device="NVIDIA H200", multiprocessors=132))
    told = complaint(path, "NVIDIA H200", problem, H200)
    assert "has a launch for rms 100000 x 4096 that must not run: 8 programs a multiprocessor wait" in told


# ------------------------------------------------------------------------------------------------ the choice


def chosen(inputs):
    return choose_for(inputs.dy, inputs.x, inputs.weight, inputs.bias is not None, layer=inputs.mean is not None)


def test_the_choice_reads_the_file(written, monkeypatch):
    inputs = make_inputs(CASE, seed=1)
    plain = chosen(inputs)
    written(launches(tuned()))
    assert chosen(inputs) == LAUNCH != plain
    assert chosen(make_inputs(replace(CASE, rows=7), seed=1)) == choose(at(7), TINY)
    monkeypatch.delenv(LAUNCHES)
    assert chosen(inputs) == plain


def test_the_backward_runs_the_launch_of_the_file(written, monkeypatch):
    inputs = make_inputs(replace(CASE, norm="layer", bias=True), seed=2)
    wanted = triton_inhouse.prepare(inputs)()
    written(launches(tuned(inputs.case)))
    ran = runs_of(LAUNCH, monkeypatch)
    grads = triton_inhouse.prepare(inputs)()
    assert ran == [LAUNCH]
    assert torch.equal(grads.dx, wanted.dx)
    assert torch.allclose(grads.dweight.float(), wanted.dweight.float(), rtol=2**-7)
    again = triton_inhouse.prepare(inputs)()
    assert torch.equal(again.dweight, grads.dweight)


def test_a_row_says_where_its_launch_comes_from(written, monkeypatch):
    assert triton_inhouse.notes(CASE) == []
    written(launches(tuned()), "mine.json")
    assert triton_inhouse.notes(CASE) == [f"launch of mine.json: {LAUNCH.describe()}"]
    near = LAUNCH.resized_for(at(100), TINY).describe()
    assert triton_inhouse.notes(replace(CASE, rows=100)) == [f"launch of mine.json, tuned for 64 rows: {near}"]
    assert triton_inhouse.notes(replace(CASE, rows=1000)) == []
    assert triton_inhouse.notes(replace(CASE, inputs="misaligned")) == [
        "launches of mine.json where the layout is one that was tuned"
    ]
    monkeypatch.delenv(LAUNCHES)
    assert triton_inhouse.notes(CASE) == []
