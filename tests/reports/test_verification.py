import re
from dataclasses import replace

import pytest

import reports
from harness.errors import UsageError
from reports.labels import determinism
from tests.results_factory import LAYER, careful, longer, outcomes, results, row, verification
from tests.wording import worded


def render(runs):
    return reports.render(runs, "verification")


def status(*runs):
    """What all files together say of the only case."""
    (found,) = outcomes(runs)
    return found.status, worded(found.reason)


def one(impl_status="ok", reason=None, **more):
    return results(row("quack", status=impl_status, reason=reason, **more), timed=False)


def repeated(repeats, differing_in=(), rho=1.0, error_class="exact"):
    check = verification(repeats=repeats, differing_in=differing_in, rho=rho, error_class=error_class)
    return one("nondeterministic" if differing_in else "ok", verification=check)


def test_golden(golden):
    golden("careful.verification.md", render([careful(), longer()]))


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
        assert (determinism(found.checked), found.checked.compared) == ("same bits in 3000 runs", 2999)


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


def test_failures_have_reasons_and_refusals_a_count():
    section = render([careful()]).split("## Reasons")[1].split("## Conditions")[0]
    assert re.search(
        r"torch-eager \| crashed +\| +1 \| RuntimeError: x is not contiguous +\| rms-8192x1024-bf16-strided-x ", section
    )
    assert re.search(r"torch-eager \| nondeterministic \| +4 \| 2 of 300 runs differ, in dweight ", section)
    assert re.search(r"quack +\| unsupported +\| +3 \| no LayerNorm of bf16", section)
    assert "## Reasons" not in render([longer()])


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
