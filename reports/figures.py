"""How numbers are written, once for every format; what is not a number is written `-`."""

from __future__ import annotations

import math

from harness.analysis.statistics import Ratio
from harness.errors import printable
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.records.schema import ErrorClass, Unit

NOTHING = "-"
BINARY = (("G", 2**30), ("M", 2**20), ("K", 2**10))
EXTRA_ROUNDINGS: dict[ErrorClass, str] = {
    "exact": "",
    "one extra rounding": " (+1)",
    "two": " (+2)",
    "three": " (+3)",
    "flushes subnormals": " (flushes)",
    "wrong": " (wrong)",
}
LEGEND = "(+1), (+2), (+3): one, two, three extra roundings"
RHO = (
    "rho: the rms error against float64 over what cannot be avoided. For bf16 and fp16 that is one final rounding, so "
    "that 1.00 is as good as the dtype allows. For fp32 it is what careful fp32 sums may be off by: below 1 is usual"
)


def microseconds(value: float | None) -> str:
    """A time, to about three digits: the engine's own error is seldom below 0.3 %."""
    return _by_size(value, 10, 1000)


def milliseconds(value: float | None) -> str:
    """A time of many calls in ms, to about three digits."""
    return _by_size(value, 10, 100)


def gbps(value: float | None) -> str:
    """A bandwidth in GB/s, whole; below 10 with one decimal."""
    return _by_size(value, 10)


def seconds(value: float | None) -> str:
    """A duration of seconds or minutes; below 10 s with one decimal."""
    text = _by_size(value, 10)
    return text if text == NOTHING else f"{text} s"


def _by_size(value: float | None, *limits: float) -> str:
    """A figure with a decimal for each limit that it is below."""
    return percent(value, sum((value or 0.0) < limit for limit in limits))


def signed_percent(relative: float) -> str:
    """A relative difference in per cent, with its sign."""
    return f"{100 * relative:+.1f} %"


def plain_ratio(value: float | None) -> str:
    """A ratio that comes without an interval."""
    return percent(value, 2)


def ratio(value: Ratio | None) -> str:
    """A ratio with as many digits as its interval supports: 1.234 within 0.2 %, 1.23 within 3 %."""
    if value is None or not math.isfinite(value.value):
        return NOTHING
    return f"{value.value:.{_decimals(value)}f}"


def ratio_and_interval(value: Ratio | None) -> str:
    """A ratio and its 95 % interval, `1.234 [1.231, 1.237]`."""
    if value is None or not math.isfinite(value.value):
        return NOTHING
    if not math.isfinite(value.high):
        return f"{ratio(value)} [{value.blocks} {'block' if value.blocks == 1 else 'blocks'}: no interval]"
    decimals = _decimals(value)
    return f"{value.value:.{decimals}f} [{value.low:.{decimals}f}, {value.high:.{decimals}f}]"


def with_interval(value: float, low: float, high: float) -> str:
    """A speedup of a gate and its 90 % interval, with three decimals."""
    return f"{value:.3f} " + (f"[{low:.3f}, {high:.3f}]" if math.isfinite(high) else "[no interval]")


def percent(value: float | None, decimals: int = 1) -> str:
    """A figure that is in percent already; its unit stands in the column's head."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.{decimals}f}"


def spread(value: float | None) -> str:
    """A relative spread as percent, two decimals: 0.0042 is `0.42`."""
    return NOTHING if value is None else percent(100 * value, 2)


def band(value: float | None) -> str:
    """An A/A band (a log ratio) with its unit: 0.0042 is `±0.42 %`."""
    if value is None:
        return "unknown"
    return f"±{100 * math.expm1(value):.2f} %" if math.isfinite(value) else "unknown (too few blocks)"


def size(value: int | None) -> str:
    """A number of bytes, in the largest unit of B, KiB, MiB, GiB that it fills."""
    if not value:
        return NOTHING if value is None else "0"
    unit, scale = next((pair for pair in BINARY if abs(value) >= pair[1]), ("", 1))
    return f"{value / scale:.1f} {unit}iB" if unit else f"{value} B"


MANY = 1e5  # beyond, digits before the point say no more than a power of ten


def rho(value: float | None, error_class: ErrorClass = "exact") -> str:
    """An error in units of the unavoidable, marked with its class unless that is `exact`."""
    if value is None:
        return NOTHING
    number = f"{value:.2f}" if value < MANY or not math.isfinite(value) else f"{value:.1e}"
    return number + EXTRA_ROUNDINGS[error_class]


def two_digits(value: float | None) -> str:
    """An error, to two digits: more of it is never known."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    return f"{value:.{max(0, 1 - math.floor(math.log10(abs(value))))}f}".removesuffix(".0")


def scientific(value: float | None) -> str:
    """A relative error, to three digits: `1.66e-3`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    digits, power = f"{value:.2e}".split("e")
    return f"{digits}e{int(power)}" if value else "0"


def measure(value: float | None, unit: Unit) -> str:
    """What a check found or must keep, with its unit: `3.1 %`, `0.42 us`, `4276 GB/s`."""
    text = gbps(value) if unit == "GB/s" else microseconds(value) if unit == "us" else two_digits(value)
    return f"{text} {unit}".rstrip() if text != NOTHING else text


def signed(value: float | None) -> str:
    """A difference, with its sign: `+0.42`."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:+.2f}"


def share(part: int, whole: int) -> str:
    """A part of a number of things: `19 of 20 (95.0 %)`."""
    return f"{part} of {whole}" + (f" ({100 * part / whole:.1f} %)" if whole else "")


def between(smallest: float, largest: float, unit: str) -> str:
    """Whole figures from the smallest to the largest, with their unit: `1755 to 1980 MHz`."""
    low, high = f"{smallest:.0f}", f"{largest:.0f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def count(number: int, noun: str) -> str:
    """A count and its noun, `1 case` or `3 cases`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def one_line(reason: Reason | str | None, width: int = 160) -> str:
    """A reason in words, or a text, on one line of at most `width` characters."""
    text = sentence(reason) if isinstance(reason, Reason) else reason or ""
    joined = " ".join(printable(text).split())
    return joined if len(joined) <= width else joined[: width - 1].rstrip() + "…"


def _decimals(value: Ratio) -> int:
    half = (value.high - value.low) / 2
    if not math.isfinite(half):
        return 1
    return 3 if half <= 0 else min(3, max(0, -math.floor(math.log10(half))))
