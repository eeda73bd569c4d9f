"""The report as one page for a browser: no network, no server, sortable and filtered where it is read."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from harness.analysis.case_comparison import Entry
from harness.analysis.comparison import Comparison
from harness.analysis.history import histories
from harness.analysis.outcomes import join_outcomes, norms
from harness.cases import Norm
from harness.records.reason_texts import sentence
from reports import columns, figures
from reports.columns import Row
from reports.formats import history, verification
from reports.kernel_names import display_names
from reports.parts import answers, caveats, conditions, libraries, training_step
from reports.parts.reasons import details
from reports.table import Cell, Table, left

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[1] / "templates"
MOST_PICTURES = 6  # within the page, each of which takes a second
HAVE_REASONS = ("failed", "absent", "unranked")  # the standings of which the reason is asked for
# The columns that a row is filtered by. Cases stand under one head or another, by what tells them apart.
FILTERED = {"norm": "norm", "impl": "impl", "case": "case", "inputs": "case", "kind": "case"}


@dataclass(frozen=True)
class Picture:
    """A plot: its name, what it shows, and an address that holds it whole."""

    name: str
    title: str
    address: str


def render(runs: Sequence[Comparison]) -> str:
    """The page as HTML text, its plots in it: a file compared, several as a history; or verifications, without times.

    Raises UsageError where some files hold times and others none, and for verifications of different devices.
    """
    if not any(comparison.timed for comparison in runs):
        return _verification(runs)
    return _comparison(runs[0]) if len(runs) == 1 else _history(runs)


def fill(template: str, **values: Any) -> str:
    """A template as text, with these values and the marks of rows."""
    return _environment().get_template(template).render(marks=_marks, **values)


def results_table(comparison: Comparison) -> Table:
    """A row for every implementation on every case; its last cell has reason, errors, kernels and notes in full."""
    rows = [row for row in columns.rows_of(comparison) if row.entry]
    filled = columns.table_of(columns.HTML, rows)
    why = [
        Cell(
            "reason" if entry.standing in HAVE_REASONS else "more",
            why=_why(entry),
            about={"impl": entry.impl, "standing": entry.standing},
        )
        for row in rows
        if (entry := row.entry)
    ]
    cells = tuple((*cells, more) for cells, more in zip(filled.rows, why, strict=True))
    return replace(filled, headings=(*filled.headings, *left("why")), rows=cells)


def _comparison(comparison: Comparison) -> str:
    from reports.plots.draw import draw  # imports matplotlib: seconds

    drawn = _pictures(islice(draw(comparison), MOST_PICTURES))
    return fill(
        "comparison.html",
        title=f"Norm backward on {comparison.run.device.name}",
        headline=answers.headline(comparison),
        caveats=caveats.caveats(comparison),
        conditions=[_conditions(comparison)],
        libraries=libraries.section(comparison),
        sections=list(filter(None, (training_step.of_models(comparison), training_step.section(comparison)))),
        baseline=comparison.baseline,
        speedups=[picture for picture in drawn if picture.name.startswith("speedup")],
        pictures=[picture for picture in drawn if not picture.name.startswith("speedup")],
        cases=columns.table_of(columns.HTML_CASES, [Row(comparison, case, case.fastest) for case in comparison.cases]),
        results=results_table(comparison),
        legend=f"{figures.RHO}; {figures.LEGEND}",
        budget=conditions.error_budget(comparison),
        norms=list(dict.fromkeys(case.case.norm for case in comparison.cases)),
        impls=list(dict.fromkeys(entry.impl for case in comparison.cases for entry in case.entries)),
        absent=True,
        example="8192x",
    )


def _history(runs: Sequence[Comparison]) -> str:
    """The changes of every device's runs, with a plot a norm, and the conditions of the last run of each."""
    from reports.plots.trend import trend  # imports matplotlib: seconds

    cases = history.checked(runs)
    of_devices = histories(runs)
    return fill(
        "history.html",
        title="Norm backward over time",
        headline=" ".join(map(history.headline, of_devices)),
        caveats=[],
        about=history.ABOUT_CHANGES,
        histories=[
            {
                "device": each.runs[0].run.device.name,
                "changes": history.changes_table(each),
                "runs": history.runs_table(each),
                "pictures": _pictures((n, figure) for n in get_args(Norm) if (figure := trend(each, n))),
            }
            for each in of_devices
        ],
        conditions=[_conditions(each.runs[-1]) for each in of_devices],
        norms=list(dict.fromkeys(case.norm for case in cases)),
        impls=list(dict.fromkeys(series.impl for each in of_devices for series in each.series)),
        example="8192x",
    )


def _verification(runs: Sequence[Comparison]) -> str:
    """The sections of the markdown of a verification, with what is behind every outcome on demand."""
    from reports.plots.precision import precision  # imports matplotlib: seconds

    outcomes = join_outcomes(runs)
    plots = precision(outcomes, runs[-1].run)
    return fill(
        "verification.html",
        title=verification.title(runs),
        headline=answers.verified(outcomes),
        caveats=[caveat for comparison in runs for caveat in caveats.caveats(comparison)],
        conditions=[_conditions(comparison) for comparison in runs],
        sections=verification.sections(runs, outcomes),
        chance=verification.chance(outcomes),
        pictures=_pictures((f"precision-{norm}", figure) for norm, figure in plots.items()),
        norms=norms(outcomes),
        impls=list(dict.fromkeys(outcome.impl for outcome in outcomes)),
        example="nan-x",
    )


def _marks(table: Table, row: Sequence[Cell]) -> dict[str, str]:
    """The attributes by which a row is filtered."""
    named = zip(table.heads, row, strict=True)
    filters = {FILTERED[head]: cell.text for head, cell in named if head in FILTERED}
    if "norm" not in filters and (norm := re.split(r"\W", filters.get("case", ""))[0]) in get_args(Norm):
        filters["norm"] = norm  # which the name of a case begins with
    return {f"data-{name}": text for name, text in (filters | dict(row[-1].about)).items()}


def _why(entry: Entry) -> tuple[str, ...]:
    kernels = entry.kernels or ()
    names = display_names([kernel.name for kernel in kernels])
    parts = [f"{name} {figures.microseconds(kernel.median_us)} us" for name, kernel in zip(names, kernels, strict=True)]
    in_order = [f"kernels: {', '.join(parts)}"] if parts else []
    return (*details(entry.reason, entry.checked), *in_order, *map(sentence, entry.notes))


def _pictures(plots: Iterable[tuple[str, Figure]]) -> list[Picture]:
    """Plots for a page; their titles are without the device and the date, which the page says once."""
    from reports.plots.style import as_svg  # imports matplotlib: seconds

    drawn: list[Picture] = []
    for name, figure in plots:
        _, *what, _ = figure.get_suptitle().split(", ")
        title = ", ".join(what)
        svg = b64encode(as_svg(figure).encode()).decode()
        drawn.append(Picture(name, title[:1].upper() + title[1:], f"data:image/svg+xml;base64,{svg}"))
    return drawn


def _conditions(comparison: Comparison) -> list[tuple[str, str]]:
    return [*conditions.conditions(comparison), ("Command", f"`{comparison.run.command}`")]


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # imported where it is used: reports stay light

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    # The name of a place on the page.
    environment.filters["anchor"] = lambda title: re.sub(r"\W+", "-", str(title).lower())
    return environment


def _code(text: str) -> Markup:
    """Text in which what stands between backticks is code, as in markdown."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # escaped first: nothing else is markup
