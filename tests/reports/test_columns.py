import pytest

from harness.analysis.comparison import compare
from harness.records.schema import TensorCheck
from reports import columns
from reports.columns import Row, rows_of, table_of
from reports.formats.export import to_csv
from tests.results_factory import helpers, in_processes, mixed, results, row, verification


def test_a_column_that_no_row_fills_is_left_out():
    case = compare(results(row("torch-eager", 10.0))).cases[0]
    comparison = compare(results(row("torch-eager", 10.0)))
    assert table_of(["impl", "verdict", "median_us"], [Row(comparison, case, case.entries[0])]).heads == ("impl", "us")


def test_a_case_without_the_implementation_has_no_row():
    comparison = compare(mixed())
    table = table_of(["case", "status", "ranked_us", "speedup"], [Row(comparison, comparison.cases[0], None)])
    assert [cell.text for cell in table.rows[0]] == [comparison.cases[0].case.key, "no row", "no row"]


@pytest.mark.parametrize(
    ("status", "bits", "mark"),
    [
        ("ok", "aa", ""),
        ("ok", "bb", " (other bits in a new process)"),
        ("nondeterministic", "aa", " (nondeterministic)"),
    ],
)
def test_a_time_bears_the_mark_of_bits_that_differ(status, bits, mark):
    first = row("quack", 50.0, status=status, verification=verification(fingerprint="aa"))
    rows = in_processes(row("torch-eager", 100.0), first, *helpers(100.0, 46.0), scales=(1.0, 1.0))
    there = next(place for place, each in enumerate(rows) if (each.impl, each.process) == ("quack", 1))
    rows[there] = rows[there].model_copy(update={"verification": verification(fingerprint=bits)})
    comparison = compare(results(*rows, processes=2))
    (case,) = comparison.cases
    ((cell,),) = table_of(["ranked_us"], [Row(comparison, case, case.entry("quack"))]).rows
    assert cell.text == f"54.9{mark}"


def test_a_gradient_that_is_in_the_results_alone_has_its_columns():
    checked = verification()
    more = checked.tensors | {"dres": TensorCheck(rho=1.25, relative_rms=0.001, error_class="exact")}
    comparison = compare(results(row("quack", verification=checked.model_copy(update={"tensors": more}), timed=None)))
    rows = rows_of(comparison)
    assert table_of(columns.PULL_REQUEST_UNTIMED, rows).heads == (
        "case",
        "status",
        "rho dx",
        "rho dweight",
        "rho dres",
        "deterministic",
    )
    assert "rho_dres" in to_csv(comparison).splitlines()[0].split(",")
