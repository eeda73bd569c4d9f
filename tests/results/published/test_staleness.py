from dataclasses import replace

import pytest

from harness.results.file import load
from harness.results.published.planned import Plan, published_files, read_plan
from harness.results.published.staleness import UNHASHED, changed_since, mark, part_so_far, stale_because
from harness.results.run_records import ImplRecord
from harness.results.settings import Settings
from tests.results.published.small_checkout import change, measured, write
from tests.results_factory import results, row

PLANNED = Settings(shapes="8192x4096", impls="all", seed=7)
PLAN = Plan.model_validate(
    {"runs": {"one": {"about": "one shape", "bench": {"shapes": "8192x4096", "impls": "all", "seed": 7}}}}
)


@pytest.fixture
def checkout(tmp_path):
    return write(tmp_path)


@pytest.fixture
def run(checkout):
    """A finished run of both adapters, as the plan asks for it, and of a third that was missing."""
    done = results(row("triton-inhouse", 50.0), shapes="8192x4096", impls="all")
    known = {"triton-inhouse": "impls/triton_inhouse.py", "quack": "impls/quack.py", "liger": "impls/liger.py"}
    impls = [
        ImplRecord(name=name, family=name, source=source, missing="not here" if name == "liger" else None)
        for name, source in known.items()
    ]
    record = done.run.model_copy(update={"sources": measured(checkout), "implementations": impls})
    return replace(done, run=record)


def with_settings(run, **changes):
    return replace(run, run=run.run.model_copy(update={"settings": run.run.settings.changed(**changes)}))


def test_run_of_this_checkout_is_current(run, checkout):
    assert stale_because(run, PLANNED, checkout) == ()
    assert mark(run, "one", PLAN, checkout) == "measured at revision abc1234"


@pytest.mark.parametrize(
    ("name", "was", "now", "said"),
    [
        ("impls/inhouse/limits.py", "3", "4", "since then triton-inhouse has changed"),
        ("harness/timing/deciding.py", "1", "2", "since then harness/timing has changed"),
    ],
)
def test_changed_code_makes_it_stale(run, checkout, name, was, now, said):
    change(checkout, name, was, now)
    assert stale_because(run, PLANNED, checkout) == (said,)
    assert mark(run, "one", PLAN, checkout) == f"measured at revision abc1234; stale: {said}"


def test_all_that_has_changed_is_named(run, checkout):
    change(checkout, "impls/inhouse/limits.py", "3", "4")
    change(checkout, "harness/verify/deciding.py", "1", "2")
    (checkout / "impls/quack.py").unlink()
    assert changed_since(run.run, checkout) == ("triton-inhouse", "quack", "harness/verify")
    assert stale_because(run, PLANNED, checkout) == (
        "since then triton-inhouse, quack and harness/verify have changed",
    )


def test_comment_changes_nothing(run, checkout):
    change(checkout, "impls/triton_inhouse.py", "the package beside", "another comment")
    assert stale_because(run, PLANNED, checkout) == ()


@pytest.mark.parametrize(
    ("planned", "said"),
    [
        ({"dtype": "fp16"}, "dtype none where the plan says fp16"),
        ({"shapes": "64x64"}, "shapes 8192x4096 where the plan says 64x64"),
        ({"context": "step"}, "context cold where the plan says step"),
        (
            {"shapes": ",".join(["8192x4096"] * 9)},
            "shapes 8192x4096 where the plan says " + "8192x4096,8192x4096,8192x4096,8192x40...",
        ),
    ],
)
def test_other_settings_make_it_stale(run, checkout, planned, said):
    assert stale_because(run, PLANNED.changed(**planned), checkout) == (said,)


def test_fewer_processes_are_a_part_and_more_are_other_settings(run, checkout):
    planned = Plan.model_validate({"runs": {"one": {"about": "one shape", "bench": {"processes": 5}}}})
    run = with_settings(run, shapes=None, impls=None, seed=0)
    assert stale_because(run, planned.runs["one"].settings, checkout) == ()
    assert mark(run, "one", planned, checkout) == "measured at revision abc1234; 1 of 5 processes so far"
    run = with_settings(run, processes=6)
    assert stale_because(run, planned.runs["one"].settings, checkout) == ("processes 6 where the plan says 5",)
    assert part_so_far(run, planned.runs["one"].settings) is None


def test_defaults_of_the_device_are_no_other_settings(run, checkout):
    run = with_settings(run, dtype="bf16", repeats=50, seeds=1, context="cold", baseline="torch-eager")
    assert stale_because(run, PLANNED, checkout) == ()


def test_quick_look_is_not_what_is_planned(run, checkout):
    run = with_settings(run, quick=True)
    assert stale_because(run, PLANNED, checkout) == ("quick True where the plan says False",)


def test_unfinished_run_is_stale(run, checkout):
    assert stale_because(replace(run, end=None), PLANNED, checkout) == ("not finished",)


def test_early_file_is_stale_and_told_only_what_it_tells(run, checkout):
    early = run.run.model_copy(update={"sources": None})
    assert stale_because(replace(run, run=early), PLANNED.changed(dtype="fp16", seed=3), checkout) == (
        UNHASHED,
        "seed 7 where the plan says 3",
    )
    assert mark(replace(run, run=early), "gone", PLAN, checkout) == (
        "measured at revision abc1234; stale: measured before hashes of the code were recorded"
    )


def test_published_files_of_other_code_are_named():
    """Whatever is stale has its reason; `normbwd publish --dry-run` shows the same."""
    plan = read_plan()
    for _, name, path in published_files():
        run = load(path)
        entry = plan.runs.get(name)
        reasons = stale_because(run, entry.settings if entry else None)
        assert (run.run.sources is None) == (UNHASHED in reasons)
        assert ("stale: " in mark(run, name, plan)) == bool(reasons)
