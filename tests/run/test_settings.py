from dataclasses import replace
from pathlib import Path

import pytest

from harness.cases import NormCase
from harness.devices import DeviceFacts, detect
from harness.errors import UsageError
from harness.run.settings import Choice
from harness.worker.messages import Asked
from harness.worker.revisions import Side

H200 = detect(DeviceFacts("cuda", "NVIDIA H200", "sm_90", l2_bytes=60 << 20))
HOST = detect(DeviceFacts("cpu", "Some Xeon", "x86_64", l2_bytes=36 << 20))

NAN = float("nan")
INF = float("inf")


def complaint(**options):
    with pytest.raises(UsageError) as caught:
        Choice(**options).check()
    return str(caught.value)


def test_the_defaults_are_sound():
    Choice().check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suite": "quick", "shapes": "1x1"}, "--suite and --shapes both name the cases; give one of them"),
        (
            {"suite": "qick"},
            "--suite qick: no such suite; choose among quick, fast-llm, llm, quack, inductor, te-rocm",
        ),
        ({"shapes": "8192"}, "--shapes: '8192' is not a shape; write ROWSxCOLS, such as 8192x4096"),
        ({"shapes": ""}, "--shapes is empty; give ROWSxCOLS, such as --shapes 8192x4096,1024x1024"),
        ({"shapes": "0x1"}, "--shapes: '0x1' is empty; rows and cols are at least 1, such as 8192x4096"),
        ({"norm": "batch"}, "--norm batch: not one of rms, layer"),
        ({"norm": ""}, "--norm (empty): not one of rms, layer"),
        ({"dtype": "int8"}, "--dtype int8: not one of bf16, fp16, fp32"),
        ({"weight_dtype": "fp8"}, "--weight-dtype fp8: not one of bf16, fp16, fp32"),
        ({"eps": -1e-5}, "--eps -1e-05: must not be negative"),
        ({"time_limit_s": 0.0}, "--time-limit 0: must be positive, in seconds"),
        ({"time_limit_s": -3.0}, "--time-limit -3: must be positive, in seconds"),
        ({"processes": 0}, "--processes 0: must be at least 1"),
        ({"processes": -1}, "--processes -1: must be at least 1"),
        ({"impl_files": (Path("missing.py"),)}, "--impl missing.py: no such file"),
        ({"impl_files": (Path(__file__).parent,)}, f"--impl {Path(__file__).parent}: no such file"),
    ],
)
def test_a_bad_option_is_refused_before_a_worker_starts(options, message):
    assert complaint(**options) == message


@pytest.mark.parametrize("options", [{"eps": NAN}, {"eps": INF}, {"time_limit_s": NAN}, {"time_limit_s": INF}])
def test_a_number_that_is_none_is_refused(options):
    assert complaint(**options)


def test_the_suite_is_the_one_named_or_the_default_of_the_device_where_no_shapes_are_given():
    assert Choice().suite_name("cuda") == "fast-llm"
    assert Choice().suite_name("cpu") == "quick"
    assert Choice(suite="llm").suite_name("cpu") == "llm"
    assert Choice(shapes="4x8").suite_name("cuda") is None


def test_the_default_dtype_is_that_of_the_device():
    assert {case.dtype for case in Choice().cases("cuda")} == {"bf16"}
    assert {case.dtype for case in Choice().cases("cpu")} == {"fp32"}
    assert {case.dtype for case in Choice(dtype="fp16").cases("cpu")} == {"fp16"}


def test_options_reach_the_cases():
    choice = Choice(shapes="4x8,2x3", norm="layer", dtype="bf16", weight_dtype="fp32", zero_centred=True, eps=1e-6)
    more = {"weight_dtype": "fp32", "bias": True, "zero_centred": True, "eps": 1e-6, "device": "cpu"}
    assert choice.cases("cpu") == [NormCase("layer", rows, cols, "bf16", **more) for rows, cols in ((4, 8), (2, 3))]
    assert [case.bias for case in Choice(shapes="4x8", bias=False).cases("cpu")] == [False, False]


@pytest.mark.parametrize(
    ("device", "kind"),
    [("auto", "auto"), ("cpu", "cpu"), (" CPU ", "cpu"), ("h200", "gpu"), ("toaster", "gpu")],
)
def test_what_the_first_worker_is_told(device, kind):
    asked = Choice(device=device, impl_files=(Path("a.py"), Path("b.py"))).first_asked()
    assert asked == Asked(device=kind, impl_files=("a.py", "b.py"))


def test_what_every_case_is_told():
    choice = Choice(
        seed=9,
        flush="dirty",
        timed=False,
        twice=True,
        cross_check=True,
        impl_files=(Path("a.py"),),
        sides=(Side("base", "b.py"),),
    )
    assert choice.asked(H200, "quack@base") == Asked(
        device="gpu",
        impl_files=("a.py",),
        sides=(Side("base", "b.py"),),
        twin="quack@again",
        seed=9,
        flush="dirty",
        flush_bytes=512 << 20,
        cache_bytes=60 << 20,
        datasheet_gbps=4800,
        baseline="quack@base",
        timed=False,
        repeats=300,
        seeds=10,
        min_blocks=40,
        max_blocks=120,
        half_width=0.003,
        budget_s=10.0,
        twice=True,
        broken_down=True,
        cross_check=True,
    )


def test_a_baseline_that_is_no_revision_has_no_copy():
    assert Choice().asked(H200, "quack").twin is None


def test_evidence_and_effort_by_device_and_haste():
    def effort(profile, **options):
        asked = Choice(**options).asked(profile, "torch-eager")
        return asked.repeats, asked.min_blocks, asked.max_blocks, asked.half_width, asked.budget_s

    assert effort(H200) == (50, 40, 120, 0.003, 10.0)
    assert effort(HOST) == (2, 20, 60, 0.003, 3.0)
    assert effort(H200, quick=True) == effort(HOST, quick=True) == (2, 10, 20, 0.02, 5.0)


def test_what_a_cpu_is_told_of_itself():
    asked = Choice().asked(HOST, "torch-eager")
    assert (asked.device, asked.flush_bytes, asked.cache_bytes, asked.datasheet_gbps) == (
        "cpu",
        144 << 20,
        36 << 20,
        None,
    )
    assert (asked.twice, asked.cross_check, asked.broken_down) == (False, False, True)


def test_a_later_process_is_asked_for_times_and_for_no_more_of_the_rest_than_it_takes():
    asked = Choice(seed=9, twice=True, cross_check=True).asked(H200, "quack")
    assert asked.once_more() == replace(asked, repeats=2, broken_down=False, cross_check=False)
    assert asked.once_more().once_more() == asked.once_more()
    assert replace(asked, repeats=1).once_more().repeats == 1


@pytest.mark.parametrize(
    ("options", "on_gpu", "on_cpu"),
    [
        ({}, ("before", "after"), ("before",)),
        ({"quick": True}, ("before",), ()),
        ({"timed": False}, (), ()),
        ({"timed": False, "quick": True}, (), ()),
        ({"selftest_alone": True}, ("alone",), ("alone",)),
        ({"selftest_alone": True, "quick": True}, ("alone",), ("alone",)),
        ({"processes": 5}, ("before", "after"), ("before",)),
    ],
)
def test_when_the_engine_is_tested(options, on_gpu, on_cpu):
    assert Choice(**options).selftests("cuda") == on_gpu
    assert Choice(**options).selftests("cpu") == on_cpu


def test_a_self_test_alone_runs_no_case():
    assert Choice(selftest_alone=True).runs("cuda") == []
    assert Choice().runs("cuda") == Choice().cases("cuda") != []


def test_the_command_line_itself_is_no_part_of_the_choice():
    assert Choice(command="normbwd bench") == Choice(command="normbwd bench --device auto")
