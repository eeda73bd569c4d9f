import pytest

import reports
from harness.analysis.joining import join
from reports.parts.studies import other_engines
from tests.results_factory import results, row


def test_figures_are_medians_and_quotients_over_ours():
    rows = [
        row("quack", 50.0, process=process, other_engines_us={"do_bench": us})
        for process, us in enumerate((55.0, 80.0, 60.4))
    ]
    whole = join(rows)["quack", "impl"]
    assert other_engines(whole) == {"do_bench": 60.4}
    assert whole.median_us == pytest.approx(54.9, rel=0.01)
    assert "| 54.9 | 60.4 | 1.10 |" in " ".join(reports.render(results(*rows), "engines").split())


def test_missing_figure_is_a_gap_in_the_engine_table():
    """A failed implementation is left out."""
    rows = [row("quack", 50.0, other_engines_us={"do_bench": 60.0}), row("liger", 50.0, other_engines_us={"x": 40.0})]
    rows += [row("apex", status="wrong", other_engines_us={"x": 1.0})]
    text = " ".join(reports.render(results(*rows), "engines").split())
    assert "| - | - |" in text
    assert "apex" not in text
