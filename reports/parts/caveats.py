"""What a reader must know before any figure: an unfinished run, interference, failed checks, clocks that moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.analysis import evidence
from harness.analysis.comparison import Comparison
from harness.analysis.device_state import BUSY, DeviceState
from harness.analysis.joining import TIMES_T0
from harness.records.contexts import COLD
from harness.records.reason_texts import sentence
from harness.records.schema import Check, SelfTestRecord
from reports import figures

WHEN = {"before": "before the cases ", "after": "after the cases ", "alone": ""}


def caveats(comparison: Comparison) -> list[str]:
    """Warnings that precede all figures: an unfinished run, a baseline without times, a quick run, and so on."""
    lines = [sentence(comparison.unfinished)] if comparison.unfinished else []
    lines += [f"{context_named(comparison)}{line}" for line in _not_ranked(comparison)]
    if comparison.timed and comparison.run.settings.quick:
        lines.append("A quick run: few blocks, wide intervals.")
    return [*lines, *failed_checks(comparison.selftests), *moved(comparison.state)]


def context_named(comparison: Comparison) -> str:
    """The context with a colon, to stand before a sentence; empty in a run that has the usual one alone."""
    return f"{comparison.context}: " if comparison.contexts or comparison.context != COLD else ""


def _not_ranked(comparison: Comparison) -> list[str]:
    """A sentence for each reason why cases of a context have no speedups, no fastest, or no ranking."""
    lines: list[str] = []
    judged = [case for case in comparison.cases if not case.interference]
    ranked = sum(bool(case.entry(comparison.baseline) in case.ranked) for case in judged)
    if comparison.timed and ranked < len(judged):
        lines.append(
            f"The baseline {comparison.baseline} ranks in {ranked} of {len(judged)} cases; other cases have no speedup."
        )
    entries = (case.entry(comparison.baseline) for case in comparison.cases if case.interference)
    if failed := [entry for entry in entries if entry and entry.standing == "failed"]:
        statuses = Counter(entry.status for entry in failed)
        how = ", ".join(f"{status} in {figures.count(number, 'case')}" for status, number in statuses.items())
        noted = dict.fromkeys(sentence(note) for entry in failed if entry.status == "wrong" for note in entry.notes)
        why = f" It notes: {'; '.join(noted)}." if noted else ""
        lines.append(f"The baseline {comparison.baseline} is {how}: nothing is compared with it there.{why}")
    too_fast = sum(any(entry.too_short for entry in case.entries) for case in comparison.cases)
    if too_fast:
        lines.append(
            f"In {figures.count(too_fast, 'case')} something is below {TIMES_T0} x t0, too fast to be ranked; "
            "nothing is called fastest there."
        )
    if set_aside := [case for case in comparison.cases if case.set_aside]:
        numbers = sorted({process for case in set_aside for process in case.set_aside})
        lines.append(
            f"In {figures.count(len(set_aside), 'case')} the times of process {', '.join(map(str, numbers))} are "
            f"set aside: {TIMES_T0} x t0 of such a process is more than the fastest takes."
        )
    return [*lines, *([] if nothing_ranked(comparison) else interference(comparison))]  # else the headline says it


def nothing_ranked(comparison: Comparison) -> bool:
    """Whether interference rules out a verdict in every case that was timed."""
    timed = [case for case in comparison.cases if case.of("ranked", "unranked")]
    return bool(timed) and all(case.interference for case in timed)


def interference(comparison: Comparison) -> list[str]:
    """Why nothing is called faster or slower in some cases, a sentence a reason."""
    reasons = Counter(case.interference for case in comparison.cases if case.interference and case.of("unranked"))
    return [
        f"Nothing is ranked in {figures.count(number, 'case')}: {sentence(reason)}."
        for reason, number in reasons.items()
    ]


def failed_checks(selftests: Sequence[SelfTestRecord]) -> list[str]:
    """A sentence each for the self-tests before and after the cases, with the worst value of each failed check.

    A check that failed in single processes but passes over all of them together is no failure.
    """
    return [
        f"The self-test {WHEN[when]}failed: {'; '.join(_failed(checks, processes) for checks in failed.values())}."
        for when, processes, failed in evidence.failures_by_time(selftests)
        if failed
    ]


def moved(state: DeviceState) -> list[str]:
    """The readings of the device that moved during the run, one sentence for each."""
    lines: list[str] = []
    for name, clock in (("multiprocessor", state.sm_clock_mhz), ("memory", state.memory_clock_mhz)):
        if clock and clock.moved:
            where = f"in {clock.moved_cases} of {figures.count(state.cases, 'case')}" if clock.moved_cases else ""
            reach = figures.between(clock.smallest, clock.largest, "MHz")
            lines.append(f"The {name} clock moved {where or 'between cases'}: {reach} over the run.")
    for reason, (cases, blocks) in state.throttled.items():
        lines.append(
            f"The device held its clocks back ({reason}) in {cases} of {figures.count(state.cases, 'case')}, "
            f"{figures.count(blocks, 'block')}."
        )
    if state.host_load > BUSY:
        lines.append(
            f"Other processes used {figures.percent(100 * state.host_load, 0)} % of the CPUs: times are worth little."
        )
    if state.shared_cases:
        lines.append(
            f"Other processes were on the device in {state.shared_cases} of {figures.count(state.cases, 'case')}, "
            f"at most {state.other_processes} at a time."
        )
    return lines


def _failed(checks: Sequence[Check], runs: int) -> str:
    """One check, by the worst of its failures."""
    worst = max(checks, key=lambda check: abs(check.value) if check.value is not None else 0.0)
    where = f" in {len(checks)} of {runs} processes" if runs > 1 else ""
    value, limit = (figures.measure(number, worst.unit) for number in (worst.value, worst.limit))
    if worst.value is None:
        return f"{worst.name}{where}"
    if worst.limit is None:
        return f"{worst.name} {value}{where}"
    if worst.value > worst.limit or not worst.detail:
        return f"{worst.name} {value} (limit {limit}){where}"
    return f"{worst.name}{where}: {sentence(worst.detail)} ({value}, limit {limit})"  # not by its figure
