from pathlib import Path

import pytest

from harness.cases import NormCase
from harness.devices.facts import DeviceFacts
from harness.devices.profiles import detect
from harness.errors import UsageError
from harness.records.cases_asked import cases_on, suite_on
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from harness.run.resolve import check, contexts_left_out, for_later_process, resolved, selftests_on
from harness.worker.messages import Start

H200 = detect(DeviceFacts("cuda", "NVIDIA H200", "sm_90", l2_bytes=60 << 20))
HOST = detect(DeviceFacts("cpu", "Some Xeon", "x86_64", l2_bytes=36 << 20))

CPU, GPU = "cpu", "cuda"


def asked(**options):
    """The invocation of these options, of whichever record."""
    settings = {name: options.pop(name) for name in list(options) if name in Settings.model_fields}
    return Invocation(settings=Settings(**settings), **options)


def complaint(**options):
    with pytest.raises(UsageError) as caught:
        check(asked(**options))
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"suite": "qick"},
            "--suite qick: no such suite; choose among quick, fast-llm, llm, quack, inductor, te-rocm, "
            "residual, parallel, qk, gated, models",
        ),
        (
            {"suite": "models", "variant": "residual"},
            "--suite models --variant: each case of the suite has its own; leave --variant out",
        ),
        (
            {"suite": "models", "weight": False},
            "--suite models --no-weight: each case of the suite has its own; leave --no-weight out",
        ),
        (
            {"zero_centred": True, "weight": False},
            "--zero-centred --no-weight: there is no weight to be zero-centred; leave one of them out",
        ),
        (
            {"suite": "models", "norm": "layer"},
            "--suite models --norm layer: the suite has none of these; leave --norm out",
        ),
        ({"variant": "residuals"}, "--variant residuals: no variant is called so; did you mean residual?"),
        (
            {"variant": "residual", "sanitizer": True},
            "--sanitizer --variant: the sanitizer runs plain norms alone; leave one of them out",
        ),
        ({"shapes": ""}, "--shapes is empty; give ROWSxCOLS, such as --shapes 8192x4096,1024x1024"),
        ({"norm": "batch"}, "--norm batch: not one of rms, layer"),
        ({"eps": -1e-5}, "--eps -1e-05: must be a finite number, and not negative"),
        ({"time_limit_s": 0.0}, "--time-limit 0: must be a positive number of seconds"),
        ({"processes": 10**8}, "--processes 100000000: must be at most 1000"),
        ({"baseline": "torch-*"}, "--baseline torch-*: must be one name, no pattern; speedups are over it"),
        ({"compile_ahead": -3}, "--compile-ahead -3: must not be negative; 0 compiles nothing ahead"),
        ({"shapes": "99999999x99999999"}, "--shapes 99999999x99999999: needs more than 4 TiB, which no device has"),
        (
            {"device": "CPU", "context": "beside:8"},
            "--context beside:8: a CPU has no streams, so that nothing runs beside a call; name hot-dy, "
            "or leave it out",
        ),
        ({"impls": ""}, "--impls is empty; give names, such as torch-eager,triton-inhouse, or leave it out"),
        (
            {"impls": "quack,"},
            "--impls 'quack,' has an empty name; give names, such as torch-eager,triton-inhouse, or leave it out",
        ),
    ],
)
def test_a_bad_option_is_refused_before_a_worker_starts(options, message):
    assert complaint(**options) == message


@pytest.mark.parametrize(
    ("device", "context", "message"),
    [
        (
            (CPU, None),
            "beside:8,host",
            "--context beside:8,host: a CPU has no streams, so that nothing runs beside a call; name hot-dy, "
            "or leave it out",
        ),
        (
            (GPU, 132),
            "beside:132",
            "--context beside:132: none of the 132 multiprocessors here would be free; name fewer",
        ),
    ],
)
def test_contexts_that_a_device_cannot_have_are_refused(device, context, message):
    with pytest.raises(UsageError) as caught:
        contexts_left_out(Settings(context=context), *device)
    assert str(caught.value) == message


def test_contexts_beside_others_that_a_device_has_are_left_out():
    left_out = contexts_left_out(Settings(context="step"), CPU)
    assert left_out.startswith("--context graph,beside:8,beside:32,in-a-row,host: a CPU has no streams, ")
    assert left_out.endswith("; left out")
    assert contexts_left_out(Settings(context="beside:200,graph"), GPU, 132).startswith("--context beside:200: ")


def test_the_suite_is_the_one_named_or_the_device_s():
    assert suite_on("cuda", Settings()) == "fast-llm"
    assert suite_on("cpu", Settings()) == "quick"
    assert suite_on("cpu", Settings(suite="llm")) == "llm"
    assert suite_on("cuda", Settings(shapes="4x8")) is None
    assert suite_on("cuda", Settings(timed=False)) is None  # a catalogue


def test_the_default_dtype_is_that_of_the_device():
    assert {case.dtype for case in cases_on("cuda", Settings())} == {"bf16"}
    assert {case.dtype for case in cases_on("cpu", Settings())} == {"fp32"}
    assert {case.dtype for case in cases_on("cpu", Settings(dtype="fp16"))} == {"fp16"}


def test_options_reach_the_cases():
    settings = Settings(shapes="4x8,2x3", norm="layer", dtype="bf16", weight_dtype="fp32", zero_centred=True, eps=1e-6)
    more = {"weight_dtype": "fp32", "bias": True, "zero_centred": True, "eps": 1e-6, "device": "cpu"}
    expected = [NormCase("layer", rows, cols, "bf16", **more) for rows, cols in ((4, 8), (2, 3))]
    assert cases_on("cpu", settings) == expected
    assert [case.bias for case in cases_on("cpu", Settings(shapes="4x8", bias=False))] == [False, False]


@pytest.mark.parametrize(
    ("device", "kind"), [("auto", "auto"), ("cpu", "cpu"), (" CPU ", "cpu"), ("h200", "gpu"), ("toaster", "gpu")]
)
def test_what_the_first_worker_is_told(device, kind):
    invocation = asked(device=device, impl_files=(Path("a.py"), Path("b.py")))
    assert invocation.start() == Start(device=kind, impl_files=("a.py", "b.py"))


def test_what_was_given_is_kept_and_the_rest_is_the_device_s():
    settings = Settings(suite="llm", dtype="fp16", seed=9, flush="dirty", twice=True, seeds=3, repeats=7)
    assert resolved(settings, H200) == settings.changed(
        min_blocks=40, max_blocks=120, half_width=0.003, budget_s=10.0, flush_bytes=240 << 20
    )
    assert resolved(resolved(settings, H200), HOST) == resolved(settings, H200)


def test_evidence_and_effort_by_device_and_haste():
    def effort(profile, **options):
        settings = resolved(Settings(**options), profile)
        stopping = (settings.min_blocks, settings.max_blocks, settings.half_width, settings.budget_s)
        return settings.seeds, settings.repeats, *stopping

    assert effort(H200) == (1, 50, 40, 120, 0.003, 10.0)
    assert effort(HOST) == (1, 2, 20, 60, 0.003, 3.0)
    assert effort(H200, quick=True) == effort(HOST, quick=True) == (1, 2, 10, 20, 0.02, 5.0)
    assert effort(H200, processes=2)[2:] == (40, 120, 0.003, 10.0)
    assert effort(H200, processes=3)[2:] == (40, 60, 0.003, 10.0)
    assert effort(H200, processes=5, twin="again")[2:] == (40, 120, 0.003, 10.0)  # a claim about two revisions
    assert effort(H200, quick=True, processes=5)[3] == 20
    assert effort(H200, timed=False)[:2] == (10, 300)
    assert effort(HOST, timed=False)[:2] == (10, 12)


def test_a_file_says_how_often_a_later_process_runs_a_case():
    assert resolved(Settings(processes=5), H200).later_repeats == 2
    assert resolved(Settings(processes=5, repeats=1), H200).later_repeats == 1
    assert resolved(Settings(timed=False), H200).later_repeats == 2
    alone = resolved(Settings(), H200)
    assert alone.later_repeats == 0
    assert "later_repeats" not in alone.model_dump()


def test_a_later_process_measures_times_and_little_else():
    settings = resolved(Settings(seed=9, twice=True, cross_check=True), H200)
    later = settings.changed(repeats=2, profiled=False, cross_check=False)
    assert for_later_process(settings) == later
    assert for_later_process(later) == later
    assert for_later_process(settings.changed(repeats=1)).repeats == 1


@pytest.mark.parametrize(
    ("options", "on_gpu", "on_cpu"),
    [
        ({}, ("before", "after"), ()),
        ({"quick": True}, ("before",), ()),
        ({"timed": False}, (), ()),
        ({"timed": False, "quick": True}, (), ()),
        ({"selftest_alone": True}, ("alone",), ("alone",)),
        ({"selftest_alone": True, "quick": True}, ("alone",), ("alone",)),
        ({"processes": 5}, ("before", "after"), ()),
    ],
)
def test_when_the_engine_is_tested(options, on_gpu, on_cpu):
    assert selftests_on("cuda", asked(**options)) == on_gpu
    assert selftests_on("cpu", asked(**options)) == on_cpu
