"""The reader's page, site/index.html: every published figure in one file, which needs no network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from harness.records.published_plan import PACKED_SUFFIX, Plan
from reports.formats.html_page import fill
from reports.published.run_facts import COLUMNS, WORDS, run_facts
from reports.published.sources import Source, by_device
from reports.published.verified_facts import verified_facts

TEMPLATE = "site.html"


def render(sources: Sequence[Source], plan: Plan) -> str:
    """The page as HTML text, the same for the same files."""
    from markupsafe import Markup

    data = _data(sources, plan, [run_facts(source) for source in sources if source.is_ranking])
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
    devices = " and ".join(device["name"] for device in data["devices"])
    return fill(TEMPLATE, data=Markup(text), devices=devices)  # JSON in which no tag can begin


def _data(sources: Sequence[Source], plan: Plan, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the page's script reads; `runs` are the data of the rankings."""
    devices = by_device(sources)
    return {
        "columns": COLUMNS,
        "words": WORDS,
        "devices": [
            {
                "key": device,
                "name": files[0].device_name,
                "verified": verified_facts([file.comparison for file in files if not file.results.run.settings.timed]),
            }
            for device, files in devices.items()
        ],
        "looks": _looks(text for run in runs for group in run["groups"] for text in _impls(run, group)),
        "published": [_published(source) for source in sources],
        "planned": [
            {"device": device, "name": name, "about": run.about}
            for device in devices
            for name, run in plan.runs.items()
            if (device, name) not in {(source.device, source.name) for source in sources}
        ],
        "runs": list(runs),
    }


def _published(source: Source) -> dict[str, Any]:
    run = source.results.run
    return {
        "device": source.device,
        "name": source.name,
        "about": source.about,
        "date": run.started_at[:10],
        "age": source.mark,
        "file": f"results/{source.device}/{source.name}{PACKED_SUFFIX}",
        "pages": [f"results/{source.device}/{page}" for page in source.pages],
        "stale": source.stale,
    }


def _impls(run: dict[str, Any], group: dict[str, Any]) -> list[str]:
    return [run["texts"][run["words"][number][0]] for case in group["cases"] for number, _ in case["entries"]]


def _looks(impls: Iterable[str]) -> dict[str, dict[str, str]]:
    """Colour, marker and dashes of each implementation, as in the plots."""
    from reports.plots.style import look, svg_dashes  # imports matplotlib: seconds

    return {
        impl: {"colour": look(impl).colour, "marker": look(impl).marker, "dashes": svg_dashes(look(impl))}
        for impl in sorted(set(impls))
    }
