"""A training step: each implementation in every context, and what the norm backwards of a model cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.checks import GRAVEST_BITS, OtherBits
from harness.analysis.comparison import Comparison
from harness.analysis.joining import TIMES_T0
from harness.analysis.statistics import geomean
from harness.analysis.summary import Geomean
from harness.cases import Norm, NormCase
from harness.cases.models import MODELS, TOKENS, Model
from harness.cases.unfused import WITH_TORCH
from harness.records.contexts import COLD, HOST
from harness.records.schema import Budget


@dataclass(frozen=True)
class StepCell:
    """One implementation in one context: its speedups over the baseline, and its time over that alone.

    Of `host`, which has nothing to be set beside, the time is in us and not over that alone. `waits` is the number of
    cases in which it usually waits for other kernels. These are in neither: they say how long the other kernel was.
    """

    speedup: Geomean | None
    time: float | None
    longest: float | None
    waits: int


@dataclass(frozen=True)
class StepRow:
    """One implementation of one norm, with a cell a context."""

    impl: str
    norm: Norm
    cells: tuple[StepCell, ...]


def every_context(comparison: Comparison) -> tuple[Comparison, ...]:
    """The comparisons of all contexts in which anything was timed, cold first."""
    return comparison, *(context for context in comparison.contexts if context.timed)


def training_step(comparison: Comparison) -> list[StepRow]:
    """A row for each implementation that was timed, norm by norm, best in the cold context first."""
    norms: dict[Norm, None] = dict.fromkeys(case.case.norm for case in comparison.cases)
    rows: list[StepRow] = []
    for norm in norms:
        means = [
            mean for context in every_context(comparison) for mean in context.summary.geomeans if mean.norm == norm
        ]
        for impl in dict.fromkeys(mean.impl for mean in means):
            cells = tuple(_cell(comparison, context, impl, norm) for context in every_context(comparison))
            rows.append(StepRow(impl, norm, cells))
    return rows


def _cell(comparison: Comparison, context: Comparison, impl: str, norm: Norm) -> StepCell:
    alone = {case.case: case.entry(impl) for case in comparison.cases if case.case.norm == norm}
    here = [(case.case, case.entry(impl)) for case in context.cases if case.case.norm == norm]
    timed = [(alone.get(case), entry) for case, entry in here if entry and entry.standing in ("ranked", "unranked")]
    entries = [(before, entry) for before, entry in timed if not entry.usually_waits]
    if context.context == HOST:
        times = [entry.median_us for _, entry in entries if entry.median_us]
    elif context.context == COLD:
        times = []
    else:
        times = [
            entry.median_us / before.median_us
            for before, entry in entries
            if entry.median_us and before and before.median_us
        ]
    means = context.summary.geomeans
    return StepCell(
        speedup=next((mean for mean in means if (mean.impl, mean.norm) == (impl, norm)), None),
        time=geomean(times) if times else None,
        longest=max(times, default=None),
        waits=len(timed) - len(entries),
    )


@dataclass(frozen=True)
class Spender:
    """One implementation, and ms a step by model; None where a norm of the model has no time that may be compared.

    `error_ms` is how far off these may be, by t0 for each call that is too short to be ranked; 0 without any. Where it
    lacks a variant, `NAME + torch` counts: `with_torch` names the models in which it did. `other_bits` says
    where the bits of its results differ, within one process first.
    """

    impl: str
    ms: Mapping[str, float | None]
    error_ms: Mapping[str, float]
    with_torch: frozenset[str] = frozenset()
    other_bits: OtherBits | None = None


@dataclass(frozen=True)
class Spending:
    """What a step of so many tokens spends, for the models of which every norm was measured; the least first.

    `add` is the same-traffic adds.
    """

    tokens: int
    models: tuple[str, ...]
    add: Spender
    spenders: tuple[Spender, ...]


def spending(cases: Sequence[CaseComparison], budget: Budget | None) -> list[Spending]:
    """The spending for each number of tokens at which all cases of a model are here, in one set of dtypes.

    `budget` is the engine's own error, of which t0 is the most that a short time may be off by.
    """
    by_case = {_as_listed(case.case): case for case in cases}
    if len(by_case) < len(cases):
        return []
    spendings: list[Spending] = []
    for tokens in TOKENS:
        models = [model for model in MODELS if all(call.case(tokens) in by_case for call in model.calls)]
        if models:
            spendings.append(_spending(tokens, models, by_case, budget))
    return spendings


def _as_listed(case: NormCase) -> NormCase:
    """A case with the dtypes, eps and device of the cases in harness/cases/models.py."""
    return replace(case, dtype="bf16", weight_dtype="bf16", eps=1e-5, device="cuda")


def _spending(
    tokens: int, models: Sequence[Model], by_case: Mapping[NormCase, CaseComparison], budget: Budget | None
) -> Spending:
    t0_us = budget.t0_us if budget else 0.0
    called = {model.name: [(call.times, by_case[call.case(tokens)]) for call in model.calls] for model in models}
    names = {
        entry.impl.removesuffix(WITH_TORCH) for calls in called.values() for _, case in calls for entry in case.entries
    }
    spenders = [spender for name in sorted(names) if any((spender := _spender(name, called, t0_us)).ms.values())]
    return Spending(
        tokens=tokens,
        models=tuple(called),
        add=_add(called, budget),
        spenders=tuple(sorted(spenders, key=_place)),
    )


def _spender(impl: str, called: Mapping[str, Sequence[tuple[int, CaseComparison]]], t0_us: float) -> Spender:
    ms: dict[str, float | None] = {}
    error_ms: dict[str, float] = {}
    used: list[Entry] = []
    with_torch: set[str] = set()
    for model, calls in called.items():
        entries = [(times, _timed(case, impl) or _timed(case, impl + WITH_TORCH)) for times, case in calls]
        ms[model] = _sum([(times, entry.median_us if entry else None) for times, entry in entries])
        error_ms[model] = sum(times * t0_us for times, entry in entries if entry and entry.only_too_short) / 1e3
        if ms[model] is not None:
            used += [entry for _, entry in entries if entry]
            with_torch |= {model for _, entry in entries if entry and entry.impl != impl}
    return Spender(
        impl,
        ms,
        error_ms,
        with_torch=frozenset(with_torch),
        other_bits=next((where for where in GRAVEST_BITS if any(entry.other_bits == where for entry in used)), None),
    )


def _add(called: Mapping[str, Sequence[tuple[int, CaseComparison]]], budget: Budget | None) -> Spender:
    t0_us = budget.t0_us if budget else 0.0
    short = {
        model: sum(times for times, case in calls if case.add_us and case.add_us < TIMES_T0 * t0_us)
        for model, calls in called.items()
    }
    return Spender(
        "same-traffic add",
        {model: _sum([(times, case.add_us) for times, case in calls]) for model, calls in called.items()},
        {model: times * t0_us / 1e3 for model, times in short.items()},
    )


def _timed(case: CaseComparison, impl: str) -> Entry | None:
    """An entry that ranks, or does not for the length of its time alone: in a sum that is a known error."""
    entry = case.entry(impl)
    return entry if entry and (entry.standing == "ranked" or entry.only_too_short) else None


def _sum(times_us: Sequence[tuple[int, float | None]]) -> float | None:
    """In ms, or None where a time is unknown."""
    known = [times * us for times, us in times_us if us is not None]
    return sum(known) / 1e3 if len(known) == len(times_us) else None


def _place(spender: Spender) -> tuple[int, float, str]:
    """Those with the most models first, then those that spend the least."""
    known = [ms for ms in spender.ms.values() if ms is not None]
    return -len(known), sum(known), spender.impl
