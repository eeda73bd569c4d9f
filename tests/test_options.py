from pathlib import Path

import pytest

from harness.cases import NormCase
from harness.errors import UsageError
from harness.messages import Asked
from harness.options import Choice

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
    choice = Choice(seed=9, flush="dirty", timed=False, impl_files=(Path("a.py"),))
    asked = choice.asked("cuda", 1 << 30, "quack")
    assert (asked.device, asked.seed, asked.flush, asked.flush_bytes) == ("gpu", 9, "dirty", 1 << 30)
    assert (asked.baseline, asked.timed, asked.impl_files) == ("quack", False, ("a.py",))


def test_evidence_and_effort_by_device_and_haste():
    def effort(device, **options):
        asked = Choice(**options).asked(device, 0, "torch-eager")
        return asked.repeats, asked.min_blocks, asked.max_blocks, asked.half_width

    assert effort("cuda") == (50, 40, 120, 0.003)
    assert effort("cpu") == (2, 20, 60, 0.003)
    assert effort("cuda", quick=True) == effort("cpu", quick=True) == (2, 10, 20, 0.02)


def test_the_command_line_itself_is_no_part_of_the_choice():
    assert Choice(command="normbwd bench") == Choice(command="normbwd bench --device auto")
