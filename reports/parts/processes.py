"""Whether processes agree: the speedup over the baseline from each process alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median, stdev

import numpy as np

from harness.analysis.joining import JoinedCase, band, by_case, ratio
from harness.analysis.statistics import CONFIDENCE, IncomparableError, Ratio, beyond_processes, median_and_spread
from harness.records.file import Results
from reports import figures
from reports.markdown_writer import paragraphs, table
from reports.parts import provenance
from reports.table import left

ABOUT = (
    "An entry is one implementation on one case, against the baseline: a speedup for each process, with the interval "
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

    def agrees(self, widened: bool = False) -> bool:
        """Whether all intervals share a point, each `widened` by the A/A band of its process or as it is."""
        pairs = [(ratio, aa if widened else 0.0) for ratio, aa in zip(self.ratios, self.bands, strict=True)]
        return max(r.low * math.exp(-aa) for r, aa in pairs) <= min(r.high * math.exp(aa) for r, aa in pairs)


def agreements_of(results: Results) -> list[Agreement]:
    """The implementations, case by case, that two processes or more have measured, in the order of the file."""
    baseline = results.run.settings.baseline
    agreements: list[Agreement] = []
    for case, joined in by_case(results).items():
        processes = sorted({row.process for each in joined.values() for row in each.rows})
        by_process = [_of_process(joined, process) for process in processes]
        for impl in (impl for impl, role in joined if role == "impl" and impl != baseline):
            compared: list[tuple[Ratio, float, float]] = []
            for rows in by_process:
                with suppress(IncomparableError):
                    speedup = ratio(rows.get((baseline, "impl")), rows.get((impl, "impl")))
                    median_us, _ = median_and_spread(rows[impl, "impl"].timings[0].samples_us)
                    compared.append((speedup, band(rows, baseline) or 0.0, median_us))
            if len(compared) > 1:
                agreements.append(Agreement(case.key, impl, *map(tuple, zip(*compared, strict=True))))
    return agreements


def process_bound(agreements: Sequence[Agreement]) -> float:
    """What 95 % of processes are off by, over all entries, as a log ratio: PROCESS_BAND comes from this."""
    offs = [off for agreement in agreements for off in beyond_processes(agreement.ratios)]
    return float(np.percentile(offs, 100 * CONFIDENCE))


def render(results: Results) -> str:
    """The agreement as markdown."""
    agreements = agreements_of(results)
    if not agreements:
        return ASK
    apart = [agreement for agreement in agreements if not agreement.agrees(widened=True)]
    most = max(len(agreement.ratios) for agreement in agreements)
    counted = (
        f"{figures.count(len(agreements), 'comparison')} in {most} processes. "
        f"Agree: {figures.share(sum(agreement.agrees() for agreement in agreements), len(agreements))}; "
        f"widened: {figures.share(len(agreements) - len(apart), len(agreements))}."
    )
    scatter = (
        f"Standard deviation between processes: of medians {_spreads([each.medians_us for each in agreements])}; of "
        f"speedups {_spreads([[ratio.value for ratio in each.ratios] for each in agreements])}. A process's speedup is "
        f"off by at most {figures.spread(process_bound(agreements))} % in {100 * CONFIDENCE:.0f} % of all, taken from "
        "their mean and scaled by the root of n / (n - 1)."
    )
    rows = [
        [
            agreement.case,
            agreement.impl,
            "; ".join(map(figures.ratio_and_interval, agreement.ratios)),
            ", ".join(map(figures.band, agreement.bands)),
        ]
        for agreement in apart
    ]
    parts = [provenance.heading("Agreement of processes", results.run), ABOUT, counted, scatter]
    if rows:
        headings = [*left("case", "impl"), "speedup of each process [95 %]", "A/A bands"]
        parts += ["## Processes that do not agree", table(headings, rows)]
    return paragraphs(parts)


def _of_process(case: JoinedCase, process: int) -> JoinedCase:
    """What one process measured of the case."""
    rows = {key: tuple(row for row in joined.rows if row.process == process) for key, joined in case.items()}
    return JoinedCase({key: replace(case[key], rows=of_key) for key, of_key in rows.items() if of_key})


def _spreads(values: Sequence[Sequence[float]]) -> str:
    """The median and the largest standard deviation of the logs."""
    spreads = [stdev(map(math.log, of_entry)) for of_entry in values]
    return f"median {figures.spread(median(spreads))} %, largest {figures.spread(max(spreads))} %"
