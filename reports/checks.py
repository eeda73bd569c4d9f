"""What was checked of one implementation on one case, over all processes: the worst error, and all repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records import TensorCheck, Verification


@dataclass(frozen=True)
class Checked:
    """The worst error of each gradient, and how many of all repetitions had other bits than the first, and where."""

    errors: dict[str, TensorCheck]
    repeats: int
    differing: int
    differing_in: tuple[str, ...]

    @property
    def determinism(self) -> str:
        """In words, with the number of repetitions behind them."""
        if self.repeats == 0:
            return "not checked"
        if self.differing == 0:
            return f"bitwise n={self.repeats}"
        where = f", in {', '.join(self.differing_in)}" if self.differing_in else ""
        return f"{self.differing} of {self.repeats} differ{where}"


def join_verifications(found: Sequence[Verification]) -> Checked:
    """The verifications of all processes as one; of none, one that checked nothing."""
    checks: dict[str, list[TensorCheck]] = {}
    for verification in found:
        for name, check in verification.tensors.items():
            checks.setdefault(name, []).append(check)
    return Checked(
        errors={name: _worst(of) for name, of in checks.items()},
        repeats=sum(verification.repeats for verification in found),
        differing=sum(verification.differing for verification in found),
        differing_in=tuple(dict.fromkeys(name for verification in found for name in verification.differing_in)),
    )


def _worst(checks: Sequence[TensorCheck]) -> TensorCheck:
    return max(checks, key=lambda check: math.inf if math.isnan(check.rho) else check.rho)
