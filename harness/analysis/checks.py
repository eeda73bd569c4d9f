"""The checks of one implementation on one case over all processes: the worst error, and all repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, TypeVar, get_args

from harness.grouping import grouped
from harness.records.reasons import Reason
from harness.records.schema import ErrorClass, TensorCheck, Verification

NEW_PROCESS = "new process"
_Value = TypeVar("_Value")
ERROR_CLASSES: tuple[ErrorClass, ...] = get_args(ErrorClass)  # the fewest extra roundings first
OtherBits = Literal["in one process", "in a new process"]  # where the bits of a result that passed differ
GRAVEST_BITS: tuple[OtherBits, ...] = get_args(OtherBits)  # the gravest first


@dataclass(frozen=True)
class Runs:
    """Runs that were compared bit by bit, how many differed and in which gradients; `skipped` has reasons for none."""

    runs: int = 0
    differing: int = 0
    differing_in: tuple[str, ...] = ()
    skipped: tuple[Reason, ...] = ()

    def __add__(self, other: Runs) -> Runs:
        return Runs(
            runs=self.runs + other.runs,
            differing=self.differing + other.differing,
            differing_in=tuple(dict.fromkeys((*self.differing_in, *other.differing_in))),
            skipped=(*self.skipped, *other.skipped),
        )


@dataclass(frozen=True)
class Checked:
    """The worst error of each gradient, and how many repetitions had other bits than the first, in which gradients.

    `compared` is the number of comparisons. `conditions` are the runs under special conditions, which count among the
    repetitions except for runs in a new process. `invariance` has all findings.
    """

    errors: Mapping[str, TensorCheck]
    repeats: int
    differing: int
    differing_in: tuple[str, ...]
    compared: int = 0
    cells: int = 1
    conditions: Mapping[str, Runs] = field(default_factory=dict[str, Runs])
    invariance: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict[str, tuple[Reason, ...]])

    @property
    def error_class(self) -> ErrorClass | None:
        """The worst class of any gradient; None where no error is known."""
        return worst_class(error.error_class for error in self.errors.values())

    @property
    def moved(self) -> bool:
        """Whether the bits of another process differed."""
        return bool(self.conditions.get(NEW_PROCESS, Runs()).differing)


def join_verifications(verifications: Sequence[Verification]) -> Checked:
    """The verifications of all processes as one; without any, the result checked nothing.

    A single run in a process is no repetition: only its fingerprint is compared.
    """
    repeated = [verification for verification in verifications if verification.repeats > 1]
    return Checked(
        errors=_worst_of_each(verification.tensors for verification in verifications),
        repeats=sum(verification.repeats for verification in repeated),
        differing=sum(verification.differing for verification in repeated),
        differing_in=tuple(dict.fromkeys(name for verification in repeated for name in verification.differing_in)),
        compared=sum(verification.repeats - 1 for verification in repeated),
        cells=max((verification.cells for verification in verifications), default=1),
        conditions=_conditions(verifications),
        invariance=_findings(
            {change: (finding,) for change, finding in verification.invariance.items()}
            for verification in verifications
        ),
    )


def join_files(checks: Sequence[Checked]) -> Checked:
    """Several files' checks as one: the worst errors, and the repetitions of the file with the most.

    A file in which bits differed comes before files in which none did. Without files, the result checked nothing.
    """
    if not checks:
        return join_verifications(())
    return replace(
        max(checks, key=lambda checked: (bool(checked.differing), checked.moved, checked.repeats)),
        errors=_worst_of_each(checked.errors for checked in checks),
        cells=max(checked.cells for checked in checks),
        conditions=add_up(checked.conditions for checked in checks),
        invariance=_findings(checked.invariance for checked in checks),
    )


def worst_class(classes: Iterable[ErrorClass | None]) -> ErrorClass | None:
    """The class with the most extra roundings; None where none is known."""
    present = set(classes)
    return next((error_class for error_class in reversed(ERROR_CLASSES) if error_class in present), None)


def add_up(checks: Iterable[Mapping[str, Runs]]) -> dict[str, Runs]:
    """The sum of the runs of each condition."""
    return {name: sum(runs, Runs()) for name, runs in _by_name(checks).items()}


def _worst_of_each(all_errors: Iterable[Mapping[Any, TensorCheck]]) -> dict[str, TensorCheck]:
    return {name: worst_error(errors) for name, errors in _by_name(all_errors).items()}


def _findings(all_findings: Iterable[Mapping[str, Iterable[Reason]]]) -> dict[str, tuple[Reason, ...]]:
    return {change: tuple(dict.fromkeys(chain(*findings))) for change, findings in _by_name(all_findings).items()}


def _by_name(mappings: Iterable[Mapping[Any, _Value]]) -> dict[str, list[_Value]]:
    """The values of each name in any of these."""
    return grouped(chain.from_iterable(mapping.items() for mapping in mappings))


def worst_error(checks: Sequence[TensorCheck]) -> TensorCheck:
    """The check with the largest rho, the worst class of all checks, and the worst of the figures that only some have.

    A check of fewer draws has wider bounds: its rho may be the largest, and its class not the worst.
    """
    worst = max(checks, key=lambda check: math.inf if math.isnan(check.rho) else check.rho)
    rows = [check.worst_row for check in checks if check.worst_row is not None]
    in_fp32 = [check.fp32_relative_rms for check in checks if check.fp32_relative_rms is not None]
    changes = {"worst_row": max(rows, default=None), "fp32_relative_rms": max(in_fp32, default=None)}
    return worst.model_copy(update={**changes, "error_class": worst_class(check.error_class for check in checks)})


def _conditions(verifications: Sequence[Verification]) -> dict[str, Runs]:
    """The runs of each condition, and as a condition of their own the processes after the first."""
    conditions: dict[str, Runs] = {}
    for check in (check for verification in verifications for check in verification.conditions):
        skipped = (check.skipped,) if check.skipped else ()
        runs = Runs(check.runs, check.differing, tuple(check.differing_in), skipped)
        conditions[check.condition] = conditions.get(check.condition, Runs()) + runs
    prints = [verification.fingerprint for verification in verifications if verification.fingerprint is not None]
    if len(prints) > 1:
        conditions[NEW_PROCESS] = Runs(len(prints) - 1, sum(fingerprint != prints[0] for fingerprint in prints))
    return conditions
