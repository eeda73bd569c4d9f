"""The time of a wrong row is shown with a mark, and compared with nothing."""

import reports
from harness.analysis.comparison import compare
from tests.results_factory import helpers, results, row

FOUND = results(
    row("torch-eager", 180.0),
    row("triton-inhouse", 60.0),
    row("quack", 30.0, status="wrong", reason="dweight is off"),
    row("liger", status="wrong", reason="writes over x"),
    *helpers(180.0, 46.0),
)


def test_wrong_time_is_shown_and_not_ranked():
    (case,) = compare(FOUND).cases
    quack = case.entry("quack")
    assert (quack.standing, quack.median_us, quack.speedup, case.fastest.impl) == (
        "failed",
        None,
        None,
        "triton-inhouse",
    )
    assert f"{quack.wrong_us:.1f} wrong" in reports.render(FOUND, "grid")
    assert f"| {quack.wrong_us:.1f} | dweight is off" in " ".join(reports.render(FOUND, "markdown").split())
    assert f"{quack.wrong_us:.1f} (wrong)" in reports.render(FOUND, "html")
