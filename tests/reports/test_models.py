"""What a step of a model spends, formed from fixed times."""

import pytest

from harness.analysis.comparison import compare
from harness.analysis.step import spending
from harness.cases.models import MODELS
from harness.cases.unfused import WITH_TORCH
from reports.formats import console, grid, markdown
from reports.labels import spender_label
from reports.parts import training_step
from tests.results_factory import helpers, in_processes, results, row, selftest, verification

LLAMA = MODELS[0]
DRIFTED = 1.0986  # what the factory's drift makes of a median
RESIDUAL, PLAIN = (call.case(8192) for call in LLAMA.calls)  # 64 times and once


def measured(case, changes=()):
    """Rows of a case: eager, one that lacks the variant, and the add; `changes` replaces some, None leaves them out."""
    times = {"torch-eager": 100.0, "quack": 60.0} | ({} if case == PLAIN else {"quack" + WITH_TORCH: 90.0})
    times |= dict(changes)
    if case != PLAIN and "quack" not in dict(changes):
        del times["quack"]
    rows = [row(impl, us, case=case) for impl, us in times.items() if us is not None]
    if case != PLAIN:
        rows.append(row("quack", case=case, status="unsupported", reason="does not handle residual"))
    return [*rows, *helpers(100.0, 50.0, case=case)]


def of(*cases, **changes):
    return compare(results(*(each for case in cases for each in measured(case, changes.items()))))


def test_times_are_multiplied_by_calls():
    (spent,) = spending(of(RESIDUAL, PLAIN).cases, None)
    assert (spent.tokens, spent.models) == (8192, ("Llama 3 8B",))
    by_name = {spender_label(spender): spender.ms["Llama 3 8B"] for spender in spent.spenders}
    assert list(by_name) == ["quack", "torch-eager"]
    assert [spender.with_torch for spender in spent.spenders] == [{"Llama 3 8B"}, set()]
    assert by_name["torch-eager"] == pytest.approx(DRIFTED * 65 * 0.100, rel=0.01)
    assert by_name["quack"] == pytest.approx(DRIFTED * (64 * 0.090 + 0.060), rel=0.01)
    assert spent.add.ms["Llama 3 8B"] == pytest.approx(DRIFTED * 65 * 0.050, rel=0.01)
    assert spent.add.error_ms == {"Llama 3 8B": 0.0}


def test_a_norm_without_a_time_leaves_the_model_open():
    rows = [each for case in (RESIDUAL, PLAIN) for each in measured(case)]
    rows = [each for each in rows if (each.impl, each.case) != ("quack", PLAIN)]
    wrong = row("quack", case=PLAIN, status="wrong", reason="dx is off")
    (spent,) = spending(compare(results(*rows, wrong)).cases, None)
    assert [spender.impl for spender in spent.spenders] == ["torch-eager"]


def test_a_norm_that_is_too_short_to_rank_counts_with_the_error_that_it_may_have():
    """t0 is 2 us, so that what takes less than 20 us is not ranked."""
    rows = [each for case in (RESIDUAL, PLAIN) for each in measured(case, {"triton-inhouse": 9.0}.items())]
    compared = compare(results(*rows, selftests=[selftest(t0_us=2.0)]))
    (spent,) = spending(compared.cases, compared.budget)
    first = spent.spenders[0]
    assert first.impl == "triton-inhouse"
    assert first.ms["Llama 3 8B"] == pytest.approx(DRIFTED * 65 * 0.009, rel=0.01)
    assert first.error_ms["Llama 3 8B"] == pytest.approx(65 * 0.002)
    assert spent.spenders[1].error_ms == {"Llama 3 8B": 0.0}
    ((_, table),) = training_step.tables_by_tokens(compared).items()
    assert [cell.text for cell in table.rows[0]] == ["triton-inhouse", "0.64 ± 0.13"]


def test_the_table_stands_in_the_report_and_on_the_console():
    comparison = of(RESIDUAL, PLAIN)
    text = markdown.render(comparison)
    assert f"## {training_step.MODELS}" in grid.render(comparison)
    assert f"## {training_step.MODELS}" in text
    assert any(line.startswith("| quack ") and line.endswith(" + torch |") for line in text.splitlines())
    assert "8192 tokens:" in text
    assert f"{training_step.MODELS}, ms, 8192 tokens" in " ".join(console.render(comparison).split())


def test_a_norm_with_other_bits_marks_the_model():
    """From run to run before in a new process alone, where norms of a model differ in both ways."""

    def label(*moved, unsteady=()):
        rows = in_processes(*(each for case in (RESIDUAL, PLAIN) for each in measured(case)), scales=(1.0, 1.0))
        for place, each in enumerate(rows):
            if each.impl == "torch-eager" and each.role == "impl":
                bits = str(each.process) if each.case in moved else "aa"
                check = verification(each.case, fingerprint=bits)
                status = "nondeterministic" if each.case in unsteady else "ok"
                rows[place] = each.model_copy(update={"verification": check, "status": status})
        (spent,) = spending(compare(results(*rows, processes=2)).cases, None)
        return next(spender_label(spender) for spender in spent.spenders if spender.impl == "torch-eager")

    assert label() == "torch-eager"
    assert label(PLAIN) == "torch-eager (other bits in a new process)"
    assert label(PLAIN, unsteady=[RESIDUAL]) == "torch-eager (nondeterministic)"
