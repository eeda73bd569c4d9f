from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.cases.variants import with_features
from harness.errors import UsageError, close_name
from harness.records.run_records import ImplRecord
from harness.records.schema import RowRecord
from harness.run.plan import (
    Job,
    left_to_do,
    plan,
    plan_verification,
    remaining,
    select,
    tried_on,
    with_torch,
    without_untimed,
)
from tests.results_factory import results, selftest, timing

CASES = [NormCase("rms", rows, 64, device="cpu") for rows in (1, 2, 3)]
KNOWN = [
    ImplRecord(name=name, family=family, source=f"impls/{family}.py")
    for name, family in (
        ("torch-eager", "torch-eager"),
        ("compiled", "compiled"),
        ("compiled-tuned", "compiled"),
        ("quack", "quack"),
    )
]


def names(wanted=None, baseline=None, default="torch-eager", known=KNOWN, files=()):
    return [item.name for item in select(known, wanted, baseline, default, files)]


def test_one_row_a_library_where_nothing_is_named():
    assert names() == ["torch-eager", "compiled", "quack"]
    assert names(known=KNOWN[::-1]) == ["torch-eager", "quack", "compiled-tuned"]


def test_all_is_every_variant_but_those_on_request():
    known = [*KNOWN, ImplRecord(name="slow", family="quack", source="impls/quack.py", on_request=True)]
    assert names("all", known=known) == ["torch-eager", "compiled", "compiled-tuned", "quack"]
    assert names("all,slow", known=known) == ["torch-eager", "compiled", "compiled-tuned", "quack", "slow"]


def test_what_compiles_for_minutes_runs_only_where_it_is_asked_for():
    slow = [*KNOWN, ImplRecord(name="slow", family="slow", source="mine.py", slow_to_compile=True)]
    assert "slow" not in names(known=slow)
    assert all("slow" in names(known=slow, **asked) for asked in ({"wanted": "all"}, {"files": ["mine.py"]}))


def test_the_first_asked_for_is_the_baseline_where_the_default_was_not_asked_for():
    assert names("quack,compiled-tuned")[0] == "quack"
    assert names(default="not here", known=KNOWN)[0] == "torch-eager"


def test_a_baseline_named_comes_first_and_need_not_be_asked_for_twice():
    assert names(baseline="quack") == ["quack", "torch-eager", "compiled"]
    assert names(baseline="compiled-tuned") == ["compiled-tuned", "torch-eager", "compiled", "quack"]
    assert names("torch-eager", baseline="quack") == ["quack", "torch-eager"]


def test_a_pattern_stands_for_all_that_it_fits_and_a_name_for_itself():
    assert names("compiled*") == ["compiled", "compiled-tuned"]
    assert names("compiled") == ["compiled"]
    assert names("torch-eager", baseline="compiled-*") == ["compiled-tuned", "torch-eager"]


@pytest.mark.parametrize(
    ("wanted", "baseline", "message"),
    [
        ("quak", None, "no implementation is called 'quak' (did you mean quack?)"),
        ("torch", None, "no implementation is called 'torch' (did you mean torch-eager?)"),
        ("xyz", None, "no implementation is called 'xyz'; `normbwd list impls` names them"),
        ("zzz-*", None, "'zzz-*' matches nothing; `normbwd list impls` names them"),
        (
            "a,quack,xyz,quak,zzz-*",
            None,
            "no implementation is called 'a', 'xyz', 'quak' (did you mean quack?); 'zzz-*' matches nothing; "
            "`normbwd list impls` names them",
        ),
        (None, "compild", "no implementation is called 'compild' (did you mean compiled?)"),
    ],
)
def test_a_name_that_nobody_has(wanted, baseline, message):
    with pytest.raises(UsageError) as caught:
        names(wanted, baseline)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tritn", "triton-inhouse"),
        ("flash", "flash-attn-cuda"),
        ("inhouse", "triton-inhouse"),
        ("liger-trton", "liger-triton"),
        ("nosuch", None),
    ],
)
def test_a_name_is_close_by_the_whole_of_it_or_by_its_first_word(typed, meant):
    assert close_name(typed, ["fla", "flash-attn-cuda", "liger-triton", "triton-inhouse"]) == meant


def test_processes_come_one_after_the_other_each_with_every_case():
    names = ("torch-eager", "compiled")
    assert plan(CASES[:2], KNOWN[:2], processes=3) == [
        Job(CASES[0], names, 0),
        Job(CASES[1], names, 0),
        Job(CASES[0], names, 1),
        Job(CASES[1], names, 1),
        Job(CASES[0], names, 2),
        Job(CASES[1], names, 2),
    ]


def row(case, impl, status="ok", role="impl", process=0):
    return RowRecord(case=case, impl=impl, status=status, role=role, process=process)


JOBS = [Job(case, ("a", "b", "c")) for case in CASES]


def test_what_is_done_is_not_done_again():
    rows = [row(CASES[0], name) for name in "abc"]
    assert remaining(JOBS, rows) == JOBS[1:]
    assert remaining(JOBS, []) == JOBS
    assert remaining(JOBS, [row(case, name) for case in CASES for name in "abc"]) == []


@pytest.mark.parametrize("status", ["wrong", "unsupported", "missing", "crashed", "timeout", "oom"])
def test_what_failed_for_good_is_left_out_of_a_case_that_is_tried_again(status):
    assert remaining(JOBS, [row(CASES[0], "b", status)])[0] == Job(CASES[0], ("a", "c"))


def test_helper_rows_do_not_answer_for_an_implementation():
    rows = [row(CASES[0], "a", role="again"), row(CASES[0], "b"), row(CASES[0], "c", role="floor")]
    assert remaining(JOBS, rows) == JOBS


def test_the_last_row_of_an_implementation_counts():
    rows = [row(CASES[0], "a", "ok"), row(CASES[0], "a", "crashed"), row(CASES[0], "b")]
    assert remaining(JOBS, rows)[0] == Job(CASES[0], ("b", "c"))


TWICE = [Job(case, ("a", "b"), process) for process in (0, 1) for case in CASES]


def test_what_one_process_did_is_left_to_the_other():
    assert remaining(TWICE, [row(case, name) for case in CASES for name in "ab"]) == TWICE[3:]
    assert remaining(TWICE, [row(case, name, process=1) for case in CASES for name in "ab"]) == TWICE[:3]
    assert remaining(TWICE, [row(case, name, process=of) for case in CASES for name in "ab" for of in (0, 1)]) == []


def test_untimed_rows_have_no_later_process():
    rows = [row(CASES[0], "a").model_copy(update={"untimed": "in the interpreter"}), row(CASES[0], "b")]
    assert without_untimed(TWICE, rows) == [*TWICE[:3], Job(CASES[0], ("b",), 1), *TWICE[4:]]
    rows += [row(CASES[0], "b").model_copy(update={"untimed": "in the interpreter"})]
    assert without_untimed(TWICE, rows) == [*TWICE[:3], *TWICE[4:]]


def measured_on(gpus, tested):
    """A finished run of these cases, of which GPU `gpus[i]` measured case i; `tested` came to both self-tests."""
    rows = [
        row(case, name).model_copy(update={"gpu": gpu, "timing": timing(5.0)})
        for case, gpu in zip(CASES, gpus, strict=True)
        for name in "abc"
    ]
    tests = [
        selftest(when=when).model_copy(update={"gpu": gpu})
        for gpu in dict.fromkeys(gpus)
        for when in ("before", "after")
        if when == "before" or gpu in tested
    ]
    return results(*rows, selftests=tests)


@pytest.mark.parametrize(
    ("gpus", "tested", "left"),
    [
        ((0, 1, 1), {0, 1}, []),
        ((0, 1, 1), {0}, JOBS[1:]),  # whoever measures them anew, it need not be GPU 1
        ((None, None, None), {None}, []),
        ((None, None, None), {}, JOBS[2:]),  # the GPU is the same, and the last case leads to its self-test
    ],
)
def test_cases_that_no_self_test_stands_behind_are_measured_again(gpus, tested, left):
    assert left_to_do(JOBS, measured_on(gpus, tested), timed=True) == left
    assert left_to_do(JOBS, measured_on(gpus, tested), timed=False) == []


@pytest.mark.parametrize(
    ("tests", "gpu", "left"),
    [
        ([("before", 0), ("after", 9), ("before", 9)], None, []),  # a sitting that was killed before it measured
        ([("before", 0), ("after", 9), ("before", 9)], 0, []),
        ([("before", 0), ("after", 6)], None, JOBS[2:]),  # both tests of the second sitting died
        ([("before", 0), ("after", 3)], 0, JOBS[1:]),
        ([("before", 0), ("before", 3), ("after", 9)], None, []),
        ([("after", 9)], None, JOBS[2:]),
    ],
)
def test_a_self_test_stands_behind_what_was_measured_before_it_alone(tests, gpu, left):
    records = [selftest(when=when).model_copy(update={"gpu": gpu}) for when, _ in tests]
    found = measured_on((gpu, gpu, gpu), set())
    found = replace(found, selftests=records, selftests_behind=[rows for _, rows in tests])
    assert left_to_do(JOBS, found, timed=True) == left


RESIDUAL = with_features(CASES[0], ["residual"])
BESIDE = ImplRecord(name="quack + torch", family="quack", source="impls/quack.py", on_request=True)
ABLE = ImplRecord(name="quack", family="quack", source="impls/quack.py", handles={"rms": ["residual"]})


def beside_able():
    return BESIDE.model_copy(update={"handles": ABLE.handles})


def test_torch_stands_behind_what_lacks_a_variant():
    known = [*KNOWN, BESIDE]
    chosen = with_torch(select(known, "quack,torch-eager", None, "torch-eager"), known, [CASES[0], RESIDUAL])
    assert [item.name for item in chosen] == ["torch-eager", "quack", "quack + torch"]
    assert [job.impls for job in plan([CASES[0], RESIDUAL], chosen)] == [
        ("torch-eager", "quack"),
        ("torch-eager", "quack", "quack + torch"),
    ]
    studied_twice = [("torch-eager", "quack", "quack + torch")] * 2
    assert [job.impls for job in plan_verification([RESIDUAL], chosen)] == studied_twice


def test_torch_stands_behind_nothing_that_has_the_variant_or_needs_none():
    assert with_torch([ABLE], [ABLE, BESIDE], [CASES[0], RESIDUAL]) == [ABLE]
    assert with_torch(KNOWN, [*KNOWN, BESIDE], CASES) == KNOWN
    of_layer = replace(RESIDUAL, norm="layer")
    assert with_torch([ABLE], [ABLE, BESIDE], [RESIDUAL, of_layer]) == [ABLE, BESIDE]
    assert tried_on(of_layer, [ABLE, beside_able()]) == ("quack", "quack + torch")
    assert tried_on(RESIDUAL, [ABLE, beside_able()]) == ("quack",)
