from harness.analysis.comparison import compare
from harness.cases import NormCase
from reports.plots.sample_spread import largest, spread
from tests.results_factory import CASE, LAYER, helpers, mixed, results, row


def drawn(file):
    comparison = compare(file)
    (case,) = largest(comparison)
    return spread(case, comparison)


def test_the_largest_case_of_each_norm_that_has_times():
    small, strided = NormCase("rms", 64, 64), NormCase("rms", 1 << 20, 64, inputs="strided-x")
    file = mixed()
    rows = [row("quack", 60.0, small), *file.rows, row("quack", 60.0, strided)]
    rows.append(row("quack", case=NormCase("layer", 1 << 20, 64, bias=True), untimed="too large"))
    assert [case.case for case in largest(compare(results(*rows)))] == [CASE, LAYER]


def names(axes):
    return [label.get_text().split(", ")[0] for label in axes.get_yticklabels()]


def test_who_ranks_has_a_box_and_the_add_has_one():
    file = results(
        row("torch-eager", 180.0),
        row("quack", 60.0, status="nondeterministic"),
        row("liger", 10.0, status="wrong", reason="off"),
        *helpers(180.0, 46.0),
    )
    (axes,) = drawn(file).axes
    assert names(axes) == ["same-traffic add", "quack (nondeterministic)", "torch-eager"]
    assert len(axes.patches) == 3
    assert axes.yaxis_inverted()
