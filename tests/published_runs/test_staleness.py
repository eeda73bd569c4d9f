from dataclasses import replace

import pytest

from harness.analysis.sources import hash_of
from harness.analysis.staleness import IN_VAIN, UNHASHED, changed_since, mark, part_so_far, stale_because
from harness.records.file import load
from harness.records.published_plan import Plan, file_of, published_files, read_plan
from harness.records.run_records import ImplRecord, ResumedRecord
from harness.records.schema import TOOLS, SanitizerRecord
from harness.records.settings import Settings
from tests.published_runs.small_checkout import change, measured, write
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
    assert changed_since(run, checkout) == ("triton-inhouse", "quack", "harness/verify")
    assert stale_because(run, PLANNED, checkout) == (
        "since then triton-inhouse, quack and harness/verify have changed",
    )


@pytest.fixture
def same_launches(run, checkout):
    """A limit that has changed and launches the same for the published file h200/one."""
    was = run.run.sources["impls/triton_inhouse.py"]
    change(checkout, "impls/inhouse/limits.py", "3", "4")
    published = file_of("h200", "one", checkout / "results")
    published.parent.mkdir(parents=True)
    published.touch()
    entry = f'''triton = "3.7.1"
        [[change]]
        adapter = "impls/triton_inhouse.py"
        was = "{was}"
        now = "{hash_of("impls/triton_inhouse.py", checkout)}"
        because = "the limit is never reached"
        files.h200.one = "0123456789abcdef"
    '''
    path = checkout / "results/same_launches.toml"
    path.write_text(entry)
    return path


def test_file_for_which_the_same_is_launched_is_current(run, checkout, same_launches):
    assert stale_because(run, PLANNED, checkout, name="one") == ()
    assert mark(run, "one", PLAN, checkout) == f"measured at revision abc1234; {IN_VAIN}"
    change(checkout, "impls/quack.py", "torch", "sys")
    assert changed_since(run, checkout, "one") == ("quack",)
    assert stale_because(run, PLANNED, checkout, name="one") == ("since then quack has changed",)


SINCE = ("since then triton-inhouse has changed",)


@pytest.mark.parametrize(
    ("was", "now"),
    [('was = "', 'was = "0'), ('now = "', 'now = "0'), ("impls/triton_inhouse.py", "impls/quack.py")],
)
def test_entry_of_other_code_leaves_it_stale(run, checkout, same_launches, was, now):
    text = same_launches.read_text()
    assert was in text
    same_launches.write_text(text.replace(was, now))
    assert stale_because(run, PLANNED, checkout, name="one") == SINCE
    assert IN_VAIN not in mark(run, "one", PLAN, checkout)


def test_entry_is_of_one_file_alone(run, checkout, same_launches):
    assert stale_because(run, PLANNED, checkout, name="other") == SINCE
    assert stale_because(run, PLANNED, checkout) == SINCE, "what is not to be published has no name"
    elsewhere = run.run.model_copy(update={"device": run.run.device.model_copy(update={"profile": "b200"})})
    assert stale_because(replace(run, run=elsewhere), PLANNED, checkout, name="one") == SINCE


def test_code_that_changes_again_makes_it_stale(run, checkout, same_launches):
    change(checkout, "impls/inhouse/limits.py", "4", "5")
    assert stale_because(run, PLANNED, checkout, name="one") == SINCE


@pytest.fixture
def other_verdicts(run, checkout):
    """Two rooms of the engine that have changed, and decide otherwise of rows that were not tried."""
    entries = []
    for room in ("harness/verify", "harness/worker"):
        change(checkout, f"{room}/deciding.py", "1", "2")
        only = [f"{room}/deciding.py:decide"]
        entries.append(f"""[[change]]
            path = "{room}"
            was = ["{run.run.sources[room]}"]
            now = "{hash_of(room, checkout)}"
            only = {only}
            rest = "{hash_of(room, checkout, without=only)}"
            reasons = ["not tried"]
            because = "it was too strict"
        """)
    path = checkout / "results/other_verdicts.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(entries))


def test_what_has_no_row_that_is_decided_otherwise_is_current_and_gone_on_with(run, checkout, other_verdicts):
    assert changed_since(run, checkout) == ()
    assert stale_because(run, PLANNED, checkout) == stale_because(run, PLANNED, checkout, name="one") == ()
    assert mark(run, "one", PLAN, checkout) == f"measured at revision abc1234; {IN_VAIN}"


def test_what_else_has_changed_is_told_apart(run, checkout, other_verdicts):
    change(checkout, "harness/timing/deciding.py", "1", "2")
    assert changed_since(run, checkout) == ("harness/timing",)
    assert mark(run, "one", PLAN, checkout).endswith(f"{IN_VAIN}; stale: since then harness/timing has changed")


def test_kernels_and_rows_may_both_have_changed_in_vain(run, checkout, same_launches, other_verdicts):
    assert mark(run, "one", PLAN, checkout) == f"measured at revision abc1234; {IN_VAIN}"


def resumed(run, sources):
    """The run, gone on with by other code: its last row is measured so."""
    rows = [*run.rows, row("quack", 50.0).model_copy(update={"reason": "not tried: in quarantine"})]
    record = ResumedRecord(at=run.run.started_at, revision="def5678", sources=sources)
    return replace(run, rows=rows, resumed=((len(run.rows), record),))


def test_rows_are_held_to_the_code_that_measured_them(run, checkout, other_verdicts):
    """What new code says of its own rows is no reason, and what it decided is not the old code's."""
    now = measured(checkout)
    assert mark(resumed(run, now), "one", PLAN, checkout).startswith("measured at revision abc1234 and def5678; ")
    assert changed_since(resumed(run, now), checkout) == ()
    assert changed_since(resumed(run, run.run.sources), checkout) == ("harness/verify", "harness/worker")
    for room in ("harness/verify", "harness/worker"):  # back to the code with which the run began
        change(checkout, f"{room}/deciding.py", "2", "1")
    assert changed_since(run, checkout) == ()
    assert changed_since(resumed(run, now), checkout) == ("harness/verify", "harness/worker")


def test_what_matters_to_the_rows_of_one_sitting_matters(run, checkout, other_verdicts):
    """Those of the other sitting are covered, whichever comes first."""
    later = resumed(run, run.run.sources)
    (_, record), *_ = later.resumed
    first = replace(later, rows=[*reversed(later.rows)], resumed=((1, record),))
    assert changed_since(later, checkout) == changed_since(first, checkout) == ("harness/verify", "harness/worker")


def test_hashes_that_a_run_is_to_go_on_with_take_the_place_of_the_code_here(run, checkout):
    now = measured(checkout)
    assert changed_since(run, checkout, now=now) == ()
    assert changed_since(run, checkout, now=now | {"harness/run": "other"}) == ("harness/run",)
    assert changed_since(run, checkout, now=now | {"impls/new.py": "more"}) == ("impls/new.py",)
    del now["harness/run"]
    assert changed_since(run, checkout, now=now) == ("harness/run",)


def test_a_row_that_may_be_decided_otherwise_makes_it_stale(run, checkout, other_verdicts):
    quarantined = row("quack", 50.0).model_copy(update={"reason": "not tried: in quarantine"})
    run = replace(run, rows=[*run.rows, quarantined])
    assert changed_since(run, checkout) == ("harness/verify", "harness/worker")
    assert IN_VAIN not in mark(run, "one", PLAN, checkout)


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
    assert part_so_far(with_settings(run, seed=1), planned.runs["one"]) is None, "of another run, not of five processes"
    run = with_settings(run, processes=6)
    assert stale_because(run, planned.runs["one"].settings, checkout) == ("processes 6 where the plan says 5",)
    assert part_so_far(run, planned.runs["one"]) is None


@pytest.mark.parametrize(
    ("sanitizer", "ran", "said"),
    [
        (True, TOOLS[:3], "3 of 4 tools of compute-sanitizer so far"),
        (True, TOOLS, None),
        (True, (), None),  # a device that it does not know
        (False, TOOLS[:3], None),
    ],
)
def test_a_file_from_before_a_tool_of_the_sanitizer_is_a_part(run, sanitizer, ran, said):
    case = run.rows[0].case
    run = replace(run, sanitized=[SanitizerRecord(case=case, impl="quack", tool=tool, errors=0) for tool in ran])
    plan = Plan.model_validate({"runs": {"one": {"about": "all", "verify": {}, "sanitizer": sanitizer}}})
    assert part_so_far(run, plan.runs["one"]) == said


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
        reasons = stale_because(run, entry.settings if entry else None, name=name)
        assert (run.run.sources is None) == (UNHASHED in reasons)
        assert ("stale: " in mark(run, name, plan)) == bool(reasons)
