"""Whether processes agree: the speedup over the baseline from each process alone, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median, stdev

import numpy as np

from harness.analysis import figures
from harness.analysis.intervals import CONFIDENCE
from harness.analysis.joining import JoinedCase, band, by_case, ratio
from harness.analysis.statistics import IncomparableError, Ratio, beyond_processes, median_and_spread
from harness.records.file import Results
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.table import words

ABOUT = (
    "A cell is one implementation on one case, against the baseline: a speedup for each process, with the interval "
    "from inside that process. Processes agree where all their intervals share a point. Widened: by what each "
    "process could not tell apart, its own A/A band."
)
ASK = "This run has one process a case; `normbwd bench --processes 5` has more.\n"


@dataclass(frozen=True)
class Agreement:
    """The speedups of one implementation over the baseline, a process each, and their A/A bands (log ratios)."""

    case: str
    impl: str
    ratios: tuple[Ratio, ...]
    bands: tuple[float, ...]
    medians_us: tuple[float, ...]

    @property
    def agrees(self) -> bool:
        """Whether all intervals share a point."""
        return max(ratio.low for ratio in self.ratios) <= min(ratio.high for ratio in self.ratios)

    @property
    def agrees_widened(self) -> bool:
        """Whether all intervals share a point after each is widened by the A/A band of its process."""
        pairs = list(zip(self.ratios, self.bands, strict=True))
        return max(r.low * math.exp(-aa) for r, aa in pairs) <= min(r.high * math.exp(aa) for r, aa in pairs)

    @property
    def time_sd(self) -> float:
        """The standard deviation of the logs of the medians of the processes."""
        return stdev(math.log(us) for us in self.medians_us)

    @property
    def ratio_sd(self) -> float:
        """The standard deviation of the log ratios of the processes."""
        return stdev(math.log(ratio.value) for ratio in self.ratios)


def agreements_of(results: Results) -> list[Agreement]:
    """The implementations, case by case, that two processes or more have measured, in the order of the file."""
    baseline = results.run.settings.baseline
    agreements: list[Agreement] = []
    for case, joined in by_case(results).items():
        by_process = [_of_process(joined, process) for process in _processes(joined)]
        for impl in (impl for impl, role in joined if role == "impl" and impl != baseline):
            ratios: list[Ratio] = []
            bands: list[float] = []
            medians: list[float] = []
            for process in by_process:
                with suppress(IncomparableError):
                    ratios.append(ratio(process.get((baseline, "impl")), process.get((impl, "impl"))))
                    bands.append(band(process, baseline) or 0.0)
                    medians.append(median_and_spread(process[impl, "impl"].timings[0].samples_us)[0])
            if len(ratios) > 1:
                agreements.append(Agreement(case.key, impl, tuple(ratios), tuple(bands), tuple(medians)))
    return agreements


def process_bound(agreements: Sequence[Agreement]) -> float:
    """What 95 % of processes are off by, over all cells, as a log ratio: PROCESS_BAND comes from this."""
    offs = [off for agreement in agreements for off in beyond_processes(agreement.ratios)]
    return float(np.percentile(offs, 100 * CONFIDENCE))


def render(results: Results) -> str:
    """The agreement as markdown."""
    agreements = agreements_of(results)
    if not agreements:
        return ASK
    apart = [agreement for agreement in agreements if not agreement.agrees_widened]
    times, ratios = [agreement.time_sd for agreement in agreements], [agreement.ratio_sd for agreement in agreements]
    most = max(len(agreement.ratios) for agreement in agreements)
    counted = (
        f"{figures.count(len(agreements), 'cell')} in {most} processes. "
        f"Agree: {figures.share(sum(agreement.agrees for agreement in agreements), len(agreements))}; "
        f"widened: {figures.share(len(agreements) - len(apart), len(agreements))}."
    )
    scatter = (
        f"Standard deviation between processes: of medians {_spreads(times)}; of speedups {_spreads(ratios)}. "
        f"A process's speedup is off by at most {figures.spread(process_bound(agreements))} % in {CONFIDENCE:.0%} of "
        "all, taken from their mean and scaled by the root of n / (n - 1)."
    ).replace("95%", "95 %")
    rows = [
        [
            agreement.case,
            agreement.impl,
            "; ".join(figures.ratio_and_interval(speedup) for speedup in agreement.ratios),
            ", ".join(figures.band(aa) for aa in agreement.bands),
        ]
        for agreement in apart
    ]
    parts = [provenance.heading("Agreement of processes", results.run), ABOUT, counted, scatter]
    if rows:
        headings = [*words("case", "impl"), "speedup of each process [95 %]", "A/A bands"]
        parts += ["## Cells that do not agree", table(headings, rows)]
    return paragraphs(parts)


def _processes(case: JoinedCase) -> list[int]:
    return sorted({row.process for joined in case.values() for row in joined.rows})


def _of_process(case: JoinedCase, process: int) -> JoinedCase:
    """What one process found of the case."""
    found = {
        key: replace(joined, rows=tuple(row for row in joined.rows if row.process == process))
        for key, joined in case.items()
    }
    return JoinedCase({key: joined for key, joined in found.items() if joined.rows})


def _spreads(values: Sequence[float]) -> str:
    return f"median {figures.spread(median(values))} %, largest {figures.spread(max(values))} %"
