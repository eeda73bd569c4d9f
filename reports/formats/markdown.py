"""The full report: every case with everything known of it, as GitHub-flavoured markdown."""

from __future__ import annotations

from harness.analysis.case_comparison import CaseComparison
from harness.analysis.comparison import Comparison
from harness.analysis.statistics import PROCESS_BAND
from harness.cases.traffic import moved_bytes
from reports import columns, figures
from reports.markdown_writer import details, escape, paragraphs, write_section, write_table
from reports.parts import answers, caveats, conditions, kernel_table, libraries, reasons, selftest, training_step
from reports.parts.geomeans import geomeans
from reports.table import left, table

KERNELS = "Kernels in launch order, each with its median us in a separate pass"


def render(comparison: Comparison) -> str:
    """The report as markdown text."""
    run = comparison.run
    parts = [
        f"# Norm backward on {escape(run.device.name)}",
        _summary(comparison),
        *(write_section(spent) if (spent := training_step.of_models(comparison)) else []),
        "## Conditions",
        conditions.conditions_list(comparison),
        write_table(conditions.gpus(comparison)),
    ]
    parts += [selftest.details(comparison.selftests), _how_to_read(comparison)]
    parts += [part for case in comparison.cases for part in _case(comparison, case)]
    parts.append(escape(reasons.not_run(comparison)))
    return paragraphs(parts)


def _summary(comparison: Comparison) -> str:
    warned = (f"**{escape(caveat)}**" for caveat in caveats.caveats(comparison))
    parts = ["## Summary", escape(answers.headline(comparison)), *warned]
    if comparison.timed:
        parts += write_section(libraries.section(comparison), 3)
        parts += [write_table(geomeans(comparison)), conditions.error_budget(comparison)]
        parts += [escape(kernel_table.agreement(comparison))]
        if (step := training_step.section(comparison)) is not None:
            parts += write_section(step)
    failures = reasons.failure_lines(comparison)
    if failures:
        parts.append("Did not pass:\n\n" + "\n".join(f"- {escape(failure)}" for failure in failures))
    return paragraphs(parts).rstrip()


def _how_to_read(comparison: Comparison) -> str:
    lines = [
        f"- {figures.RHO}; {figures.LEGEND}.",
        "- deterministic: after 50 runs with the same bits, fewer than 3 in 50 runs differ, at 95 %.",
        "- extra memory: beyond inputs and gradients, kept since before it was prepared or taken by a call.",
    ]
    if comparison.timed:
        lines = [
            "- us: median over blocks of the backward alone; spread: half the inter-quartile range over the median.",
            f"- speedup: over {escape(comparison.baseline)}, the median of the ratios inside blocks, with its 95 % "
            f"interval {_within(comparison)}; above 1 is faster. `same`: the interval does not clear the A/A band, "
            f"which is what the engine finds between the run's baseline and itself, in one process at least "
            f"{figures.band(PROCESS_BAND)}.",
            "- add: an elementwise add of x and dy: the same traffic without a reduction, the same cold cache before, "
            "and the last lines that it wrote in the cache after. It is no bound. % add: its time over the row's. "
            "Copy: the bytes any backward must move, at the rate of a large copy, nearly all of whose lines reach "
            "memory. GB/s: those bytes over the time; % copy: that over the rate of the copy. A dx that is no larger "
            "than the last cache need not leave it before the time ends.",
            *lines,
            "- Rows that are wrong, unproven, untimed or crashed do not rank.",
        ]
    return "## How to read\n\n" + "\n".join(lines)


def _within(comparison: Comparison) -> str:
    processes, gpus = comparison.run.settings.processes, len(comparison.gpus)
    on = f" on {gpus} GPUs, which holds the difference between GPUs too" if gpus > 1 else ""
    return f"across {processes} processes{on}" if processes > 1 else "within this process"


def _case(comparison: Comparison, case: CaseComparison) -> list[str]:
    facts = [f"{figures.size(moved_bytes(case.case))} to move"]
    if comparison.timed:
        facts += ["dx need not leave the cache"] if case.dx_stays else []
        facts += [conditions.add_and_copy(case), conditions.aa_band(case)]
        facts += [f"blocks {conditions.blocks([case])}"] if case.ranked else []
    failed = [
        [entry.impl, entry.status, figures.microseconds(entry.wrong_us), figures.one_line(entry.reason)]
        for entry in case.of("failed")
    ]
    heads = [*left("did not pass", "status"), "us, not ranked", *left("reason")]
    names = columns.MARKDOWN if comparison.timed else columns.MARKDOWN_UNTIMED
    notes = enumerate(columns.footnotes(comparison, case), start=1)
    return [
        f"## {escape(case.case.key)}",
        "; ".join(facts) + ".",
        write_table(columns.table_of(names, columns.passed(comparison, case))),
        conditions.error_budget(comparison),
        "\n".join(f"{number}. {escape(note)}" for number, note in notes),
        write_table(table(heads, failed).used()),
        write_table(training_step.of_case(comparison, case)) if comparison.contexts else "",
        details(KERNELS, kernel_table.case_table(case, comparison.budget)),
    ]
