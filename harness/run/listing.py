"""What is known and available here: implementations, suites, devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness import devices
from harness.cases.suites import SUITES
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import FEATURES, PLAIN
from harness.defaults import BASELINE
from harness.errors import UsageError
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.run.invocation import Invocation
from harness.run.plan import select

PIPED_WIDTH = 120  # of a table in a file or a pipe; a line that is to be copied is never wrapped


def show(subject: str, impl_files: tuple[Path, ...], console: Console) -> None:
    """Print the list of a subject, such as `impls`; raises UsageError for a subject that has none.

    A table is at most as wide as a terminal, and elsewhere as PIPED_WIDTH.
    """
    lists = {"impls": _impls, "suites": _suites, "variants": _variants, "devices": _devices}
    if subject not in lists:
        raise UsageError(f"list {subject}: not one of {', '.join(lists)}")
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for part in lists[subject](impl_files):  # markup: what stands in brackets, as in an install line, is none
        console.print(part, soft_wrap=isinstance(part, str), markup=False, highlight=False)


def _impls(impl_files: tuple[Path, ...]) -> Iterator[Table | str]:
    from harness.run.session import inventory

    known = inventory(Invocation(impl_files=impl_files)).implementations
    run_by_default = select(known, None, None, BASELINE, tuple(map(str, impl_files)))
    absent: dict[Reason, list[str]] = {}
    table = Table("implementation", "here", "what it is", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for item in (item for item in known if not item.name.endswith(WITH_TORCH)):
        where = "" if item in run_by_default else ", run where named" if item.on_request else ", with --impls all"
        table.add_row(item.name, "no" if item.missing else f"yes{where}", item.summary)
        if item.missing:
            absent.setdefault(item.missing, []).append(item.name)
    yield table
    for why, names in absent.items():
        yield f"\n{', '.join(names)}: {sentence(why.model_copy(update={'parts': ()}))}"
        yield from (f"    {sentence(command)}" for command in why.parts)  # on a line of its own, to be copied


def _suites(_: tuple[Path, ...]) -> Iterator[Table]:
    table = Table("suite", "shapes", "variants", "what it is", box=None, pad_edge=False)
    for suite in SUITES.values():
        variants = "each its own" if suite.cases else suite.variants
        table.add_row(suite.name, str(len(suite.shapes)), variants, suite.description)
    yield table


def _variants(_: tuple[Path, ...]) -> Iterator[Table]:
    table = Table("--variant", "what its backward does", box=None, pad_edge=False)
    table.add_row(PLAIN, "dx = J(dy), the gradient of the norm alone")
    for feature, meaning in FEATURES.items():
        table.add_row(feature, meaning)
    yield table


def _devices(_: tuple[Path, ...]) -> Iterator[Table]:
    table = Table("--device", "device", "datasheet GB/s", "last-level cache", box=None, pad_edge=False)
    present = {devices.detect(facts).name: facts.name for facts in devices.read_available()}
    for profile in devices.PROFILES:
        mark = f"{profile.title} (here)" if profile.name in present else profile.title
        bandwidth = f"{profile.datasheet_gbps:g}" if profile.datasheet_gbps else "-"
        table.add_row(profile.name, mark, bandwidth, f"{profile.last_level_bytes / 2**20:g} MiB")
    for name, title in present.items():
        if name not in {profile.name for profile in devices.PROFILES}:
            table.add_row(name, f"{title} (here, no datasheet)", "-", "-")
    yield table
