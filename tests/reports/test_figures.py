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


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.6, "1.6"), (0.3, "0.30"), (3.14159, "3.1"), (2.0, "2"), (0, "0"), (12.7, "13"), (0.0123, "0.012"), (None, "-")],
)
def test_an_error_has_two_digits(value, expected):
    assert figures.two_digits(value) == expected


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [(3.14, "%", "3.1 %"), (1.28, "us", "1.28 us"), (4276.3, "GB/s", "4276 GB/s"), (1.0, "", "1"), (None, "us", "-")],
)
def test_a_measure_has_its_unit(value, unit, expected):
    assert figures.measure(value, unit) == expected


def test_differences_changes_and_shares():
    assert (figures.signed(0.418), figures.signed(-1.0, 0), figures.signed(None)) == ("+0.42", "-1", "-")
    assert (figures.change(1.032), figures.change(0.9), figures.change(None)) == ("+3.2", "-10.0", "-")
    assert (figures.share(19, 20), figures.share(0, 0)) == ("19 of 20 (95.0 %)", "0 of 0")


def test_spans_elements_and_seconds():
    assert figures.between(1755, 1980.4, "MHz") == "1755 to 1980 MHz"
    assert figures.between(1980, 1980.4, "MHz") == "1980 MHz"
    assert [figures.elements(1 << n) for n in (9, 19, 25, 31)] == ["512", "512 Ki", "32 Mi", "2 Gi"]
    assert [figures.seconds(value) for value in (1.54, 291.1, None)] == ["1.5 s", "291 s", "-"]


def test_one_line():
    assert figures.one_line("a\n  b") == "a b"
    assert figures.one_line("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.664e-3, "1.66e-3"), (2.1e-7, "2.10e-7"), (1.0, "1.00e0"), (0.0, "0"), (None, "-"), (math.inf, "-")],
)
def test_scientific(value, expected):
    assert figures.scientific(value) == expected
