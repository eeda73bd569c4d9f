import math

import pytest

from harness.cases import NormCase
from reports.markdown_writer import write_section as write
from reports.parts.precision import section, slopes
from tests.results_factory import CASE, LAYER, outcomes, results, row, verification


def errors(rms_of, rows=(512, 2048, 8192, 32768), status="ok", cols=1024):
    """A file of one implementation whose dweight is off by this much for a number of rows."""
    cases = [NormCase("rms", count, cols) for count in rows]
    found = [
        row("quack", case=case, status=status, verification=verification(case, relative_rms=rms_of(case.rows)))
        for case in cases
    ]
    return outcomes([results(*found, timed=False)])


def test_a_planted_power_is_found():
    (flat,) = slopes(errors(lambda rows: 1.66e-3))
    assert (flat.power, flat.error) == (0.0, 0.0)
    (grows,) = slopes(errors(lambda rows: 1e-4 * math.sqrt(rows)))
    assert grows.power == pytest.approx(0.5, abs=1e-9)
    assert grows.error == pytest.approx(0.0, abs=1e-6)
    assert grows.points[0] == (512, pytest.approx(1e-4 * math.sqrt(512)))


def test_scatter_is_in_the_standard_error():
    signs = dict(zip((512, 2048, 8192, 32768), (1.1, 0.9, 0.9, 1.1), strict=True))
    (found,) = slopes(errors(lambda rows: 1.66e-3 * signs[rows]))
    assert found.power == pytest.approx(0.0, abs=1e-9)
    # Residuals of ±log(1.1 / 0.9) / 2 about their mean, two degrees of freedom, and steps of log(4).
    residual, spread = math.log(1.1 / 0.9) / 2, math.log(4) ** 2 * 5
    assert found.error == pytest.approx(math.sqrt(4 * residual**2 / 2 / spread), rel=1e-6)


@pytest.mark.parametrize("rows", [(512, 2048), (0, 1, 512, 2048)])
def test_two_numbers_of_rows_make_no_line(rows):
    assert slopes(errors(lambda rows: 1e-3, rows=rows)) == []


def test_what_has_no_logarithm_is_no_point():
    found = errors(lambda rows: math.inf if rows == 512 else 0.0 if rows == 2048 else 1e-3)
    assert slopes(found) == []


def test_other_columns_dtypes_and_inputs_are_other_lines():
    mixed = [*errors(lambda rows: 1e-3, rows=(512, 2048)), *errors(lambda rows: 1e-3, rows=(8192,), cols=2048)]
    assert slopes(mixed) == []
    correlated = NormCase("rms", 8192, 1024, inputs="correlated")
    planted = row("quack", case=correlated, verification=verification(correlated))
    assert slopes([*errors(lambda rows: 1e-3, rows=(512, 2048)), *outcomes([results(planted)])]) == []
    fp32 = NormCase("rms", 8192, 1024, weight_dtype="fp32")
    planted = row("quack", case=fp32, verification=verification(fp32))
    assert slopes([*errors(lambda rows: 1e-3, rows=(512, 2048)), *outcomes([results(planted)])]) == []


def test_both_precisions_stand_in_full_and_other_shapes_in_short():
    full = verification(LAYER, fp32=2.1e-7)
    short = verification(CASE, 1.41, "one extra rounding")
    found = outcomes([results(row("quack", case=LAYER, verification=full), row("quack", verification=short))])
    text = "\n".join(write(section(found)))
    assert "### layer-4096x2048-bf16" in text
    assert "rms dbias, bf16 / fp32" in text
    assert text.count("1.66e-3 / 2.10e-7") == 3
    assert "1.41 (+1)" in text.split("### Shape by shape")[1]
    assert "rms-8192x4096-bf16\n" not in text


def test_the_largest_of_the_gradients_stands_for_a_shape():
    check = verification(CASE)
    worse = check.tensors["dweight"].model_copy(update={"rho": 1.7, "error_class": "two"})
    check = check.model_copy(update={"tensors": {**check.tensors, "dweight": worse}})
    assert "1.70 (+2)" in "\n".join(write(section(outcomes([results(row("quack", verification=check))]))))


def test_without_a_check_there_is_no_section():
    assert section(outcomes([results(row("quack", status="crashed", reason="boom"))])) is None
