"""A training step: each implementation in every context, and what the norm backwards of a model cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.checks import GRAVEST_BITS, OtherBits
from harness.analysis.comparison import Comparison
from harness.analysis.joining import TIMES_T0
from harness.analysis.statistics import geomean
from harness.analysis.summary import Geomean
from harness.cases import Norm
from harness.cases.models import MODELS, TOKENS
from harness.cases.unfused import WITH_TORCH
from harness.records.contexts import COLD, HOST
from harness.records.schema import Budget

Calls = Sequence[tuple[int, CaseComparison]]  # of a model: how often a step calls the norm, and its case


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
    contexts = every_context(comparison)
    impls: dict[Norm, dict[str, None]] = {case.case.norm: {} for case in comparison.cases}
    for mean in (mean for context in contexts for mean in context.summary.geomeans):
        impls.setdefault(mean.norm, {})[mean.impl] = None
    return [
        StepRow(impl, norm, tuple(_cell(comparison, context, impl, norm) for context in contexts))
        for norm, of_norm in impls.items()
        for impl in of_norm
    ]


def _cell(comparison: Comparison, context: Comparison, impl: str, norm: Norm) -> StepCell:
    here = {case.case: case.entry(impl) for case in context.cases if case.case.norm == norm}
    timed = {case: entry for case, entry in here.items() if entry and entry.standing in ("ranked", "unranked")}
    times_us = {case: entry.median_us for case, entry in timed.items() if entry.median_us and not entry.usually_waits}
    if context.context == COLD:
        times: list[float] = []
    elif context.context == HOST:
        times = list(times_us.values())
    else:
        alone = {case.case: case.entry(impl) for case in comparison.cases if case.case in times_us}
        alone_us = {case: entry.median_us for case, entry in alone.items() if entry and entry.median_us}
        times = [us / alone_us[case] for case, us in times_us.items() if case in alone_us]
    return StepCell(
        speedup=next((mean for mean in context.summary.geomeans if (mean.impl, mean.norm) == (impl, norm)), None),
        time=geomean(times) if times else None,
        longest=max(times, default=None),
        waits=sum(entry.usually_waits for entry in timed.values()),
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
    by_case = {  # by a case as harness/cases/models.py lists it
        replace(case.case, dtype="bf16", weight_dtype="bf16", eps=1e-5, device="cuda"): case for case in cases
    }
    t0_us = budget.t0_us if budget else 0.0
    spendings: list[Spending] = []
    for tokens in TOKENS if len(by_case) == len(cases) else ():
        called: dict[str, Calls] = {
            model.name: [(call.times, by_case[call.case(tokens)]) for call in model.calls]
            for model in MODELS
            if all(call.case(tokens) in by_case for call in model.calls)
        }
        if called:
            every = [case for calls in called.values() for _, case in calls]
            names = sorted({entry.impl.removesuffix(WITH_TORCH) for case in every for entry in case.entries})
            spenders = [spender for name in names if any((spender := _spender(name, called, t0_us)).ms.values())]
            spendings.append(Spending(tokens, tuple(called), _add(called, t0_us), tuple(sorted(spenders, key=_place))))
    return spendings


def _spender(impl: str, called: Mapping[str, Calls], t0_us: float) -> Spender:
    def time(case: CaseComparison) -> tuple[float | None, bool]:
        entry = _timed(case, impl)
        return (entry.median_us, entry.only_too_short) if entry else (None, False)

    used = {model: [_timed(case, impl) for _, case in calls] for model, calls in called.items()}
    whole = {model: [entry for entry in entries if entry] for model, entries in used.items() if None not in entries}
    bits = {entry.other_bits for entries in whole.values() for entry in entries}
    with_torch = {model for model, entries in whole.items() if any(entry.impl != impl for entry in entries)}
    worst: OtherBits | None = next((where for where in GRAVEST_BITS if where in bits), None)
    return Spender(impl, *_spent(called, time, t0_us), frozenset(with_torch), worst)


def _add(called: Mapping[str, Calls], t0_us: float) -> Spender:
    def time(case: CaseComparison) -> tuple[float | None, bool]:
        return case.add_us, case.add_us is not None and case.add_us < TIMES_T0 * t0_us

    return Spender("same-traffic add", *_spent(called, time, t0_us))


def _spent(
    called: Mapping[str, Calls], time: Callable[[CaseComparison], tuple[float | None, bool]], t0_us: float
) -> tuple[dict[str, float | None], dict[str, float]]:
    """The ms of each model, and how far off they may be; `time` is that of a case in us, and whether it is short."""
    ms: dict[str, float | None] = {}
    error_ms: dict[str, float] = {}
    for model, calls in called.items():
        timed = [(times, *time(case)) for times, case in calls]
        known_us = [times * us for times, us, _ in timed if us is not None]
        ms[model] = sum(known_us) / 1e3 if len(known_us) == len(timed) else None
        error_ms[model] = sum(times for times, _, short in timed if short) * t0_us / 1e3
    return ms, error_ms


def _timed(case: CaseComparison, impl: str) -> Entry | None:
    """An entry that ranks, or does not for the length of its time alone: in a sum that is a known error."""
    entries = (case.entry(impl), case.entry(impl + WITH_TORCH))
    return next((entry for entry in entries if entry and (entry.standing == "ranked" or entry.only_too_short)), None)


def _place(spender: Spender) -> tuple[int, float, str]:
    """Those with the most models first, then those that spend the least."""
    known = [ms for ms in spender.ms.values() if ms is not None]
    return -len(known), sum(known), spender.impl
