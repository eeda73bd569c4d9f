"""The conditions of a run: the device and its state, libraries, settings, and the time by stage."""

from __future__ import annotations

from harness.analysis.comparison import Comparison
from harness.analysis.device_state import DeviceState
from harness.records.contexts import COLD
from harness.records.run_records import EndRecord, RunRecord
from harness.records.settings import Settings
from reports import figures
from reports.markdown_writer import code, escape
from reports.parts import provenance, yardsticks
from reports.table import Table, left, table

FLUSHES = {
    "clean": "clean (cold cache: write a buffer, then read another)",
    "dirty": "dirty (cold cache, with unwritten lines of a write-only flush)",
    "none": "none (warm cache)",
}
NO_SELFTEST = "unknown, as no self-test was made"


def conditions(comparison: Comparison) -> list[tuple[str, str]]:
    """The conditions of the run as names and values; unknown ones are left out."""
    run = comparison.run
    items = [
        ("Device", _device(run)),
        ("GPUs", provenance.fleet(comparison)),
        ("Clocks at the start", _clocks(run)),
        *_readings(comparison.state),
        ("Date", run.started_at),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in sorted(run.libraries.items()))),
        ("Version", _version(run)),
        ("Revision", run.revision or ""),
        ("Seed", str(run.settings.seed)),
        ("Inputs drawn a case", str(run.settings.seeds) if run.settings.seeds > 1 else ""),
        ("Runs a case for its bits", _repeats(run.settings)),
        ("Suite", run.settings.suite or ""),
    ]
    if comparison.timed:
        items += [("Context", "" if comparison.context == COLD else comparison.context)]
        items += [
            ("Cache flush", FLUSHES[run.settings.flush]),
            ("Blocks per case", yardsticks.blocks(comparison.cases)),
        ]
        items += [("A/A band", yardsticks.aa_bands(comparison.cases))]
        items += [("Engine's own error", "" if comparison.budget else NO_SELFTEST)]
    items += [("Time", time_spent(comparison.end))]
    return [(name, value) for name, value in items if value]


def _version(run: RunRecord) -> str:
    return f"normbwd {run.normbwd_version}, engine {run.engine_version}" if run.normbwd_version else ""


def _repeats(settings: Settings) -> str:
    later = f"; {settings.later_repeats} in each later process" if settings.later_repeats else ""
    return f"{settings.repeats}{later}" if settings.repeats else ""


def conditions_list(comparison: Comparison) -> str:
    """The conditions of the run and its command as a list of markdown."""
    lines = [f"- {name}: {escape(value)}" for name, value in conditions(comparison)]
    lines.append(f"- Command: {code(figures.one_line(comparison.run.command, 1000))}")
    return "\n".join(lines)


def gpus(comparison: Comparison) -> Table:
    """The GPUs of a fleet, a line each."""
    rows = [
        [
            str(use.gpu.number),
            use.gpu.host,
            use.gpu.visible or figures.NOTHING,
            use.gpu.uuid or figures.NOTHING,
            str(use.measured),
            provenance.versions_text(use.gpu.versions) or figures.NOTHING,
        ]
        for use in comparison.gpus
    ]
    return table(["GPU", *left("host", "there", "uuid"), "cases", *left("other versions")], rows)


def _readings(state: DeviceState) -> list[tuple[str, str]]:
    clocks = [("multiprocessors", state.sm_clock_mhz), ("memory", state.memory_clock_mhz)]
    measured = [f"{name} {figures.between(clock.smallest, clock.largest, 'MHz')}" for name, clock in clocks if clock]
    power, heat = state.power_w, state.temperature_c
    return [
        ("Clocks while measuring", ", ".join(measured)),
        ("Power while measuring", figures.between(power.smallest, power.largest, "W") if power else ""),
        ("Temperature while measuring", figures.between(heat.smallest, heat.largest, "°C") if heat else ""),
    ]


def time_spent(end: EndRecord | None) -> str:
    """How long the run took, and its stages from the longest; those that took no time are left out."""
    if end is None:
        return ""
    stages = sorted(end.stages_s.items(), key=lambda stage: -stage[1])
    parts = [f"{name.replace('_', ' ')} {figures.seconds(spent)}" for name, spent in stages if spent >= 0.5]
    return figures.seconds(end.wall_s) + (f", of which {', '.join(parts)}" if parts else "")


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
