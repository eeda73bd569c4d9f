"""Estimates how long a run will take, from the times of published runs."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from harness.cases import NormCase
from harness.cases.catalogue import compiled_alike
from harness.errors import UsageError
from harness.fleet.shares import Shares
from harness.records.file import Results, load
from harness.records.published_plan import PUBLISHED
from harness.records.run_records import EndRecord
from harness.records.schema import RowRecord
from harness.run.plan import Job

# Stages whose time a file has for all rows together: stages of every process, and of the first process alone.
SHARED_STAGES, FIRST_STAGES = ("inputs", "time"), ("break down",)
COMPILING_PROCESSES = 12  # processes that compiled ahead in published runs, on hosts of 16 cores

Variant = tuple[tuple[str, ...], str]  # the features of a case, and an implementation


@dataclass(frozen=True)
class Durations:
    """The seconds that published runs took, for a row of an implementation, and for a process besides its rows.

    `row_s` is the mean of an implementation, `of_variant_s` that with what a case has around its norm, `of_row_s` that
    on a case, all with a full verification; a row of a later process takes `later_less_s` less. `time_s` is the timing
    of a row, `context_s` that of a row in one context of a training step, and `compile_s` the time of one process to
    compile a row's backward ahead.
    """

    row_s: Mapping[str, float] = field(default_factory=dict[str, float])
    of_variant_s: Mapping[Variant, float] = field(default_factory=dict[Variant, float])
    of_row_s: Mapping[tuple[NormCase, str], float] = field(default_factory=dict[tuple[NormCase, str], float])
    later_less_s: float = 0.0
    process_s: float = 0.0
    time_s: float = 0.0
    context_s: float = 0.0
    compile_s: float = 0.0
    runs: int = 0

    def of(self, job: Job) -> float:
        """The seconds of a job: by its published rows, or else by those of the variant, or of the implementation."""
        return self._in_process(job, (self._row_s(job.case, impl) for impl in job.impls))

    def about(self, job: Job) -> float:
        """The seconds of a job as if its case had never been measured, by the means of its implementations."""
        return self._in_process(job, map(self._about_s, job.impls))

    def _in_process(self, job: Job, rows_s: Iterable[float]) -> float:
        less_s = self.later_less_s if job.process else 0.0
        return sum(max(self.time_s, row_s - less_s) if less_s else row_s for row_s in rows_s)

    def _row_s(self, case: NormCase, impl: str) -> float:
        of_variant_s = self.of_variant_s.get((case.features, impl))
        return self.of_row_s.get((case, impl), of_variant_s or self._about_s(impl))

    def _about_s(self, impl: str) -> float:
        # The median, because the few implementations that tune by timing take ten times as long as others.
        return self.row_s.get(impl) or (median(self.row_s.values()) if self.row_s else 1.0)


def durations(runs: Iterable[Results]) -> Durations:
    """The durations of those of these runs that recorded the times of their stages and that timed something."""
    recorded = [run for run in runs if run.end and run.end.stages_s.get("time") and run.selftests and _timed(run)]
    of_impl: dict[str, list[float]] = defaultdict(list)
    of_variant: dict[Variant, list[float]] = defaultdict(list)
    of_row: dict[tuple[NormCase, str], list[float]] = defaultdict(list)
    process: list[float] = []
    time_s: list[float] = []
    context_s: list[float] = []
    compile_s: list[float] = []
    less_s: list[float] = []
    share = _later_share(recorded)
    for run in recorded:
        assert run.end is not None
        stages = run.end.stages_s
        rows = _timed(run)
        firsts = _firsts(rows)
        time_s.append(stages["time"] / len(rows))
        if timed_in_contexts := sum(len(row.contexts or ()) for row in rows):
            context_s.append(stages.get("time in context", 0.0) / timed_in_contexts)
        verified_s = stages.get("verify", 0.0) / (len(firsts) + share * (len(rows) - len(firsts)))
        first_s = sum(stages.get(stage, 0.0) for stage in FIRST_STAGES) / len(firsts)
        less_s += [(1 - share) * verified_s + first_s] * len(firsts)
        shared_s = sum(stages.get(stage, 0.0) for stage in SHARED_STAGES) / len(rows) + verified_s + first_s
        for row in rows:
            of_impl[row.impl].append(shared_s + (row.prepare_s or 0.0))
            of_variant[row.case.features, row.impl].append(of_impl[row.impl][-1])
            of_row[row.case, row.impl].append(of_impl[row.impl][-1])
        process.append(_process_s(run, run.end))
        if ahead := _compiled(run):
            processes = COMPILING_PROCESSES * max(1, len(run.gpus))
            compile_s.append(stages.get("compile ahead", 0.0) * processes / ahead)
    return Durations(
        row_s={impl: fmean(seconds) for impl, seconds in of_impl.items()},
        of_variant_s={variant: fmean(seconds) for variant, seconds in of_variant.items()},
        of_row_s={row: fmean(seconds) for row, seconds in of_row.items()},
        later_less_s=fmean(less_s) if less_s else 0.0,
        process_s=median(process) if process else 0.0,  # a sitting killed while it compiled is an outlier
        time_s=fmean(time_s) if time_s else 0.0,
        context_s=fmean(context_s or time_s or [0.0]),
        compile_s=fmean(compile_s) if compile_s else 0.0,
        runs=len(recorded),
    )


def _timed(run: Results) -> list[RowRecord]:
    return [row for row in run.rows if row.role == "impl" and row.timing]


def _firsts(rows: Sequence[RowRecord]) -> list[RowRecord]:
    """The rows of the processes that verified their case in full."""
    return [row for row in rows if row.process == 0] or list(rows)


def _later_share(runs: Iterable[Results]) -> float:
    """The time to verify a row in a later process, as a share of that in a first process.

    Files have the time of all rows together. Runs of one process give the time of a first row; what remains in other
    runs is the time of the later rows.
    """
    alone: list[tuple[float, int]] = []
    several: list[tuple[float, int, int]] = []
    for run in runs:
        assert run.end is not None, "runs without an end record were left out"
        rows = _timed(run)
        first, verify_s = len(_firsts(rows)), run.end.stages_s.get("verify", 0.0)
        if first == len(rows):
            alone.append((verify_s, first))
        else:
            several.append((verify_s, first, len(rows) - first))
    if not alone or not several:
        return 1.0
    row_s = median(verify_s / rows for verify_s, rows in alone)
    later_s = sum(verify_s - row_s * first for verify_s, first, _ in several) / sum(later for *_, later in several)
    return min(1.0, max(0.0, later_s / row_s)) if row_s > 0 else 1.0


def _process_s(run: Results, end: EndRecord) -> float:
    """The seconds of a process besides its rows; a fleet's stages are sums over its GPUs, which run in parallel."""
    stages, gpus = end.stages_s, max(1, len(run.gpus))
    ahead_s = stages.get("compile ahead", 0.0)
    outside_s = end.wall_s - ahead_s - (sum(stages.values()) - ahead_s) / gpus
    of_all_s = stages.get("self-test", 0.0) + stages.get("start", 0.0) + outside_s * gpus
    return of_all_s / len({(row.process, row.gpu) for row in run.rows if row.timing})


def _compiled(run: Results) -> int:
    """How many backwards a run compiled ahead."""
    names = {impl.name for impl in run.run.implementations if impl.compiles_ahead}
    return len({(compiled_alike(row.case), row.impl) for row in run.rows if row.role == "impl" and row.impl in names})


def published(kind: str, folder: Path = PUBLISHED) -> Durations:
    """The durations of the published runs on this kind of GPU; if there are none, of those on any kind."""
    own = sorted((folder / kind).glob("*.jsonl*"))
    return durations(map(_loaded, own or sorted(folder.glob("*/*.jsonl*"))))


def _loaded(path: Path) -> Results:
    try:
        return load(path)
    except UsageError as error:
        raise UsageError(f"no estimate: {error}") from error


def makespan_s(
    jobs: Sequence[Job],
    lanes: int,
    times: Durations,
    *,
    lanes_a_host: int = 8,
    estimate_s: Callable[[Job], float] | None = None,
    compiled: Iterable[str] = (),
) -> float:
    """Seconds from the first job to the last row on so many GPUs, by simulating a run with its shares.

    `estimate_s` are the costs by which the shares are made, by default the simulated ones. First, each host compiles
    ahead the cases of its lanes for the implementations `compiled`, with COMPILING_PROCESSES for each lane.
    """
    shares = Shares(jobs, range(lanes), estimate_s or times.of, times.process_s)
    begun_s = _compile_ahead_s(shares, lanes, times, lanes_a_host, frozenset(compiled))
    free = [(begun_s, lane) for lane in range(lanes)]
    process: dict[int, int] = {}
    end_s = begun_s
    while free:
        now_s, lane = heapq.heappop(free)
        if (job := shares.take(lane)) is None:
            continue
        if process.get(lane) != job.process:
            now_s += times.process_s
            process[lane] = job.process
        now_s += times.of(job)
        end_s = max(end_s, now_s)
        heapq.heappush(free, (now_s, lane))
    return end_s


def _compile_ahead_s(
    shares: Shares, lanes: int, times: Durations, lanes_a_host: int, compiled: frozenset[str]
) -> float:
    """The seconds that the host with the most to compile takes to compile ahead."""
    longest_s = 0.0
    for first in range(0, lanes, lanes_a_host):
        of_host = range(first, min(lanes, first + lanes_a_host))
        jobs = [(compiled_alike(job.case), job.impls) for lane in of_host for job in shares.of(lane)]
        tasks = {(case, impl) for case, impls in jobs for impl in compiled.intersection(impls)}
        longest_s = max(longest_s, len(tasks) * times.compile_s / (COMPILING_PROCESSES * len(of_host)))
    return longest_s
