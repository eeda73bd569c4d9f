"""Drawn shapes: the same for a seed, of the system unless chosen, and held out only from committed kernels."""

import dataclasses

import pytest

from harness.analysis.currency import out_of_date
from harness.analysis.held_out import why_not_held_out
from harness.cases.drawn_shapes import COLUMNS, ELEMENTS, draw_shapes, parse_draw
from harness.errors import UsageError
from harness.records.cases_asked import cases_on
from harness.records.run_records import DrawnRecord
from harness.records.settings import Settings
from harness.run.draw import as_drawn, drawn_record, with_seed
from harness.run.invocation import Invocation
from harness.run.resolve import check
from reports.parts.conditions import drawn_shapes
from tests.results_factory import helpers, results, row

INVOCATION = Invocation(settings=Settings(draw="40"))


def test_shapes_are_the_same_for_a_seed_and_within_their_bounds():
    shapes = draw_shapes(40, 7)
    assert shapes == draw_shapes(40, 7) != draw_shapes(40, 8)
    assert shapes[:2] == ((3970, 1717), (52543, 448))  # on every version of Python
    assert len(set(shapes)) == 40
    for rows, cols in shapes:
        assert COLUMNS[0] <= cols <= COLUMNS[1] + 8
        assert 0.9 * ELEMENTS[0] <= rows * cols <= 1.1 * ELEMENTS[1]
    assert any(cols % 8 for _, cols in shapes)


def test_the_system_draws_a_seed_unless_one_was_chosen():
    one, other = with_seed(INVOCATION), with_seed(INVOCATION)
    assert one.settings.draw != other.settings.draw
    assert one.seed_of_system
    assert len(cases_on("cuda", one.settings)) == 80
    chosen = with_seed(INVOCATION.changed(draw="40@7"))
    assert chosen.settings.draw == "40@7"
    assert drawn_record(chosen, []).chosen
    assert not drawn_record(one, []).chosen
    assert with_seed(Invocation()) == Invocation()


@pytest.mark.parametrize("draw", ["0", "-3", "many", "40@", "40@x", "1001", ""])
def test_what_is_no_draw_is_refused(draw):
    with pytest.raises(UsageError, match=r"--draw .*: must be 1 to 1000 shapes"):
        parse_draw(draw)


def test_a_draw_is_instead_of_shapes():
    with pytest.raises(UsageError, match="give one of them"):
        check(INVOCATION.changed(shapes="8x8"))


def drawn_run(started_at="2025-06-01T12:00:00+00:00", revision="0123456789ab", **fields):
    known = {"seed": 7, "chosen": False, "impl": "triton-inhouse", "version": 1, "commit": "abc"}
    drawn = DrawnRecord(**(known | {"committed_at": "2025-06-01T11:00:00+02:00"} | fields))
    measured = results(row("torch-eager", 100), *helpers(100, 50), draw="40@7")
    run = measured.run.model_copy(update={"drawn": drawn, "revision": revision, "started_at": started_at})
    return dataclasses.replace(measured, run=run)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"chosen": True}, "seed_chosen"),
        ({"version": None}, "kernel_not_measured"),
        ({"commit": None}, "kernel_not_committed"),
        ({"revision": "0123456789ab-dirty"}, "kernel_not_committed"),
        ({"started_at": "2025-06-01T08:59:59+00:00"}, "drawn_before_version"),
    ],
)
def test_only_shapes_of_a_committed_kernel_are_held_out(changes, code):
    run = drawn_run(**changes).run
    why_not = why_not_held_out(run)
    assert (why_not and why_not.code) == code
    assert ("not held out: " in drawn_shapes(run)) == (code is not None)


def test_a_run_that_goes_on_with_other_code_is_not_held_out():
    run = drawn_run().run
    assert why_not_held_out(run, ["0123456789ab"]) is None
    assert why_not_held_out(run, ["0123456789ab", "ba9876543210"]).code == "resumed_at_another_revision"


def test_a_plan_takes_what_was_drawn_and_lacks_nothing_of_it(tmp_path):
    measured, plan = drawn_run(), Settings(draw="40")
    path = tmp_path / "results.jsonl"
    lines = [measured.run, *measured.rows, measured.end]
    path.write_text("".join(line.model_dump_json(exclude_none=True) + "\n" for line in lines), "utf-8")
    assert as_drawn(plan, tmp_path / "absent", path).draw == "40@7"
    assert as_drawn(Settings(draw="39"), path).draw == "39"
    assert not [reason for reason in out_of_date(measured, plan) if reason.startswith("draw")]
    assert [reason for reason in out_of_date(measured, Settings(draw="39")) if reason.startswith("draw")]
    resumed = with_seed(INVOCATION.changed(resume=True, out=tmp_path))
    assert (resumed.settings.draw, resumed.seed_of_system) == ("40@7", False)
