import pytest

import reports
from harness.analysis.comparison import compare
from harness.cases import NormCase
from harness.errors import UsageError
from reports.formats.dtypes import columns_of, common
from tests.results_factory import helpers, results, row

SMALL, LARGE = (NormCase("rms", 1024, 1024), NormCase("rms", 8192, 4096))


def render(runs):
    return reports.render(runs, "dtypes")


def as_dtype(case, **dtypes):
    return NormCase(case.norm, case.rows, case.cols, **dtypes)


def run(cases, **times_us):
    """A run in which each implementation takes as long in every case, where the add takes 40 us."""
    rows = []
    for case in cases:
        rows += [row(impl, us, case) for impl, us in times_us.items()]
        rows += helpers(100.0, 40.0, case=case)
    return results(*rows)


BF16 = run([SMALL, LARGE], quack=50.0, liger=80.0)
FP16 = run([as_dtype(case, dtype="fp16", weight_dtype="fp16") for case in (LARGE, SMALL)], quack=64.0)


def cells(text, impl):
    (line,) = (line for line in text.splitlines() if f" {impl} " in line)
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


def test_each_implementation_has_a_row_and_each_dtype_a_column():
    text = render([BF16, FP16])
    assert "| norm   | impl   |   bf16 |   fp16 |" in text
    assert "2 shapes: 1024 x 1024, 8192 x 4096." in text
    assert [float(cell) for cell in cells(text, "quack")] == pytest.approx([80.0, 62.5], abs=0.2)
    assert cells(text, "liger")[1] == "-"
    assert text.index(" quack ") < text.index(" liger ")  # the nearest to the add first


def test_only_shapes_that_all_columns_have_count():
    fewer = run([as_dtype(LARGE, dtype="fp16", weight_dtype="fp16")], quack=64.0)
    columns = columns_of([compare(BF16), compare(fewer)])
    assert common(columns) == [(8192, 4096)]
    assert "1 shape: 8192 x 4096." in render([BF16, fewer])


def test_number_of_shapes_is_told_where_an_implementation_ranks_in_fewer():
    rows = [row("quack", 50.0, SMALL), *helpers(100.0, 40.0, case=SMALL)]
    rows += [row("quack", status="wrong", case=LARGE), *helpers(100.0, 40.0, case=LARGE)]
    assert cells(render([results(*rows), FP16]), "quack")[0].endswith(" (1)")


def test_one_dtype_is_no_table_of_dtypes():
    with pytest.raises(UsageError, match="needs two dtypes of one norm with a shape in common"):
        reports.render([BF16, run([SMALL], quack=40.0)], "dtypes")
