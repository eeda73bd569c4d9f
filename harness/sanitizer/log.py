"""What a log of compute-sanitizer says: how many errors there were, and the first of them in one line.

A log is lines behind a bar of equals signs. A headline stands one space behind the bar, what belongs to it further in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.reasons import Reason

LONGEST = 400

_LINE = re.compile(r"^=========( *)(.*)$", re.MULTILINE)
_TOTAL = re.compile(r"^ERROR SUMMARY: (\d+) errors?$")  # a second such line says how many of them were not printed
_RACES = re.compile(r"^RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)$")
_NO_NEWS = re.compile(r"COMPUTE-SANITIZER|[A-Z]+ SUMMARY:|Target application|Error: process didn't terminate")
_WARNING = re.compile(r"(CUDA API )?warn(ing)?: *", re.IGNORECASE)
_HAZARD = re.compile(r"error: *(?=Race reported|Potential \w+ hazard)", re.IGNORECASE)
# Of the tool itself: it could not do its work, and yet may add these to the number of errors.
_TROUBLE = re.compile(r"(?=Internal Sanitizer Error)|error: *", re.IGNORECASE)
_ANYTHING = re.compile("")


@dataclass(frozen=True)
class Finding:
    """`errors` is None where the tool could not decide; `detail` is the first error, or why it could not."""

    errors: int | None
    detail: Reason | None = None


def read_log(text: str) -> Finding | None:
    """Read a log, whole or cut off; None where it ends before its summary."""
    headlines = _headlines(text)
    errors: list[str] = []
    warnings: list[str] = []
    troubles: list[str] = []
    for headline in headlines:
        if _NO_NEWS.match(headline):
            continue
        for kind, pattern in ((warnings, _WARNING), (errors, _HAZARD), (troubles, _TROUBLE), (errors, _ANYTHING)):
            if match := pattern.match(headline):
                kind.append(headline[match.end() :])
                break
    total, warned = _summary(headlines)
    warning = _warning(warnings, warned)
    if errors and total != 0:
        return Finding(total or len(errors), _first("first_error", errors, [warning] if warning else []))
    if troubles:
        return Finding(None, _first("trouble_of_tool", troubles))
    return None if total is None else Finding(total, warning)


def _headlines(text: str) -> list[str]:
    """Each headline with the line below it, which says where, or with all lines of a race, which has several places.

    Where the tool speaks of its own trouble, what is below a headline may stand as far out as the headline.
    """
    headlines: list[str] = []
    fresh = False  # nothing has been seen below the last headline
    for indent, line in _LINE.findall(text):
        own = fresh and _TROUBLE.match(headlines[-1]) and not _HAZARD.match(headlines[-1])
        if len(indent) == 1 and line and (_NO_NEWS.match(line) or not own):
            headlines.append(line.strip())
            fresh = True
            continue
        if line and headlines and (fresh or (line.startswith("and ") and "Race reported" in headlines[-1])):
            headlines[-1] += f" {line.strip()}"
        fresh = False
    return headlines


def _summary(headlines: list[str]) -> tuple[int | None, int]:
    """The errors and the warnings that the tool counted; None errors where it was cut off before."""
    for headline in headlines:
        if match := _RACES.match(headline):
            return int(match[1]), int(match[2])
        if match := _TOTAL.match(headline):
            return int(match[1]), 0
    return None, 0


def _warning(warnings: list[str], counted: int) -> Reason | None:
    """How many warnings there were, and the first of them where it was printed."""
    number = counted or len(warnings)
    if not number:
        return None
    printed = [_first("first_warning", warnings)] if warnings else []
    return Reason("one_warning" if number == 1 else "warnings", {"number": number}, printed)


def _first(code: str, texts: list[str], parts: Sequence[Reason] = ()) -> Reason:
    text = texts[0]
    return Reason(code, {"text": text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."}, parts)
