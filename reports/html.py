"""The comparison as one page for a browser: no network, no server, sortable and filtered where it is read."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from harness.records import ErrorClass, TensorCheck
from harness.results import Results
from reports import conditions, figures, wording
from reports.checks import worst_error
from reports.comparison import CaseComparison, Comparison, compare
from reports.entries import Entry

TEMPLATE = "page.html"
FOLDER = Path(__file__).parent / "templates"
TENSORS = ("dx", "dweight", "dbias")


@dataclass(frozen=True)
class Cell:
    """What stands in a cell, and the number that the column is sorted by where it is not the text."""

    text: str
    key: float | str | None = None


@dataclass(frozen=True)
class Row:
    """One implementation on one case; `why` is what a reader may ask for: reason, notes and errors in full."""

    norm: str
    impl: str
    standing: str
    cells: tuple[Cell, ...]
    why: tuple[str, ...]


HEADS = (
    ("case", "text"),
    ("norm", "text"),
    ("rows", "number"),
    ("cols", "number"),
    ("impl", "text"),
    ("status", "text"),
    ("us", "number"),
    ("speedup [95 %]", "number"),
    ("verdict", "text"),
    ("GB/s", "number"),
    ("% of add", "number"),
    ("rho, worst", "number"),
    ("same bits", "text"),
)


def render(results: Results, baseline: str | None = None) -> str:
    """The page as HTML text, its plots in it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported where it is used: reports stay light

    comparison = compare(results, baseline)
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = rows(comparison)
    return environment.get_template(TEMPLATE).render(
        title=f"Norm backward on {comparison.run.device.name}",
        headline=wording.headline(comparison),
        caveats=wording.caveats(comparison),
        budget=wording.error_budget(comparison),
        heads=HEADS,
        rows=found,
        pictures=_pictures(results, comparison),
        norms=list(dict.fromkeys(row.norm for row in found)),
        impls=list(dict.fromkeys(row.impl for row in found)),
        baseline=comparison.baseline,
        timed=comparison.timed,
        means=comparison.summary.geomeans,
        plain_ratio=figures.plain_ratio,
        conditions=[(name, str(value)) for name, value in conditions.conditions(comparison)],
        command=comparison.run.command,
        legend=figures.LEGEND,
    )


def _pictures(results: Results, comparison: Comparison) -> list[tuple[str, str]]:
    """The plots by name, each as an address that holds it whole; the bars of every case would be too many."""
    from reports.plot_style import as_svg  # imports matplotlib: seconds
    from reports.plots import overall

    return [
        (name, f"data:image/svg+xml;base64,{b64encode(as_svg(figure).encode()).decode()}")
        for name, figure in overall(results, comparison)
    ]


def rows(comparison: Comparison) -> list[Row]:
    """A row for every implementation on every case, in the order of the comparison."""
    return [_row(comparison, case, entry) for case in comparison.cases for entry in case.entries]


def _row(comparison: Comparison, case: CaseComparison, entry: Entry) -> Row:
    is_base = entry.standing == "ranked" and entry.impl == comparison.baseline
    speedup = entry.speedup
    worst, error_class = _worst(entry)
    cells = (
        Cell(case.case.key),
        Cell(case.case.norm),
        Cell(str(case.case.rows), case.case.rows),
        Cell(str(case.case.cols), case.case.cols),
        Cell(entry.label),
        Cell(entry.status),
        Cell(figures.microseconds(entry.median_us), entry.median_us),
        Cell("base", 1.0) if is_base else Cell(figures.ratio_and_interval(speedup), speedup.value if speedup else None),
        Cell(entry.verdict or figures.NOTHING),
        Cell(figures.gbps(entry.bandwidth_gbps), entry.bandwidth_gbps),
        Cell(figures.percent(entry.percent_of_add), entry.percent_of_add),
        Cell(figures.rho(worst, error_class), worst),
        Cell(entry.checked.bits),
    )
    return Row(case.case.norm, entry.impl, entry.standing, cells, tuple(_why(entry)))


def _worst(entry: Entry) -> tuple[float | None, ErrorClass]:
    """The largest rho of the gradients, and the class of the worst."""
    errors = list(entry.checked.errors.values())
    return (worst_error(errors).rho, entry.checked.error_class or "exact") if errors else (None, "exact")


def _why(entry: Entry) -> list[str]:
    errors = [_error(name, error) for name in TENSORS if (error := entry.checked.errors.get(name))]
    reason = [entry.reason] if entry.reason else []
    bits = [f"determinism: {entry.checked.determinism}"] if entry.checked.repeats else []
    return [*reason, *errors, *bits, *entry.notes]


def _error(name: str, error: TensorCheck) -> str:
    return f"{name}: rho {figures.rho(error.rho)}, {error.error_class}, relative rms {error.relative_rms:.2e}"
