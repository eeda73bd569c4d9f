import re
from dataclasses import replace

import pytest

import reports
from harness.errors import UsageError
from reports.formats.verification import summary
from reports.labels import determinism
from reports.markdown_writer import write_section as write
from tests.results_factory import CASE, LAYER, careful, longer, outcomes, results, row, verification


def render(runs):
    return reports.render(runs, "verification")


def status(*runs):
    """What all files together say of the only case."""
    (found,) = outcomes(runs)
    return found.status, found.reason


def one(impl_status="ok", reason=None, **more):
    return results(row("quack", status=impl_status, reason=reason, **more), timed=False)


def repeated(repeats, differing_in=(), rho=1.0, error_class="exact"):
    check = verification(repeats=repeats, differing_in=differing_in, rho=rho, error_class=error_class)
    return one("nondeterministic" if differing_in else "ok", verification=check)


def test_golden(golden):
    golden("careful.verification.md", render([careful(), longer()]))


def test_one_file_needs_no_list_and_no_number():
    text = reports.render(careful(), "verification")
    assert text == render([careful()])
    assert "### File 1" not in text
    assert "### File 2" in render([careful(), longer()])


def test_the_worst_outcome_of_several_files_wins():
    assert status(one(), one("wrong", "dx is off")) == ("wrong", "dx is off")
    assert status(one("crashed", "boom"), one("unsupported", "no")) == ("crashed", "boom")
    assert status(one("wrong", "dx is off"), one("wrong", "dweight is off")) == ("wrong", "dx is off; dweight is off")


def test_a_file_in_which_it_was_not_installed_says_nothing_of_it():
    assert status(one("missing", "not installed"), one()) == ("ok", None)
    assert status(one("missing", "not installed")) == ("missing", "not installed")


def test_determinism_comes_from_file_with_most_runs():
    for runs in ([repeated(300), repeated(3000)], [repeated(3000), repeated(300)]):
        (found,) = outcomes(runs)
        assert (determinism(found.checked), found.checked.compared) == ("bitwise n=3000", 2999)


def test_bits_that_differ_in_any_file_are_not_outvoted():
    (found,) = outcomes([repeated(300, ["dweight"]), repeated(3000)])
    assert (found.status, determinism(found.checked)) == ("nondeterministic", "2 of 300 differ, in dweight")


def test_the_worst_error_of_several_files_counts():
    (found,) = outcomes([repeated(300, rho=1.41, error_class="one extra rounding"), repeated(3000)])
    assert (found.checked.errors["dx"].rho, found.checked.error_class) == (1.41, "one extra rounding")


def test_worst_class_counts_before_larger_rho():
    """With fewer draws the bounds are wider, so that a larger rho may be no worse."""
    few = repeated(300, rho=2.06, error_class="two")
    (found,) = outcomes([few, repeated(3000, rho=1.99, error_class="three")])
    assert (found.checked.errors["dx"].rho, found.checked.error_class) == (2.06, "three")


def test_files_of_different_devices():
    with pytest.raises(UsageError, match=r"different devices \(NVIDIA H200, Some CPU\); give runs of one"):
        render([one(), results(row("quack"), cpu=True)])


def test_every_case_is_counted_once_in_the_summary():
    _, written = write(summary(outcomes([careful(), longer()])))
    head, _, *lines = written.splitlines()
    heads = [cell.strip() for cell in head.split("|")[2:-3]]
    assert heads == ["right", "nondet.", "refused", "wrong", "crashed", "timeout", "missing"]
    for line in lines:
        impl, *counts = (cell.strip() for cell in line.split("|")[1:-3])
        found = [outcome for outcome in outcomes([careful(), longer()]) if outcome.impl == impl]
        assert sum(map(int, counts)) == len(found)


def test_an_unfinished_run_and_an_empty_one_say_so():
    assert "**Unfinished: 1 of 3 cases are here" in render([results(row("quack"), jobs=3, timed=False)])
    absent = results(row("quack", status="missing", reason="not installed: quack"), timed=False)
    assert "No implementation was tried." in render([absent])
    assert "## Precision" not in render([absent])
    assert "## Determinism" not in render([absent])
    assert "No implementation was tried." in render([results(timed=False)])


def test_a_file_that_was_timed_has_a_page_too():
    assert "1 implementation on 2 cases: quack right on 2." in render(
        [results(row("quack", 9.0), row("quack", 9.0, LAYER))]
    )


def test_the_sanitizer_has_a_section_only_where_it_ran():
    assert "## Sanitizer" in render([careful()])
    assert "## Sanitizer" not in render([longer()])


def test_failures_have_reasons_and_refusals_a_count():
    section = render([careful()]).split("## Reasons")[1].split("## Conditions")[0]
    assert re.search(
        r"torch-eager \| crashed +\| +1 \| RuntimeError: x is not contiguous +\| rms-8192x1024-bf16-strided-x ", section
    )
    assert re.search(r"torch-eager \| nondeterministic \| +4 \| 2 of 300 runs differ, in dweight ", section)
    assert re.search(r"quack +\| unsupported +\| +3 \| no LayerNorm of bf16", section)
    assert "## Reasons" not in render([longer()])


def test_refusals_of_one_implementation_stand_together():
    refusals = [("quack", CASE, "a"), ("liger", CASE, "b"), ("quack", LAYER, "c"), ("liger", LAYER, "b")]
    rows = [row(impl, case=case, status="unsupported", reason=why) for impl, case, why in refusals]
    section = render([results(*rows, timed=False)]).split("## Reasons")[1].split("## Conditions")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.strip().splitlines()[2:]]
    assert [(impl, cases, why) for impl, _, cases, why in cells] == [
        ("quack", "1", "a"),
        ("quack", "1", "c"),
        ("liger", "2", "b"),
    ]


def test_number_of_gradients_in_bound_is_reported():
    assert "over 120 gradients" in render([careful()])
    assert "Bonferroni" not in render([results(row("quack", case=CASE), timed=False)])


def of_revision(run, revision, started_at):
    return replace(run, run=run.run.model_copy(update={"revision": revision, "started_at": started_at}))


def test_a_later_revision_replaces_what_an_earlier_one_said():
    old = of_revision(one("wrong", "dx is off"), "aaa", "2026-11-20T10:00:00+00:00")
    new = of_revision(one(), "bbb", "2026-11-21T10:00:00+00:00")
    same = of_revision(one("wrong", "dweight is off"), "bbb", "2026-11-21T09:00:00+00:00")
    gone = of_revision(one("missing", "not installed"), "ccc", "2026-11-22T10:00:00+00:00")
    assert status(old, new) == status(new, old) == ("ok", None)
    assert status(old, new, same) == ("wrong", "dweight is off")
    assert status(old, new, gone) == ("ok", None)


def test_later_revision_replaces_only_cases_it_ran():
    old = of_revision(results(row("quack", status="wrong", reason="dx is off", case=LAYER), timed=False), "aaa", "1")
    new = of_revision(one(), "bbb", "2")
    assert {(each.case.norm, each.status) for each in outcomes([old, new])} == {("layer", "wrong"), ("rms", "ok")}
