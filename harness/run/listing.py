"""What is known and available here: implementations, suites, devices."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness import devices
from harness.cases.suites import SUITES
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import FEATURES, PLAIN
from harness.errors import UsageError
from harness.results.settings import DEFAULT_BASELINE
from harness.run.invocation import Invocation
from harness.run.plan import select


def show(subject: str, impl_files: tuple[Path, ...], console: Console) -> None:
    """Print the list of a subject, such as `impls`; raises UsageError for a subject that has none."""
    lists = {"impls": _impls, "suites": _suites, "variants": _variants, "devices": _devices}
    if subject not in lists:
        raise UsageError(f"list {subject}: not one of {', '.join(lists)}")
    console.print(lists[subject](impl_files))


def _impls(impl_files: tuple[Path, ...]) -> Table:
    from harness.run.session import inventory

    table = Table("implementation", "here", "what it is", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # an address that is cut off helps nobody
    known = inventory(Invocation(impl_files=impl_files)).implementations
    run_by_default = select(known, None, None, DEFAULT_BASELINE, tuple(map(str, impl_files)))
    for item in (item for item in known if not item.name.endswith(WITH_TORCH)):
        where = "" if item in run_by_default else ", run where named" if item.on_request else ", with --impls all"
        availability = item.missing or f"yes{where}"
        _add(table, item.name, availability, item.summary)
    return table


def _suites(_: tuple[Path, ...]) -> Table:
    table = Table("suite", "shapes", "variants", "what it is", box=None, pad_edge=False)
    for suite in SUITES.values():
        variants = "each its own" if suite.cases else suite.variants
        _add(table, suite.name, str(len(suite.shapes)), variants, suite.description)
    return table


def _variants(_: tuple[Path, ...]) -> Table:
    table = Table("--variant", "what its backward does", box=None, pad_edge=False)
    _add(table, PLAIN, "dx = J(dy), the gradient of the norm alone")
    for feature, meaning in FEATURES.items():
        _add(table, feature, meaning)
    return table


def _devices(_: tuple[Path, ...]) -> Table:
    table = Table("--device", "device", "datasheet GB/s", "last-level cache", box=None, pad_edge=False)
    present = {devices.detect(facts).name: facts.name for facts in devices.read_available()}
    for profile in devices.PROFILES:
        mark = f"{profile.title} (here)" if profile.name in present else profile.title
        bandwidth = f"{profile.datasheet_gbps:g}" if profile.datasheet_gbps else "-"
        _add(table, profile.name, mark, bandwidth, f"{profile.last_level_bytes / 2**20:g} MiB")
    for name, title in present.items():
        if name not in {profile.name for profile in devices.PROFILES}:
            _add(table, name, f"{title} (here, no datasheet)", "-", "-")
    return table


def _add(table: Table, *cells: str) -> None:
    """Add a row of plain texts: what stands in brackets, as in an install line, is no markup."""
    table.add_row(*map(escape, cells))
