from harness.analysis.comparison import compare
from harness.analysis.outcomes import join_outcomes
from reports.plots.precision import precision
from reports.plots.style import BAD, line_style
from tests.results_factory import TALL, careful, outcomes, results, row, verification


def panels(*runs):
    figure = precision(outcomes(runs), runs[0].run)["rms"]
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def lines(axes, impl):
    names = [label.get_text().split(" (")[0] for label in axes.figure.axes[0].get_yticklabels()]
    return [line for line in axes.get_lines() if list(line.get_ydata())[:1] == [names.index(impl)]]


def test_dx_and_dweight_go_from_the_fewest_rows_to_the_most():
    drawn = panels(careful())
    assert {"dx", "dw"} <= set(drawn)
    for axes in drawn.values():
        through, first, last = lines(axes, "torch-eager")
        assert len(through.get_xdata()) >= len(TALL)
        assert {line.get_color() for line in (through, first, last)} == {line_style("torch-eager").colour}
        assert (first.get_markerfacecolor(), first.get_xdata()[0]) == ("white", through.get_xdata()[0])
        assert last.get_xdata()[0] == through.get_xdata()[-1]


def test_what_is_wrong_is_crossed_and_counted_and_does_not_hide_the_rest():
    wrong = verification(rho=1e9, error_class="wrong")
    rows = [row("quack", verification=verification()), row("liger", status="wrong", verification=wrong)]
    run = results(*rows, row("fla", status="nondeterministic", verification=verification(differing_in=["dx"])))
    axes = panels(run)["dx"]
    crosses = [line for line in lines(axes, "liger") if line.get_marker() == "x"]
    assert [line.get_color() for line in crosses] == [BAD]
    assert not [line for line in lines(axes, "quack") if line.get_marker() == "x"]
    names = {label.get_text(): label.get_color() for label in axes.figure.axes[0].get_yticklabels()}
    assert names == {"fla (other bits in 1)": "black", "quack": "black", "liger (wrong in 1)": BAD}
    assert axes.get_xlim()[1] < 1e5


def test_nothing_is_drawn_where_nothing_was_checked():
    comparison = compare(results(row("quack", 20.0, verification=None)))
    assert precision(join_outcomes([comparison]), comparison.run) == {}
