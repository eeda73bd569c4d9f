"""The checks of a self-test as they are made: each with its value, its limit and how it was measured."""

from __future__ import annotations

import math
from typing import Literal

from harness.records.reasons import ALL_VOID, Reason
from harness.records.schema import Check

Unit = Literal["us", "%", "GB/s", ""]


class CheckList:
    """Collects the checks of a self-test; one that cannot be made has `passed` None."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def at_most(self, name: str, value: float, limit: float, unit: Unit, detail: Reason) -> None:
        """Add a check that passes where the value is within the limit."""
        self.add(name, value <= limit, value, limit, unit, detail)

    def add(
        self,
        name: str,
        passed: bool,
        value: float,
        limit: float,
        unit: Unit,
        detail: Reason,
        reading: float | None = None,
    ) -> None:
        """Add a check; one without a value had no samples, and fails."""
        finite = math.isfinite(value)
        self.checks.append(
            Check(
                name=name,
                passed=bool(passed) and finite,
                value=rounded(value) if finite else None,
                limit=rounded(limit),
                reading=None if reading is None else rounded(reading, 5),
                unit=unit,
                detail=detail if finite else Reason(ALL_VOID),
            )
        )

    def skip(self, name: str, why: Reason) -> None:
        """Add a check that cannot be made on this device."""
        self.checks.append(Check(name=name, passed=None, detail=why))

    def fail(self, name: str, why: Reason) -> None:
        """Add a check that failed before it had a value."""
        self.checks.append(Check(name=name, passed=False, detail=why))


def rounded(value: float, digits: int = 3) -> float:
    """The value as it is stored."""
    return round(float(value), digits)
