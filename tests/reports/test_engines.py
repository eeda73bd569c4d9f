import pytest

from harness.analysis.joining import join
from reports.studies.engines import other_engines, render
from tests.results_factory import mixed, results, row, thorough


def test_golden(golden):
    golden("thorough.engines.md", render(thorough()))


def test_figures_are_medians_and_quotients_over_ours():
    rows = [
        row("quack", 50.0, process=process, other_engines_us={"do_bench": us})
        for process, us in enumerate((55.0, 80.0, 60.4))
    ]
    whole = join(rows)["quack", "impl"]
    assert other_engines(whole) == {"do_bench": 60.4}
    assert whole.median_us == pytest.approx(54.9, rel=0.01)
    assert "| 54.9 | 60.4 | 1.10 |" in " ".join(render(results(*rows)).split())


def test_order_that_an_engine_turns_is_counted_and_listed():
    """Of three, the fastest here is passed by one; the second and the third keep their order."""
    here_us = {"torch-eager": 60.0, "quack": 50.0, "liger": 40.0}
    there_us = {"torch-eager": 70.0, "quack": 45.0, "liger": 52.0}
    rows = [row(impl, us, other_engines_us={"do_bench": there_us[impl]}) for impl, us in here_us.items()]
    rows.append(row("torch-eager", 60.0, role="again"))
    text = render(results(*rows))
    assert "It turns 1 of the 3 pairs that are clear here." in text
    listed = " ".join(text[text.index("## do_bench") :].split())
    assert "| liger | quack | 1.250 [1.250, 1.250] | 0.87 |" in listed


def test_missing_figure_is_a_gap_in_the_engine_table():
    """A failed implementation is left out."""
    rows = [row("quack", 50.0, other_engines_us={"do_bench": 60.0}), row("liger", 50.0, other_engines_us={"x": 40.0})]
    rows += [row("apex", status="wrong", other_engines_us={"x": 1.0})]
    text = " ".join(render(results(*rows)).split())
    assert "| - | - |" in text
    assert "apex" not in text


def test_without_other_engines_it_says_how_to_get_them():
    assert "--cross-check" in render(mixed())
