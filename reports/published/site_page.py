"""The reader's page, site/index.html: every published figure in one file, which needs no network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from harness.analysis.comparison import Comparison
from harness.analysis.outcomes import Outcome, join_outcomes, norms, tried
from harness.records.published_plan import PACKED_SUFFIX, Plan
from harness.records.schema import FAILED
from reports import figures
from reports.formats.html import fill
from reports.formats.verification import summary
from reports.published.run_facts import COLUMNS, run_facts
from reports.published.sources import Source, by_device
from reports.table import Table

TEMPLATE = "site.html"
FAILS_ON = "fails on"
SHARED = (str, list, tuple)
SHORT = 4  # characters: as long as a place


def render(sources: Sequence[Source], plan: Plan) -> str:
    """The page as HTML text, the same for the same files."""
    from markupsafe import Markup

    data = _data(sources, plan, [run_facts(source) for source in sources if source.is_ranking])
    text = _as_json(shared_once(data)).replace("<", "\\u003c")
    devices = " and ".join(device["name"] for device in data["devices"])
    return fill(TEMPLATE, data=Markup(text), devices=devices)  # JSON in which no tag can begin


def shared_once(data: Any) -> dict[str, Any]:
    """The data without the texts and lists that repeat: they lie in `shared`.

    In its place stands a number below zero, `~place`; the data have no other such numbers. site.js undoes it.
    """
    counts = Counter(_as_json(value) for value in _each(data) if isinstance(value, SHARED))
    repeated = [text for text, times in counts.most_common() if times > 1 and len(text) > SHORT]
    places = {text: ~place for place, text in enumerate(repeated)}

    def shorter(value: Any) -> Any:
        if isinstance(value, SHARED) and (place := places.get(_as_json(value))) is not None:
            return place
        if isinstance(value, dict):
            return {name: shorter(inner) for name, inner in value.items()}
        return [shorter(inner) for inner in value] if isinstance(value, list | tuple) else value

    return {"shared": [json.loads(text) for text in repeated], "data": shorter(data)}


def _each(value: Any) -> Iterator[Any]:
    """The value and all that is in it."""
    if isinstance(value, int | float) and value < 0:
        raise ValueError(f"{value} would be read as a place in `shared`")
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _each(inner)


def _as_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _data(sources: Sequence[Source], plan: Plan, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the page's script reads; `runs` are the data of the rankings."""
    devices = by_device(sources)
    return {
        "columns": COLUMNS,
        "failed": FAILED,
        "devices": [
            {
                "key": device,
                "name": files[0].device_name,
                "verified": _verified([file.comparison for file in files if not file.results.run.settings.timed]),
            }
            for device, files in devices.items()
        ],
        "colours": _colours(
            entry[0] for run in runs for group in run["groups"] for case in group["cases"] for entry in case["entries"]
        ),
        "published": [_published(source) for source in sources],
        "planned": {
            files[0].device_name: ", ".join(name for name in plan.runs if name not in {file.name for file in files})
            for files in devices.values()
        },
        "runs": list(runs),
    }


def _published(source: Source) -> dict[str, Any]:
    return {
        "device": source.device,
        "name": source.name,
        "about": source.about,
        "date": source.date,
        "age": source.mark,
        "file": f"results/{source.device}/{source.name}{PACKED_SUFFIX}",
        "pages": [f"results/{source.device}/{page}" for page in source.pages],
        "stale": source.stale,
    }


def _colours(impls: Iterable[str]) -> dict[str, str]:
    """The colour of each implementation, as in the plots."""
    from reports.plots.style import line_style  # imports matplotlib: seconds

    return {impl: line_style(impl).colour for impl in sorted(set(impls))}


def _verified(runs: Sequence[Comparison]) -> list[dict[str, Any]]:
    """A table for each norm of the verifications on one device: each implementation over all kinds of inputs."""
    tables: list[dict[str, Any]] = []
    outcomes = join_outcomes(runs) if runs else []
    for norm in norms(outcomes):
        of_impl = tried([outcome for outcome in outcomes if outcome.case.norm == norm])
        ran = [outcome for outcome in outcomes if outcome.case.norm == norm and outcome.impl in of_impl]
        (table,) = [part for part in summary(ran).parts if isinstance(part, Table)]
        tables.append(
            {
                "norm": norm,
                "cases": len({outcome.case for outcome in ran}),
                "heads": [*table.heads, FAILS_ON],
                "rows": [[*(cell.text for cell in row), _failures(of_impl[row[0].text])] for row in table.rows],
            }
        )
    return tables


def _failures(of_impl: Sequence[Outcome]) -> str:
    """The kinds of inputs, and of the usual ones the shapes, on which it did not pass."""
    failed = [outcome.case for outcome in of_impl if outcome.status in FAILED]
    kinds = [f"{case.rows} x {case.cols}" if case.inputs == "normal" else case.inputs for case in failed]
    return ", ".join(dict.fromkeys(kinds)) or figures.NOTHING
