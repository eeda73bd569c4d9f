import pytest

from harness.analysis.comparison import compare
from harness.records.schema import TensorCheck
from reports import columns
from reports.column import Column, Row
from reports.columns import rows_of, table_of
from reports.formats.console import render
from reports.formats.export import to_csv
from reports.table import Cell
from tests.results_factory import helpers, in_processes, mixed, results, row, thorough, verification

CHOICES = ("CONSOLE", "OVERVIEW", "MARKDOWN", "MARKDOWN_UNTIMED", "PULL_REQUEST", "PULL_REQUEST_UNTIMED", "HTML", "CSV")


@pytest.mark.parametrize("choice", CHOICES)
def test_every_format_chooses_columns_that_exist(choice):
    rows = rows_of(compare(thorough()))
    chosen = columns.columns(getattr(columns, choice), rows)
    assert len({column.name for column in chosen}) == len(chosen)
    assert all(isinstance(column.cell(row), Cell) for column in chosen for row in rows)


def test_a_new_column_is_an_entry_and_its_name(monkeypatch):
    blocks = Column("twice", "2 x", lambda row: 2, lambda row: Cell("two", 2))
    monkeypatch.setitem(columns.COLUMNS, "twice", blocks)
    monkeypatch.setattr(columns, "CONSOLE", (*columns.CONSOLE, "twice"))
    text = render(compare(mixed()))
    assert "2 x" in text
    assert "two" in text


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
    (cells,) = table_of(["ranked_us", "fastest_us"], [Row(comparison, case, case.entry("quack"))]).rows
    assert [cell.text for cell in cells] == [f"54.9{mark}"] * 2


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
