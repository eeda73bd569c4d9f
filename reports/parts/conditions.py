"""Under what a run was made: device, libraries, settings, time by stage; and what its times are held against."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.device_state import DeviceState
from harness.analysis.held_out import why_not_held_out
from harness.analysis.statistics import PROCESS_BAND
from harness.records.contexts import COLD
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.records.run_records import STACK, EndRecord, RunRecord
from harness.records.schema import Budget
from harness.records.settings import Settings
from reports import figures
from reports.markdown_writer import code, escape
from reports.table import Table, left, table

FLUSHES = {
    "clean": "clean (cold cache: write a buffer, then read another)",
    "dirty": "dirty (cold cache, with unwritten lines of a write-only flush)",
    "none": "none (warm cache)",
}
NO_SELFTEST = "unknown, as no self-test was made"
_HASH = re.compile(r" \(sha256:\w+\)")


def heading(title: str, *runs: RunRecord) -> str:
    """The first lines of a page about runs on one device: what it is about, and what measured it when."""
    revisions = dict.fromkeys(
        f"revision {run.revision or figures.NOTHING}, {run.started_at[:10]}, {engine_and_versions(run)}" for run in runs
    )
    return f"# {title} on {escape(runs[0].device.name)}\n\nMeasured at {escape('; '.join(revisions))}."


def engine_and_versions(run: RunRecord) -> str:
    """The versions of the engine and of the libraries that most times depend on."""
    shared = {name: run.libraries[name] for name in STACK if name in run.libraries}
    return ", ".join(filter(None, [f"engine version {run.engine_version}", libraries_text(shared)]))


def conditions(comparison: Comparison) -> list[tuple[str, str]]:
    """The conditions of the run as names and values; unknown ones are left out."""
    run = comparison.run
    version = f"normbwd {run.normbwd_version}, engine {run.engine_version}" if run.normbwd_version else ""
    items = [
        ("Device", _device(run)),
        ("GPUs", _fleet(comparison)),
        ("Clocks at the start", _clocks(run)),
        *_readings(comparison.state),
        ("Date", run.started_at),
        ("Libraries", libraries_text(run.libraries)),
        ("Version", version),
        ("Revision", run.revision or ""),
        ("Seed", str(run.settings.seed)),
        ("Inputs drawn a case", str(run.settings.seeds) if run.settings.seeds > 1 else ""),
        ("Runs a case for its bits", _repeats(run.settings)),
        ("Suite", run.settings.suite or ""),
        ("Shapes", drawn_shapes(run)),
    ]
    if comparison.timed:
        items += [
            ("Context", "" if comparison.context == COLD else comparison.context),
            ("Cache flush", FLUSHES[run.settings.flush]),
            ("Blocks per case", blocks(comparison.cases)),
            ("A/A band", aa_bands(comparison.cases)),
            ("Engine's own error", "" if comparison.budget else NO_SELFTEST),
        ]
    items += [("Time", time_spent(comparison.end))]
    return [(name, value) for name, value in items if value]


def drawn_shapes(run: RunRecord) -> str:
    """The seed of shapes that were drawn, and whether they are held out from the kernel; empty where none were."""
    if (drawn := run.drawn) is None:
        return ""
    why_not = why_not_held_out(run)
    said = f"not held out: {sentence(why_not)}" if why_not else "drawn when the run began: held out"
    return f"{run.settings.draw}, of {drawn.impl} version {drawn.version} at {drawn.commit or 'no commit'}; {said}"


def conditions_list(comparison: Comparison) -> str:
    """The conditions of the run and its command as a list of markdown."""
    lines = [f"- {name}: {escape(value)}" for name, value in conditions(comparison)]
    lines.append(f"- Command: {code(figures.one_line(comparison.run.command, 1000))}")
    return "\n".join(lines)


def gpus(comparison: Comparison) -> Table:
    """The GPUs of a fleet, a line each."""
    rows = [
        [str(gpu.number), gpu.host, *(known or figures.NOTHING for known in (gpu.visible, gpu.uuid)), str(measured)]
        for gpu, measured in ((use.gpu, use.measured) for use in comparison.gpus)
    ]
    return table(["GPU", *left("host", "there", "uuid"), "cases"], rows)


def libraries_text(versions: Mapping[str, str]) -> str:
    """Libraries with their versions; that of libcudnn is one number, whose last four digits are minor and patch."""
    known = {name: versions[name] for name in sorted(versions, key=lambda name: (name not in STACK, name))}
    if (cudnn := known.get("libcudnn", "")).isdigit():
        known["libcudnn"] = f"{int(cudnn[:-4])}.{int(cudnn[-4:-2])}.{int(cudnn[-2:])}"
    return ", ".join(f"{name} {version}" for name, version in known.items())


def without_hashes(text: str) -> str:
    """Versions without the hashes of their packages, which the results file has."""
    return _HASH.sub("", text)


def time_spent(end: EndRecord | None) -> str:
    """How long the run took, and its stages from the longest; those that took no time are left out."""
    if end is None:
        return ""
    stages = sorted(end.stages_s.items(), key=lambda stage: -stage[1])
    parts = [f"{name.replace('_', ' ')} {figures.seconds(spent)}" for name, spent in stages if spent >= 0.5]
    return figures.seconds(end.wall_s) + (f", of which {', '.join(parts)}" if parts else "")


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


def add_and_copy(case: CaseComparison) -> str:
    """The reference times of a case: the same-traffic add, and a copy of its bytes at the rate of a large copy."""
    copy = f", copy {figures.microseconds(case.copy_us)} us" if case.copy_us else ""
    return f"add {figures.microseconds(case.add_us)} us{copy}"


def blocks(cases: Sequence[CaseComparison]) -> str:
    """How many blocks the cases were timed in, and how many were voided."""
    ranked = [entry for case in cases for entry in case.ranked]
    if not ranked:
        return ""
    fewest, most = min(entry.blocks for entry in ranked), max(entry.blocks for entry in ranked)
    text = str(most) if fewest == most else f"{fewest} to {most}"
    processes = max(entry.processes for entry in ranked)
    text += f" in {processes} processes" if processes > 1 else ""
    voided: Counter[Reason] = Counter[Reason]()
    for void in (void for case in cases for void in case.voided):
        voided[void.cause] += void.blocks
    causes = ", ".join(sorted(f"{number} {sentence(cause)}" for cause, number in voided.items()))
    return f"{text} (voided: {causes})" if causes else text


def aa_band(case: CaseComparison) -> str:
    """The A/A band of a case, or that nothing is ranked in it."""
    return "nothing ranked" if case.interference else f"A/A band {figures.band(case.aa_band)}"


def aa_bands(cases: Iterable[CaseComparison]) -> str:
    """The smallest and largest A/A band of the cases, and how many have none."""
    cases = [case for case in cases if not case.interference]
    bands = sorted(case.aa_band for case in cases if case.aa_band is not None)
    if not cases:
        return "nothing is ranked"
    if not bands:
        return "none was measured, so nothing is called faster or slower"
    text = " to ".join(dict.fromkeys((figures.band(bands[0]), figures.band(bands[-1]))))
    missing = len(cases) - len(bands)
    return f"{text}; none in {figures.count(missing, 'case')}" if missing else text


def _repeats(settings: Settings) -> str:
    later = f"; {settings.later_repeats} in each later process" if settings.later_repeats else ""
    return f"{settings.repeats}{later}" if settings.repeats else ""


def _fleet(comparison: Comparison) -> str:
    """How many GPUs of how many hosts measured; empty where it was not a fleet."""
    if not comparison.gpus:
        return ""
    hosts = Counter(use.gpu.host for use in comparison.gpus)
    text = f"{figures.count(len(comparison.gpus), 'GPU')} of {figures.count(len(hosts), 'host')}"
    shared = [host for host, gpus in hosts.items() if gpus > 1]
    return text + (f"; those of {', '.join(shared)} measured at the same time" if shared else "")


def _readings(state: DeviceState) -> list[tuple[str, str]]:
    clocks = [("multiprocessors", state.sm_clock_mhz), ("memory", state.memory_clock_mhz)]
    measured = [f"{name} {figures.between(clock.smallest, clock.largest, 'MHz')}" for name, clock in clocks if clock]
    power, heat = state.power_w, state.temperature_c
    return [
        ("Clocks while measuring", ", ".join(measured)),
        ("Power while measuring", figures.between(power.smallest, power.largest, "W") if power else ""),
        ("Temperature while measuring", figures.between(heat.smallest, heat.largest, "°C") if heat else ""),
    ]


def _device(run: RunRecord) -> str:
    device = run.device
    multiprocessors = f", {device.sm_count} multiprocessors" if device.sm_count else ""
    driver = f", driver {device.driver}" if device.driver else ""
    datasheet = f", datasheet {figures.gbps(device.datasheet_gbps)} GB/s" if device.datasheet_gbps else ""
    return f"{device.name} (profile {device.profile}, {device.architecture}{multiprocessors}){driver}{datasheet}"


def _clocks(run: RunRecord) -> str:
    device = run.device
    parts = [
        f"multiprocessors {device.sm_clock_mhz} MHz" if device.sm_clock_mhz else "",
        f"memory {device.memory_clock_mhz} MHz" if device.memory_clock_mhz else "",
        f"power limit {device.power_limit_w:.0f} W" if device.power_limit_w else "",
    ]
    return ", ".join(part for part in parts if part)
