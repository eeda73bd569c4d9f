"""The full report: every case with everything known of it, as GitHub-flavoured markdown."""

from __future__ import annotations

from collections.abc import Sequence

from harness.cases.traffic import moved_bytes
from harness.results.statistics import PROCESS_BAND
from reports import figures
from reports.data.checks import TENSORS
from reports.data.comparison import CaseComparison, Comparison
from reports.data.entries import Entry
from reports.formats.markdown_sections import write_table
from reports.parts import conditions, kernel_table, selftest, wording
from reports.parts.geomeans import geomeans
from reports.parts.markdown_table import escape, table

KERNELS = "Kernels in launch order, each with its median us in a separate pass"
Column = tuple[str, list[str]]  # its head, and a cell an entry


def render(comparison: Comparison) -> str:
    """The report as markdown text."""
    run = comparison.run
    parts = [
        f"# Norm backward on {run.device.name}",
        _summary(comparison),
        "## Conditions",
        conditions_list(comparison),
    ]
    parts += [selftest.details(comparison.selftests), _how_to_read(comparison)]
    parts += [_case(comparison, case) for case in comparison.cases]
    return "\n\n".join(part for part in parts if part) + "\n"


def geomean_table(comparison: Comparison) -> str:
    """The geometric means with their coverage."""
    return write_table(geomeans(comparison))


def wins_table(comparison: Comparison) -> str:
    """Who is fastest in which cases."""
    heads = ["impl", "fastest in", "tied for fastest in", "in which"]
    rows = [
        [
            wins.label,
            str(len(wins.alone)),
            str(len(wins.tied)),
            ", ".join([*wins.alone, *(f"{key} (tie)" for key in wins.tied)]),
        ]
        for wins in comparison.summary.wins
    ]
    return table(heads, rows)


def _summary(comparison: Comparison) -> str:
    parts = ["## Summary", *(f"**{caveat}**" for caveat in wording.caveats(comparison)), wording.headline(comparison)]
    if comparison.timed:
        parts += [geomean_table(comparison), wording.error_budget(comparison), wins_table(comparison)]
        parts += [kernel_table.agreement(comparison)]
    failures = wording.failures(comparison)
    if failures:
        parts.append("Did not pass:\n\n" + "\n".join(f"- {escape(failure)}" for failure in failures))
    return "\n\n".join(part for part in parts if part)


def conditions_list(comparison: Comparison) -> str:
    """The conditions of the run as a list."""
    lines = [f"- {name}: {value}" for name, value in conditions.conditions(comparison)]
    lines.append(f"- Command: `{figures.one_line(comparison.run.command, 1000)}`")
    return "\n".join(lines)


def _how_to_read(comparison: Comparison) -> str:
    lines = [
        "- rho: error against float64 in units of what one final rounding costs; 1.00 is as good as the dtype allows; "
        f"{figures.LEGEND}.",
        "- deterministic: `bitwise n=50` is 50 runs with the same bits, so at 95 % fewer than 3 in 50 runs differ.",
        "- extra memory: device memory beyond inputs and gradients.",
    ]
    if comparison.timed:
        lines = [
            "- us: median over blocks of the backward alone; spread: half the inter-quartile range over the median.",
            f"- speedup vs {comparison.baseline}: median of the ratios inside blocks, with its 95 % interval "
            f"{_within(comparison)}; above 1 is faster. `same`: the interval does not clear the A/A band, which is "
            f"what the engine finds between the run's baseline and itself, in one process at least "
            f"{figures.band(PROCESS_BAND)}.",
            "- add: an elementwise add of x and dy, the same traffic without a reduction: the practical floor. "
            "% of add: its time over the row's. GB/s: the bytes any backward must move, over the time. % of copy: that "
            "over what a large copy reaches on this device.",
            *lines,
            "- Rows that are wrong, unproven, untimed or crashed do not rank.",
        ]
    return "## How to read\n\n" + "\n".join(lines)


def _within(comparison: Comparison) -> str:
    processes = comparison.run.settings.processes
    return f"across {processes} processes" if processes > 1 else "within this process"


def _case(comparison: Comparison, case: CaseComparison) -> str:
    facts = [f"{figures.size(moved_bytes(case.case))} to move"]
    if comparison.timed:
        facts += [f"add {figures.microseconds(case.add_us)} us", f"A/A band {figures.band(case.aa_band)}"]
        facts += [f"blocks {wording.blocks([case])}"] if case.ranked else []
    shown = case.of("ranked", "unranked", "verified", *(() if comparison.timed else ("failed",)))
    notes = list(dict.fromkeys(note for entry in shown for note in _notes(entry)))
    columns = [column for column in _columns(comparison, shown, notes) if any(c != figures.NOTHING for c in column[1])]
    parts = [
        f"## {case.case.key}",
        "; ".join(facts) + ".",
        table([head for head, _ in columns], list(zip(*(cells for _, cells in columns), strict=True))),
        wording.error_budget(comparison),
        "\n".join(f"{number}. {escape(note)}" for number, note in enumerate(notes, start=1)),
        table(
            ["did not pass", "status", "reason"], [[e.impl, e.status, figures.one_line(e.reason)] for e in case.failed]
        ),
        escape(wording.not_run(case.of("absent")) or ""),
        _kernels(comparison, case),
    ]
    return "\n\n".join(part for part in parts if part)


def _columns(comparison: Comparison, entries: Sequence[Entry], notes: Sequence[str]) -> list[Column]:
    """All columns; one that holds nothing for any entry is then left out."""
    return [
        ("impl", [entry.label for entry in entries]),
        ("status", [figures.NOTHING if comparison.timed else entry.status for entry in entries]),
        ("us (median)", [_time(comparison, entry) for entry in entries]),
        ("± spread %", [figures.spread(entry.spread) for entry in entries]),
        (f"speedup vs {comparison.baseline} [95 %]", [_speedup(comparison, entry) for entry in entries]),
        ("GB/s", [figures.gbps(entry.bandwidth_gbps) for entry in entries]),
        ("% of add", [figures.percent(entry.percent_of_add) for entry in entries]),
        ("% of copy", [figures.percent(entry.percent_of_copy) for entry in entries]),
        ("% of datasheet", [figures.percent(entry.percent_of_datasheet) for entry in entries]),
        *[(f"rho {tensor}", [_rho(entry, tensor) for entry in entries]) for tensor in TENSORS],
        ("deterministic", [entry.checked.determinism for entry in entries]),
        ("extra memory", [figures.size(entry.peak_extra_bytes) for entry in entries]),
        ("kernels", [figures.NOTHING if entry.kernels is None else str(len(entry.kernels)) for entry in entries]),
        (
            "notes",
            [", ".join(str(notes.index(note) + 1) for note in _notes(entry)) or figures.NOTHING for entry in entries],
        ),
    ]


def _time(comparison: Comparison, entry: Entry) -> str:
    return "verified" if entry.standing == "verified" and comparison.timed else figures.microseconds(entry.median_us)


def _speedup(comparison: Comparison, entry: Entry) -> str:
    if entry.standing == "ranked" and entry.impl == comparison.baseline:
        return "base"
    same = " same" if entry.verdict == "same" else ""
    return figures.ratio_and_interval(entry.speedup) + same


def _rho(entry: Entry, tensor: str) -> str:
    error = entry.checked.errors.get(tensor)
    return figures.rho(error.rho, error.error_class) if error else figures.NOTHING


def _notes(entry: Entry) -> list[str]:
    notes = [figures.one_line(note, 400) for note in entry.notes]
    told = entry.standing in ("ranked", "failed")  # in the determinism column, or in the table of what did not pass
    return notes if told or not entry.reason else [*notes, figures.one_line(entry.reason, 400)]


def _kernels(comparison: Comparison, case: CaseComparison) -> str:
    found = kernel_table.case_table(case, comparison.budget)
    return f"<details><summary>{KERNELS}</summary>\n\n{found}\n\n</details>" if found else ""
