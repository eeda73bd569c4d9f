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


def test_what_has_no_logarithm_is_no_point():
    found = errors(lambda rows: math.inf if rows == 512 else 0.0 if rows == 2048 else 1e-3)
    assert slopes(found) == []


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
