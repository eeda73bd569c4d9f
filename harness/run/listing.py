"""What is known and available here: implementations, suites, variants, contexts, devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.cases.suites import SUITES
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import FEATURES, PLAIN
from harness.defaults import BASELINE
from harness.devices import profiles
from harness.devices.facts import has_driver, read_available, read_facts
from harness.errors import UsageError
from harness.grouping import grouped
from harness.records.contexts import MEANINGS
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.run.invocation import Invocation
from harness.run.plan import select

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_WIDTH = 120  # of a table in a file or a pipe; a line that is to be copied is never wrapped


@dataclass(frozen=True)
class ListedImpl:
    """An implementation: whether it is here, and if not why; and when `bench` runs it."""

    name: str
    here: bool
    runs: Literal["by default", "with --impls all", "where named"]
    summary: str
    missing: Reason | None
    libraries: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class ListedSuite:
    """A suite, its shapes as ROWSxCOLS; without `variants` each of its cases has its own."""

    name: str
    shapes: tuple[str, ...]
    variants: str | None
    summary: str


@dataclass(frozen=True)
class ListedDevice:
    """A device that `--device` takes; one without a datasheet is known because it is here."""

    name: str
    title: str
    here: bool
    datasheet_gbps: float | None = None
    last_level_bytes: int | None = None


@dataclass(frozen=True)
class Listing:
    """What was asked for; variants and contexts have what they mean."""

    schema_version: Literal[1] = 1
    impls: tuple[ListedImpl, ...] = ()
    suites: tuple[ListedSuite, ...] = ()
    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    contexts: Mapping[str, str] = field(default_factory=dict[str, str])
    devices: tuple[ListedDevice, ...] = ()


def listing(subject: str, impl_files: tuple[Path, ...] = ()) -> Listing:
    """The list of a subject, such as `impls`; raises UsageError for a subject that has none."""
    match subject:
        case "impls":
            return Listing(impls=_impls(impl_files))
        case "suites":
            return Listing(suites=tuple(_suites()))
        case "variants":
            return Listing(variants={PLAIN: "dx = J(dy), the gradient of the norm alone", **FEATURES})
        case "contexts":
            return Listing(contexts=MEANINGS)
        case "devices":
            return Listing(devices=tuple(_devices()))
        case _:
            raise UsageError(f"list {subject}: not one of impls, suites, variants, contexts, devices")


def _impls(impl_files: tuple[Path, ...]) -> tuple[ListedImpl, ...]:
    from harness.run.session import inventory

    known = inventory(Invocation(impl_files=impl_files), measures=False).implementations
    run_by_default = select(known, None, None, BASELINE, tuple(map(str, impl_files)))
    return tuple(
        ListedImpl(
            item.name,
            item.missing is None,
            "by default" if item in run_by_default else "where named" if item.on_request else "with --impls all",
            f"{item.summary} A row apart: {item.outside}." if item.outside else item.summary,
            item.missing,
            item.libraries,
        )
        for item in known
        if not item.name.endswith(WITH_TORCH)
    )


def _suites() -> Iterator[ListedSuite]:
    for suite in SUITES.values():
        shapes = tuple(f"{rows}x{cols}" for rows, cols in suite.shapes)
        yield ListedSuite(suite.name, shapes, None if suite.cases else suite.variants, suite.description)


def _devices() -> Iterator[ListedDevice]:
    available = read_available() if has_driver() else [read_facts("cpu")]
    present = {profiles.detect(facts).name: facts.name for facts in available}
    for profile in profiles.PROFILES:
        here = profile.name in present
        yield ListedDevice(profile.name, profile.title, here, profile.datasheet_gbps, profile.last_level_bytes)
    for name in present.keys() - {profile.name for profile in profiles.PROFILES}:
        yield ListedDevice(name, present[name], True)


def show(listed: Listing, console: Console) -> None:
    """Print a list; a table is at most as wide as a terminal, and elsewhere as PIPED_WIDTH."""
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for part in _parts(listed):  # markup: what stands in brackets, as in an install line, is none
        console.print(part, soft_wrap=isinstance(part, str), markup=False, highlight=False)


def _parts(listed: Listing) -> Iterator[Table | str]:
    if listed.impls:
        yield from _impl_parts(listed.impls)
    if listed.suites:
        rows = (
            (each.name, str(len(each.shapes)), each.variants or "each its own", each.summary) for each in listed.suites
        )
        yield _table(rows, "suite", "shapes", "variants", "what it is")
    if listed.variants:
        yield _table(listed.variants.items(), "--variant", "what its backward does")
    if listed.contexts:
        yield _table(listed.contexts.items(), "--context", "what is timed")
    if listed.devices:
        rows = (
            (
                each.name,
                each.title
                + (f" (here{'' if each.last_level_bytes is not None else ', no datasheet'})" if each.here else ""),
                f"{each.datasheet_gbps:g}" if each.datasheet_gbps else "-",
                "-" if each.last_level_bytes is None else f"{each.last_level_bytes / 2**20:g} MiB",
            )
            for each in listed.devices
        )
        yield _table(rows, "--device", "device", "datasheet GB/s", "last-level cache")


def _impl_parts(impls: tuple[ListedImpl, ...]) -> Iterator[Table | str]:
    absent = grouped((item.missing, item.name) for item in impls if item.missing)
    shown = {"by default": "yes", "where named": "yes, run where named", "with --impls all": "yes, with --impls all"}
    rows = ((item.name, shown[item.runs] if item.here else "no", item.summary) for item in impls)
    yield _table(rows, "implementation", "here", "what it is")
    for why, names in absent.items():
        yield f"\n{', '.join(names)}: {sentence(why.model_copy(update={'parts': ()}))}"
        yield from (f"    {sentence(command)}" for command in why.parts)  # on a line of its own, to be copied


def _table(rows: Iterable[tuple[str, ...]], *heads: str) -> Table:
    from rich.table import Table

    table = Table(*heads, box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*row)
    return table
