import math

import pytest

from harness.analysis.statistics import Ratio
from reports import figures


def around(value, relative, blocks=40):
    return Ratio(value, value * (1 - relative), value * (1 + relative), blocks)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5.1299, "5.13"),
        (46.05, "46.0"),
        (179.3, "179.3"),
        (1559.4, "1559"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_microseconds(value, expected):
    assert figures.microseconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (around(1.2341, 0.002), "1.234"),
        (around(1.2341, 0.03), "1.23"),
        (around(1.2341, 0.3), "1.2"),
        (around(12.341, 0.2), "12"),
        (Ratio(2.0, 2.0, 2.0, 40), "2.000"),
        (Ratio(1.23, 0.0, math.inf, 3), "1.2"),
        (None, "-"),
    ],
)
def test_ratio_has_the_digits_that_its_interval_supports(value, expected):
    assert figures.ratio(value) == expected


def test_rho_carries_its_class():
    assert figures.rho(1.004) == "1.00"
    assert figures.rho(1.41, "one extra rounding") == "1.41 (+1)"
    assert figures.rho(math.inf, "wrong") == "inf (wrong)"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.6, "1.6"), (0.3, "0.30"), (3.14159, "3.1"), (2.0, "2"), (0, "0"), (12.7, "13"), (0.0123, "0.012"), (None, "-")],
)
def test_an_error_has_two_digits(value, expected):
    assert figures.two_digits(value) == expected
