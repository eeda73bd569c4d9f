"""Sentences that several formats share, such as the headline, the engine's own error, and what was not run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from harness.results import evidence
from harness.results.contexts import COLD
from harness.results.joining import TIMES_T0
from harness.results.run_records import RunRecord
from harness.results.schema import Budget, Check, SelfTestRecord, Status
from harness.results.statistics import PROCESS_BAND
from reports import figures
from reports.data.comparison import CaseComparison, Comparison
from reports.data.device_state import BUSY, DeviceState
from reports.data.outcomes import FAILED, Outcome, of_comparison, tally, tried

WHEN = {"before": "before the cases ", "after": "after the cases ", "alone": ""}
_HASH = re.compile(r" \(sha256:\w+\)")
_HOW: dict[Status, str] = {
    "ok": "right on",
    "nondeterministic": "nondeterministic on",
    "unsupported": "refuses",
    "wrong": "wrong on",
    "crashed": "crashed on",
    "timeout": "timed out on",
    "oom": "out of memory on",
}


def headline(comparison: Comparison, impl: str | None = None) -> str:
    """In how many cases `impl`, or the implementation that wins most, is fastest, and its speedup over the baseline."""
    if not comparison.timed:
        return verified(of_comparison(comparison))
    text, subject = _fastest(comparison, impl)
    several = comparison.contexts or comparison.context != COLD
    means = geomeans(comparison, subject) if subject else ""
    return f"{f'{comparison.context}: ' if several else ''}{text} {means}".rstrip()


def answer(comparison: Comparison) -> str:
    """The headline, and what a reader must know before any figure."""
    return " ".join([headline(comparison), *caveats(comparison)])


def fastest(comparison: Comparison, impl: str | None = None) -> str:
    """In how many cases `impl`, or the implementation that wins most, is fastest."""
    return _fastest(comparison, impl)[0]


def _fastest(comparison: Comparison, impl: str | None) -> tuple[str, str | None]:
    """The sentence, and the implementation whose geometric means follow it."""
    summary = comparison.summary
    wins = next((wins for wins in summary.wins if impl is None or wins.impl == impl), None)
    subject = wins.label if wins else impl
    if nothing_ranked(comparison):
        return " ".join(interference(comparison)), None
    if subject is None:
        return f"No implementation could be ranked in {figures.count(summary.cases, 'case')}.", None
    if not competed(comparison, subject) and not wins:
        return f"{subject} was not timed here.", None
    if wins and all(case.aa_band is None for case in comparison.cases):
        return "No A/A pair was measured, so nobody is called fastest.", None
    if wins and {entry.impl for case in comparison.cases for entry in case.ranked} == {wins.impl}:
        ranked = figures.count(sum(bool(case.ranked) for case in comparison.cases), "case")
        return f"{subject} alone was ranked, in {ranked}: nothing stands beside it.", wins.impl
    alone, tied = (len(wins.alone), len(wins.tied)) if wins else (0, 0)
    text = f"{subject} is fastest in {alone} of {figures.count(summary.cases, 'case')}"
    text += f" and tied for fastest in {tied} more." if tied else "."
    return text, wins.impl if wins else subject


def competed(comparison: Comparison, impl: str) -> bool:
    """Whether an implementation was timed in any case, or failed before it could be."""
    entries = [case.entry(impl) for case in comparison.cases]
    return any(entry and entry.standing not in ("verified", "absent") for entry in entries)


def verified(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of each implementation that ran, in one sentence, the failed ones last."""
    impls = tried(outcomes)
    if not impls:
        return "No implementation was tried."
    cases = len({outcome.case for outcome in outcomes})
    ordered = sorted(impls, key=lambda impl: any(outcome.status in FAILED for outcome in impls[impl]))
    texts = "; ".join(f"{impl} {_outcomes_in_words(impls[impl])}" for impl in ordered)
    return f"{figures.count(len(impls), 'implementation')} on {figures.count(cases, 'case')}: {texts}."


def geomeans(comparison: Comparison, impl: str) -> str:
    """The geometric mean speedups of one implementation over the baseline, with the cases each covers."""
    means = [mean for mean in comparison.summary.geomeans if mean.impl == impl]
    if impl == comparison.baseline or not means:
        return ""
    parts = [f"{mean.norm} {figures.plain_ratio(mean.value)} ({mean.cases} of {mean.total} cases)" for mean in means]
    return f"Geometric mean speedup over {comparison.baseline}: {', '.join(parts)}."


def failures(comparison: Comparison) -> list[str]:
    """One sentence for each way in which an implementation did not pass."""
    return [
        f"{failure.impl}: {failure.status} in {figures.count(len(failure.cases), 'case')} "
        f"({'in the first: ' if failure.varies else ''}{figures.one_line(failure.reason)}): {', '.join(failure.cases)}"
        for failure in comparison.summary.failures
    ]


def not_run(comparison: Comparison) -> str:
    """A line about implementations that did not run: reasons with their numbers of cases, then the missing ones."""
    absent = [entry for case in comparison.cases for entry in case.of("absent")]
    refused = Counter(
        f"{entry.impl} ({entry.status}: {figures.one_line(entry.reason, 80)}"
        for entry in absent
        if entry.status != "missing"
    )
    parts = [f"{why}; {figures.count(number, 'case')})" for why, number in refused.items()]
    lines = [f"Not run: {', '.join(parts)}."] if parts else []
    return " ".join([*lines, *missing(entry.impl for entry in absent if entry.status == "missing")])


def missing(impls: Iterable[str]) -> list[str]:
    """A sentence that names the implementations that are not installed; empty where all are."""
    names = list(dict.fromkeys(impls))
    return [f"Missing: {', '.join(names)} (`normbwd list impls` says how to install each)."] if names else []


def caveats(comparison: Comparison) -> list[str]:
    """Warnings that precede all figures: an unfinished run, a baseline without times, a quick run, and so on."""
    lines = [comparison.unfinished] if comparison.unfinished else []
    judged = [case for case in comparison.cases if not case.interference]
    ranked = sum(bool(case.entry(comparison.baseline) in case.ranked) for case in judged)
    if comparison.timed and ranked < len(judged):
        lines.append(
            f"The baseline {comparison.baseline} ranks in {ranked} of {len(judged)} cases; the others have no speedup."
        )
    too_fast = sum(any(entry.too_short for entry in case.entries) for case in comparison.cases)
    if too_fast:
        lines.append(
            f"In {figures.count(too_fast, 'case')} something is below {TIMES_T0} x t0, too fast to be ranked; "
            "nothing is called fastest there."
        )
    lines += [] if nothing_ranked(comparison) else interference(comparison)  # which the headline says
    if comparison.timed and comparison.run.settings.quick:
        lines.append("A quick run: few blocks, wide intervals.")
    return [*lines, *mixed(comparison), *failed_checks(comparison.selftests), *moved(comparison.state)]


def fleet(comparison: Comparison) -> str:
    """How many GPUs of how many hosts measured; empty where it was not a fleet."""
    if not comparison.gpus:
        return ""
    hosts = Counter(use.gpu.host for use in comparison.gpus)
    text = f"{figures.count(len(comparison.gpus), 'GPU')} of {figures.count(len(hosts), 'host')}"
    if shared := [host for host, gpus in hosts.items() if gpus > 1]:
        text += f"; those of {', '.join(shared)} measured at the same time"
    return text


def between_gpus(comparison: Comparison) -> str:
    """An addition to an interval across processes that ran on several GPUs; otherwise empty."""
    several = comparison.run.settings.processes > 1 and len(comparison.gpus) > 1
    return f" on {len(comparison.gpus)} GPUs, which holds the difference between GPUs too" if several else ""


def mixed(comparison: Comparison) -> list[str]:
    """A sentence for each host on which versions were not those of the run."""
    versions = {use.gpu.host: use.gpu.versions for use in comparison.gpus if use.gpu.versions}
    return [f"Versions differ: {host} has {versions_in_words(differing)}." for host, differing in versions.items()]


def versions_in_words(versions: dict[str, str]) -> str:
    """Versions by library, in a line."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def without_hashes(text: str) -> str:
    """Versions without the hashes of their packages, which the results file has."""
    return _HASH.sub("", text)


def nothing_ranked(comparison: Comparison) -> bool:
    """Whether interference rules out a verdict in every case that was timed."""
    timed = [case for case in comparison.cases if case.of("ranked", "unranked")]
    return bool(timed) and all(case.interference for case in timed)


def interference(comparison: Comparison) -> list[str]:
    """Why nothing is called faster or slower in some cases, a sentence a reason."""
    reasons = Counter(case.interference for case in comparison.cases if case.interference and case.of("unranked"))
    return [f"Nothing is ranked in {figures.count(number, 'case')}: {reason}." for reason, number in reasons.items()]


def heading(title: str, *runs: RunRecord) -> str:
    """The first lines of a page about runs on one device: what it is about, and the revisions that measured."""
    revisions = dict.fromkeys(f"revision {run.revision or figures.NOTHING}, {run.started_at[:10]}" for run in runs)
    return f"# {title} on {runs[0].device.name}\n\nMeasured at {'; '.join(revisions)}."


def yardsticks(case: CaseComparison) -> str:
    """The reference times of a case: the same-traffic add, and a copy of its bytes at the rate of a large copy."""
    copy = f", copy {figures.microseconds(case.copy_us)} us" if case.copy_us else ""
    return f"add {figures.microseconds(case.add_us)} us{copy}"


def error_budget(comparison: Comparison) -> str:
    """The engine's own error as a footnote of a table of times; empty where it is unknown."""
    if not comparison.budget or not comparison.timed:
        return ""
    text = budget_sentence(comparison.budget)
    if comparison.run.settings.processes == 1:
        text += f" A single process claims no difference within {figures.band(PROCESS_BAND)}."
    return text


def budget_sentence(budget: Budget) -> str:
    """The errors of a time and a ratio, t0, and the bandwidth of a copy, in a sentence."""
    text = (
        f"The engine's own error, by its self-test: a time ±{figures.two_digits(budget.fixed_us)} us "
        f"±{figures.two_digits(100 * budget.relative)} %, a ratio ±{figures.two_digits(100 * budget.ratio)} %; "
        f"t0 {figures.microseconds(budget.t0_us)} us"
    )
    return text + (f"; a copy moves {figures.gbps(budget.copy_gbps)} GB/s." if budget.copy_gbps else ".")


def failed_checks(selftests: Sequence[SelfTestRecord]) -> list[str]:
    """A sentence each for the self-tests before and after the cases, with the worst value of each failed check.

    A check that failed in single processes but passes over all of them together is no failure.
    """
    lines: list[str] = []
    for when, processes, failed in evidence.failures_by_time(selftests):
        parts = [_failed(checks, processes) for checks in failed.values()]
        if parts:
            lines.append(f"The self-test {WHEN[when]}failed: {', '.join(parts)}.")
    return lines


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


def blocks(cases: Iterable[CaseComparison]) -> str:
    """How many blocks the cases were timed in, and how many were voided."""
    cases = list(cases)
    counts = [entry.blocks for case in cases for entry in case.ranked]
    if not counts:
        return ""
    text = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    processes = max(entry.processes for case in cases for entry in case.ranked)
    text += f" in {processes} processes" if processes > 1 else ""
    voided: dict[str, int] = {}
    for case in cases:
        for cause, number in case.voided.items():
            voided[cause] = voided.get(cause, 0) + number
    causes = ", ".join(f"{number} {cause}" for cause, number in sorted(voided.items()) if number)
    return f"{text} (voided: {causes})" if causes else text


def aa_band(case: CaseComparison) -> str:
    """The A/A band of a case, or that nothing is ranked in it."""
    return "nothing ranked" if case.interference else f"A/A band {figures.band(case.aa_band)}"


def aa_bands(cases: Iterable[CaseComparison]) -> str:
    """The smallest and largest A/A band of the cases, and how many have none."""
    cases = [case for case in cases if not case.interference]
    bands = sorted(case.aa_band for case in cases if case.aa_band is not None)
    missing = len(cases) - len(bands)
    if not cases:
        return "nothing is ranked"
    if not bands:
        return "none was measured, so nothing is called faster or slower"
    text, widest = figures.band(bands[0]), figures.band(bands[-1])
    if text != widest:
        text += f" to {widest}"
    return f"{text}; none in {figures.count(missing, 'case')}" if missing else text


def _outcomes_in_words(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one implementation with their numbers of cases; only its failures, where there are any."""
    counts = tally(outcomes)
    failed = [f"{_HOW[status]} {counts[status]}" for status in FAILED if counts[status]]
    passed: tuple[Status, ...] = ("ok", "nondeterministic", "unsupported")
    return ", ".join(failed or [f"{_HOW[status]} {counts[status]}" for status in passed if counts[status]])


def _failed(checks: Sequence[Check], runs: int) -> str:
    """One check, by the worst of its failures."""
    worst = max(checks, key=lambda check: abs(check.value) if check.value is not None else 0.0)
    text = worst.name
    if worst.value is not None:
        text += f" {figures.measure(worst.value, worst.unit)}"
    if worst.limit is not None:
        text += f" (limit {figures.measure(worst.limit, worst.unit)})"
        if worst.value is not None and worst.value <= worst.limit and worst.detail:
            text += f": {worst.detail}"  # it failed by something else than the figure
    return f"{text} in {len(checks)} of {runs} processes" if runs > 1 else text
