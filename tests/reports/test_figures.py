import math

import pytest

from harness.stats import Ratio
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


def test_ratio_and_interval():
    assert figures.ratio_and_interval(around(1.234, 0.002)) == "1.234 [1.232, 1.236]"
    assert figures.ratio_and_interval(Ratio(1.23, 0.0, math.inf, 3)) == "1.2 [3 blocks: no interval]"
    assert figures.ratio_and_interval(Ratio(math.nan, math.nan, math.nan, 0)) == "-"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (512, "512 B"), (1536, "1.5 KiB"), (12 << 20, "12.0 MiB"), (3 << 30, "3.0 GiB"), (None, "-")],
)
def test_size(value, expected):
    assert figures.size(value) == expected


def test_rho_carries_its_class():
    assert figures.rho(1.004) == "1.00"
    assert figures.rho(1.41, "one extra rounding") == "1.41 (+1)"
    assert figures.rho(math.inf, "wrong") == "inf (wrong)"


def test_percent_band_and_count():
    assert figures.percent(81.66) == "81.7"
    assert figures.spread(0.0042) == "0.42"
    assert figures.spread(math.nan) == "-"
    assert figures.band(0.0042) == "±0.42 %"
    assert figures.band(math.inf) == "unknown (too few blocks)"
    assert (figures.count(1, "case"), figures.count(3, "case")) == ("1 case", "3 cases")


def test_one_line():
    assert figures.one_line("a\n  b") == "a b"
    assert figures.one_line("abcdef", 4) == "abc…"
