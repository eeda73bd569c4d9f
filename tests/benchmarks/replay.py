"""Samples that an engine has taken already, handed to pytest-benchmark as if time went by again."""

from dataclasses import dataclass

from harness.analysis.comparison import compare
from harness.analysis.joining import by_case


class VirtualClock:
    """A timer for pytest-benchmark, in seconds, that moves only when it is told to."""

    def __init__(self):
        self._now_s = 0.0

    def __call__(self):
        return self._now_s

    def advance(self, us):
        """Let so many microseconds pass."""
        self._now_s += us * 1e-6


@dataclass(frozen=True)
class Replay:
    """The samples of one implementation on one case in microseconds, and what is known of them besides."""

    case: str
    impl: str
    samples_us: tuple[float, ...]
    extra: dict[str, object]


def replays(results):
    """Everything of a run that may be compared, case by case."""
    compared, joined = compare(results), by_case(results)
    return [
        Replay(
            case=case.case.key,
            impl=entry.impl,
            samples_us=tuple(
                us for timing in joined[case.case][entry.impl, "impl"].timings for us in timing.samples_us
            ),
            extra=_extra(compared, entry),
        )
        for case in compared.cases
        for entry in case.entries
        if entry.standing == "ranked"
    ]


def _extra(compared, entry):
    ratio = entry.speedup
    return {
        "bandwidth_gbps": entry.bandwidth_gbps,
        "baseline": compared.baseline,
        "speedup": ratio.value if ratio else 1.0,
        "speedup_low": ratio.low if ratio else 1.0,
        "speedup_high": ratio.high if ratio else 1.0,
        "verdict": entry.verdict,
        "status": entry.status,
        "processes": entry.processes,
    }
