"""The reasons for no verdict on a case: a CPU, a failed self-test, an A/A pair that scatters too much.

For each of them the A/A band of the case is infinite: nothing is called faster or slower there, and a gate says
INCONCLUSIVE with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from harness.analysis.pairing import Paired
from harness.analysis.statistics import Ratio, aa_reading, across_processes, quartiles, verdict
from harness.cases import NormCase
from harness.grouping import grouped
from harness.records.contexts import COLD
from harness.records.reasons import ALL_VOID, Reason
from harness.records.schema import Check, RowRecord, SelfTestRecord

PLANTED = {"planted +1%": 0.01, "planted +2%": 0.02}  # of the bytes that move, by the name of the check
PLANTED_LIMIT = 0.005
AA_PAIR = "A/A"  # the check in which nothing was planted


def detected(planted: Sequence[Ratio], nothing: Sequence[Ratio]) -> bool:
    """Whether a planted effect is told from the A/A pair; both as ratios of times, one for each process."""
    return verdict(across_processes(planted), aa_reading(nothing)) == "faster"


def detected_together(name: str, records: Sequence[SelfTestRecord]) -> bool:
    """Whether several processes together detect a planted effect that one of them alone did not.

    Each process must have kept the limits, because an engine that is off in one process is off.
    """
    if name not in PLANTED or len(records) < 2:
        return False
    planted, nothing = ([_within_limit(check, record) for record in records] for check in (name, AA_PAIR))
    return all(planted) and all(nothing) and detected([*filter(None, planted)], [*filter(None, nothing)])


def _within_limit(name: str, record: SelfTestRecord) -> Ratio | None:
    """The reading of a check as a ratio, whose interval is not used; None if the check broke its limit."""
    for check in record.checks:
        if check.name == name and check.value is not None and check.limit is not None and check.reading is not None:
            return Ratio(math.exp(check.reading), 0.0, math.inf, 0) if check.value <= check.limit else None
    return None


EVENTS_SHARE, EVENTS_AGAINST_PROFILER = "events' own share", "events against profiler"
PROFILER_CHECKS = frozenset({EVENTS_SHARE, EVENTS_AGAINST_PROFILER})  # no ratio rests on the profiler's clock
# Half the inter-quartile range of an A/A pair's ratio from block to block: at most 6.8 % in all runs on H200s.
MOST_SCATTER = 0.15
# The change of a ratio over the baseline from the first third of the blocks to the last: at most 6.8 % there.
MOST_DRIFT = 0.1
# The share of void blocks: a median of nine tenths of the blocks is still the median of the case.
MOST_VOIDED = 0.1
# The share of blocks in which such a ratio is off from its median by more than FAR_OFF (a log ratio): 0 there.
MOST_BURSTS, FAR_OFF = 0.1, 0.3
FEWEST_BLOCKS = 9  # with fewer blocks, thirds and shares mean nothing, and the interval is wide


def failed_checks(selftests: Sequence[SelfTestRecord]) -> list[str]:
    """The names of the failed checks that concern a ratio, over all processes.

    A planted effect that a single process missed did not fail if all processes together detect it.
    """
    failed = dict.fromkeys(name for _, _, checks in failures_by_time(selftests) for name in checks)
    return [name for name in failed if name not in PROFILER_CHECKS]


def failures_by_time(selftests: Sequence[SelfTestRecord]) -> list[tuple[str, int, dict[str, list[Check]]]]:
    """A tuple for each time of self-tests (before, after): the time, how many processes made one, and failed checks."""
    failures: list[tuple[str, int, dict[str, list[Check]]]] = []
    for when in dict.fromkeys(record.when for record in selftests):
        records = [record for record in selftests if record.when == when]
        checks = grouped((check.name, check) for record in records for check in record.checks if check.passed is False)
        failures.append((when, len(records), {n: c for n, c in checks.items() if not detected_together(n, records)}))
    return failures


def against_run(selftests: Sequence[SelfTestRecord]) -> Reason | None:
    """Why nothing of a run may be ranked, by its self-tests; or None."""
    failed = failed_checks(selftests)
    return Reason("selftest_failed", {"checks": failed}) if failed else None


def against_device(case: NormCase) -> Reason | None:
    """Why a case may not be ranked, by the device that it ran on; or None."""
    return Reason("on_a_cpu") if case.device == "cpu" else None


def against_pairs(pairs: Iterable[Paired]) -> Reason | None:
    """The first interference that any of these pairs shows; or None."""
    return next(filter(None, map(against_samples, pairs)), None)


def too_void(row: RowRecord) -> bool:
    """Whether too many blocks of a row were void, alone or in any context, for its times to be published."""
    return max(void_shares(row).values(), default=0.0) > MOST_VOIDED


def void_shares(row: RowRecord) -> dict[str, float]:
    """The share of a row's blocks that were void, in each context in which it was timed."""
    contexts = row.contexts or {}
    timings = {COLD: row.timing} | {name: context.timing for name, context in contexts.items()}
    all_void = {name: 1.0 for name, context in contexts.items() if context.untimed and context.untimed.code == ALL_VOID}
    return {name: timing.void_share for name, timing in timings.items() if timing} | all_void


def against_samples(pair: Paired) -> Reason | None:
    """The interference that the blocks of a pair show: scatter, drift or bursts; or None."""
    logs: list[float] = pair.logs.tolist()
    lower, _, upper = quartiles(logs)
    if (scatter := (upper - lower) / 2) > MOST_SCATTER:
        return Reason("scatters", {"percent": 100 * scatter})
    if len(logs) < FEWEST_BLOCKS:
        return None
    third = len(logs) // 3
    if (drift := abs(median(logs[-third:]) - median(logs[:third]))) > MOST_DRIFT:
        return Reason("drifts", {"percent": 100 * drift})
    middle = pair.median_log
    if (bursts := sum(abs(log - middle) > FAR_OFF for log in logs) / len(logs)) > MOST_BURSTS:
        return Reason("bursts", {"off_percent": 100 * FAR_OFF, "percent": 100 * bursts})
    return None
