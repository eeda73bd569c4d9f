"""Sentences that several formats share: the headline, the conditions of a run, what was not run."""

from __future__ import annotations

from collections.abc import Iterable

from harness.results import RunRecord
from reports import figures
from reports.comparison import CaseComparison, Comparison
from reports.entries import Entry

FLUSHES = {
    "clean": "clean (cold cache: write a buffer, then read another)",
    "dirty": "dirty (cold cache, with unwritten lines of a write-only flush)",
    "none": "none (warm cache)",
}


def headline(comparison: Comparison, impl: str | None = None) -> str:
    """Who is fastest in how many cases and by how much over the baseline; of `impl`, or of whoever wins most."""
    if not comparison.timed:
        return _verified(comparison)
    summary = comparison.summary
    wins = next((wins for wins in summary.wins if impl is None or wins.impl == impl), None)
    subject = wins.label if wins else impl
    if subject is None:
        return f"No implementation could be ranked in {figures.count(summary.cases, 'case')}."
    alone, tied = (len(wins.alone), len(wins.tied)) if wins else (0, 0)
    text = f"{subject} is fastest in {alone} of {figures.count(summary.cases, 'case')}"
    text += f" and tied for fastest in {tied} more." if tied else "."
    return f"{text} {geomeans(comparison, wins.impl if wins else subject)}".rstrip()


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
        f"({figures.one_line(failure.reason)}): {', '.join(failure.cases)}"
        for failure in comparison.summary.failures
    ]


def not_run(entries: Iterable[Entry]) -> str | None:
    """One line that names what is missing or unsupported and why, or None."""
    parts = [f"{entry.impl} ({entry.status}: {figures.one_line(entry.reason, 80)})" for entry in entries]
    return f"Not run: {', '.join(parts)}." if parts else None


def not_run_anywhere(comparison: Comparison) -> str | None:
    """One line for all cases: what is missing or unsupported, why, and in how many cases, or None."""
    counts: dict[str, int] = {}
    for case in comparison.cases:
        for entry in case.of("absent"):
            why = f"{entry.impl} ({entry.status}: {figures.one_line(entry.reason, 80)}"
            counts[why] = counts.get(why, 0) + 1
    parts = [f"{why}; {figures.count(number, 'case')})" for why, number in counts.items()]
    return f"Not run: {', '.join(parts)}." if parts else None


def caveats(comparison: Comparison) -> list[str]:
    """What a reader must know before any figure: an unfinished run, a baseline that is not there, a quick run."""
    lines = [comparison.unfinished] if comparison.unfinished else []
    ranked = sum(bool(case.entry(comparison.baseline) in case.ranked) for case in comparison.cases)
    if comparison.timed and ranked < len(comparison.cases):
        lines.append(
            f"The baseline {comparison.baseline} has a time in {ranked} of {len(comparison.cases)} cases; "
            "the others have no speedup."
        )
    if comparison.timed and comparison.run.settings.quick:
        lines.append("A quick run: few blocks, wide intervals.")
    return lines


def conditions(comparison: Comparison) -> list[tuple[str, str]]:
    """Under what the run was made, as names and values; what is unknown is left out."""
    run = comparison.run
    items = [
        ("Device", _device(run)),
        ("Clocks at the start", _clocks(run)),
        ("Date", run.started_at),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in sorted(run.libraries.items()))),
        ("Revision", run.revision or ""),
        ("Seed", str(run.settings.seed)),
        ("Suite", run.settings.suite or ""),
    ]
    if comparison.timed:
        items += [("Cache flush", FLUSHES[run.settings.flush]), ("Blocks per case", blocks(comparison.cases))]
        items += [("A/A band", aa_bands(comparison.cases))]
    return [(name, value) for name, value in items if value]


def blocks(cases: Iterable[CaseComparison]) -> str:
    """How many blocks the cases were timed in, and how many were voided."""
    cases = list(cases)
    counts = [entry.blocks for case in cases for entry in case.ranked]
    if not counts:
        return ""
    text = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    voided: dict[str, int] = {}
    for case in cases:
        for cause, number in case.voided.items():
            voided[cause] = voided.get(cause, 0) + number
    causes = ", ".join(f"{number} {cause}" for cause, number in sorted(voided.items()) if number)
    return f"{text} (voided: {causes})" if causes else text


def aa_bands(cases: Iterable[CaseComparison]) -> str:
    """The smallest and largest A/A band of the cases, and how many have none."""
    cases = list(cases)
    bands = sorted(case.aa_band for case in cases if case.aa_band is not None)
    missing = len(cases) - len(bands)
    if not bands:
        return "none was measured, so nothing is called faster or slower"
    text = figures.band(bands[0])
    if len(bands) > 1 and bands[0] != bands[-1]:
        text += f" to {figures.band(bands[-1])}"
    return f"{text}; none in {figures.count(missing, 'case')}" if missing else text


def _verified(comparison: Comparison) -> str:
    entries = [entry for case in comparison.cases for entry in case.entries if entry.standing != "absent"]
    passed = sum(entry.standing == "verified" for entry in entries)
    doubted = sum(entry.status == "nondeterministic" for entry in entries)
    text = f"{passed} of {figures.count(len(entries), 'check')} passed; nothing was timed"
    return f"{text}; {doubted} of them nondeterministic." if doubted else f"{text}."


def _device(run: RunRecord) -> str:
    device = run.device
    parts = [f"{device.name} (profile {device.profile}, {device.architecture}"]
    parts.append(f", {device.sm_count} multiprocessors)" if device.sm_count else ")")
    if device.driver:
        parts.append(f", driver {device.driver}")
    if device.datasheet_gbps:
        parts.append(f", datasheet {figures.gbps(device.datasheet_gbps)} GB/s")
    return "".join(parts)


def _clocks(run: RunRecord) -> str:
    device = run.device
    parts = [
        f"multiprocessors {device.sm_clock_mhz} MHz" if device.sm_clock_mhz else "",
        f"memory {device.memory_clock_mhz} MHz" if device.memory_clock_mhz else "",
        f"power limit {device.power_limit_w:.0f} W" if device.power_limit_w else "",
    ]
    return ", ".join(part for part in parts if part)
