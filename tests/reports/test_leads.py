"""The in-house kernel's lead in every condition, of the files that have them."""

import pytest

import reports
from harness.errors import UsageError
from tests.results_factory import CASE, helpers, in_contexts, results, row, timing


def measured(flush, quack_us):
    rows = [
        row("torch-eager", 180.0, timed=timing(180.0, flush=flush)),
        row("triton-inhouse", 50.0, timed=timing(50.0, flush=flush)),
        row("quack", quack_us, timed=timing(quack_us, flush=flush)),
    ]
    again = [each.model_copy(update={"timing": timing(180.0, flush=flush)}) for each in helpers(180.0, 46.0)]
    return [*rows, *again]


def slower(impl):
    return 2.0 if impl == "triton-inhouse" else 1.0


def test_each_condition_is_a_column_and_a_loss_is_not_hidden():
    clean = results(*in_contexts(measured("clean", 60.0), graph=slower), context="cold,graph")
    text = reports.render([clean, results(*measured("dirty", 50.5), flush="dirty")], "leads")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert cells == [
        ["case", "clean", "graph", "dirty"],
        [CASE.key, "1.20", "0.60", "1.01 ="],
        ["geometric mean of 1", "1.20", "0.60", "1.01"],
    ]


def test_files_without_a_lead_are_refused():
    with pytest.raises(UsageError, match="give such files"):
        reports.render([results(row("torch-eager", 180.0))], "leads")
