"""The data of one timed run for the reader's page: figures as text, grouped as a reader chooses.

The page's script draws from the same texts, so that pictures and tables agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.analysis.case_comparison import CaseComparison, Entry, bandwidth_gbps
from harness.analysis.comparison import Comparison
from harness.analysis.joining import Joined, same_traffic_add
from harness.analysis.pairing import time_interval
from harness.analysis.step import every_context
from harness.analysis.summary import fastest_of_each
from harness.cases import NormCase
from harness.cases.tensors import gradients_of
from harness.cases.tensors import headings as short_names
from harness.cases.variants import PLAIN
from harness.records.contexts import COLD, HOST
from harness.records.file import Results
from harness.records.reason_texts import sentence
from harness.records.schema import ErrorClass
from harness.records.settings import Settings
from reports import figures
from reports.labels import determinism
from reports.parts import answers, caveats, conditions, yardsticks
from reports.parts.geomeans import geomeans
from reports.published.sources import Source
from reports.size_groups import groups

# Of each implementation on a case. Its words are a row of the run, as many cases share them, and the case has the row's
# number; its figures are one text. rho, a figure for each gradient, is among the words, as it takes few values.
COLUMNS = (
    *("impl", "standing", "status", "us", "us_low", "us_high", "speedup", "verdict"),
    *("gbps", "gbps_low", "gbps_high", "percent_of_add", "rho", "class", "bits", "why"),
)
WORDS = ("impl", "standing", "status", "verdict", "rho", "class", "bits", "why")
SEPARATOR = "|"  # site.js splits at it
FLUSHES = {"clean": "", "dirty": "dirty flush", "none": "no flush"}  # site.html explains them


class StringTable:
    """The distinct texts of a run, and the distinct rows of such texts; cases refer to both by number."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._rows: dict[tuple[int | None, ...], int] = {}

    def text(self, text: str | None) -> int | None:
        """The number of a text, which is added if it is new; None for None."""
        return None if text is None else self._texts.setdefault(text, len(self._texts))

    def row(self, texts: Iterable[str | None]) -> int:
        """The number of a row of texts, which is added if it is new."""
        return self._rows.setdefault(tuple(map(self.text, texts)), len(self._rows))

    @property
    def texts(self) -> list[str]:
        """The texts by their numbers."""
        return list(self._texts)

    @property
    def rows(self) -> list[tuple[int | None, ...]]:
        """The rows by their numbers, each of the numbers of its texts."""
        return list(self._rows)


def run_facts(source: Source) -> dict[str, Any]:
    """The data of a run for JSON: of the run itself, and by group its cases and their rows."""
    results, comparison = source.results, source.comparison
    run, strings = results.run, StringTable()
    contexts = every_context(comparison)
    cases_in_groups = [group for context in contexts for group in _groups(results, context, strings)]
    return {
        "device": source.device,
        "name": source.name,
        "date": run.started_at[:10],
        "revision": run.revision,
        "command": source.command,
        "baseline": comparison.baseline,
        "caveats": caveats.caveats(comparison),
        "budget": yardsticks.error_budget(comparison),
        "conditions": conditions.conditions(comparison),
        "levels": _levels(comparison),
        "texts": strings.texts,
        "words": strings.rows,
        "means": [_means(context) for context in contexts],
        "groups": cases_in_groups,
    }


def context_in_words(context: str, settings: Settings) -> str:
    """A context, and the flush where it is not the usual one."""
    flush = FLUSHES[settings.flush]
    return ", ".join(filter(None, [context if context != COLD or not flush else "", flush]))


def _groups(results: Results, comparison: Comparison, strings: StringTable) -> list[dict[str, Any]]:
    """The cases of a context on the usual inputs, in groups of cases that differ only in shape."""
    settings = results.run.settings
    families = {impl.name: impl.family for impl in results.run.implementations}
    fastest = fastest_of_each(comparison.summary.geomeans, families)
    strips = _strips(comparison)
    by_group: dict[tuple[str, str, str], list[CaseComparison]] = {}
    for case in comparison.cases:
        if case.case.inputs == "normal":
            key = case.case.norm, variant_in_words(case.case), dtype_in_words(case.case)
            by_group.setdefault(key, []).append(case)
    return [
        {
            "norm": norm,
            "variant": variant,
            "dtype": dtype,
            "context": context_in_words(comparison.context, settings),
            "shown": [mean.impl for mean in fastest if mean.norm == norm],
            "gradients": list(_gradients(cases[0]).values()),
            "cases": [
                {
                    "shape": shape_in_words(case.case),
                    "rows": case.case.rows,
                    "cols": case.case.cols,
                    "strip": strings.text(strips.get(case.case)),
                    **_case(comparison, case, strings),
                }
                for case in cases
            ],
        }
        for (norm, variant, dtype), cases in by_group.items()
    ]


def _levels(comparison: Comparison) -> list[tuple[str, str]]:
    """The bandwidths in GB/s that do not depend on the size: of a large copy, and of the datasheet."""
    copy = comparison.budget.copy_gbps if comparison.budget else None
    levels = {"large copy": copy, "datasheet": comparison.run.device.datasheet_gbps}
    return [(name, figures.gbps(value)) for name, value in levels.items() if value]


def _strips(comparison: Comparison) -> dict[NormCase, str]:
    """The name of the strip that each case is drawn in."""
    return {case.case: strip.name for group in groups(comparison) for strip in group.strips for case in strip.cases}


def _gradients(case: CaseComparison) -> dict[str, str]:
    """The short names of the gradients of a case by their names."""
    return short_names(gradient.name for gradient in gradients_of(case.case))


def _case(comparison: Comparison, case: CaseComparison, strings: StringTable) -> dict[str, Any]:
    add = same_traffic_add(case.joined) if case.add_us else None
    moves = comparison.context != HOST  # a time on the host gives no bandwidth
    add_us, _, _, add_gbps, _, _ = _times(case.case, add, moves)
    return {
        "answer": answer(comparison, case),
        "band": strings.text(yardsticks.aa_band(case)),
        "add_us": add_us,
        "add_gbps": add_gbps,
        "entries": [_entry(case, entry, strings, moves) for entry in case.entries],
    }


def answer(comparison: Comparison, case: CaseComparison) -> str:
    """A sentence: the fastest implementation of a case and by how much, or why none is called fastest."""
    if case.lead is None:
        return answers.no_fastest(case)
    lead = case.lead
    if lead.tied_with:
        return f"{lead.impl} is first; {', '.join(lead.tied_with)} cannot be told from it."
    if lead.runner_up is None:
        over = case.fastest.speedup if case.fastest else None
        return (
            f"{lead.impl} alone was ranked."
            if over is None
            else (f"{lead.impl}: {figures.ratio_and_interval(over)} times as fast as {comparison.baseline}.")
        )
    return (
        f"{lead.impl} is fastest: {figures.ratio_and_interval(lead.ratio)} times as fast as {lead.runner_up}, the next."
    )


def _entry(case: CaseComparison, entry: Entry, strings: StringTable, moves: bool) -> tuple[int, str]:
    """The number of the words of an implementation on a case, and its figures."""
    ranked = entry.standing == "ranked"
    waiting = entry.waiting.note if entry.waiting else None
    times = _times(case.case, case.joined[entry.impl, "impl"] if entry.median_us else None, moves and ranked)
    checked = entry.checked
    rhos = [figures.rho(error.rho) if (error := checked.errors.get(name)) else None for name in _gradients(case)]
    row = [
        entry.impl,
        entry.standing,
        entry.status,
        *times[:3],
        figures.ratio_and_interval(entry.speedup) if entry.speedup else None,
        entry.verdict,
        *times[3:],
        figures.percent(entry.percent_of_add) if entry.percent_of_add else None,
        _joined(rhos) if any(rhos) else None,
        _class_in_words(checked.error_class),
        determinism(checked) if checked.repeats or checked.moved else None,
        sentence(why) if (why := entry.reason or waiting) else None,
    ]
    fields = list(zip(COLUMNS, row, strict=True))
    shared = [text for name, text in fields if name in WORDS]
    own = [text for name, text in fields if name not in WORDS]
    return strings.row(shared), _joined(own).rstrip(SEPARATOR)


def _joined(texts: Iterable[str | None]) -> str:
    """The figures as one text, with nothing in the place of None."""
    return SEPARATOR.join(text or "" for text in texts)


def _class_in_words(error_class: ErrorClass | None) -> str | None:
    return f"{error_class} extra roundings" if error_class in ("two", "three") else error_class


def _times(case: NormCase, joined: Joined | None, moves: bool) -> list[str | None]:
    """The median us with its interval, and if it `moves` bytes the GB/s with their interval; None for no figure."""
    if joined is None:
        return [None] * 6
    low_us, high_us = time_interval(joined.timings)
    bandwidths = (bandwidth_gbps(case, us) if moves else None for us in (joined.median_us, high_us, low_us))
    texts = [*map(figures.microseconds, (joined.median_us, low_us, high_us)), *map(figures.gbps, bandwidths)]
    return [None if text == figures.NOTHING else text for text in texts]


def _means(comparison: Comparison) -> dict[str, Any]:
    """The geometric mean speedups as a table, of all cases of a norm together."""
    table = geomeans(comparison)
    context = context_in_words(comparison.context, comparison.run.settings)
    return {"context": context, "heads": table.heads, "rows": [[cell.text for cell in row] for row in table.rows]}


def variant_in_words(case: NormCase) -> str:
    """The variant and the parameters of a case, such as `plain` or `residual, no weight`."""
    words = ["+".join(case.features) or PLAIN]
    words += [] if case.weight else ["no weight"]
    words += ["no bias"] if case.norm == "layer" and case.weight and not case.bias else []
    words += ["zero-centred"] if case.zero_centred else []
    words += [f"eps {case.eps!r}"] if case.eps != 1e-5 else []
    return ", ".join(words)


def dtype_in_words(case: NormCase) -> str:
    """The dtype of x and dy, and that of the weight where it is another."""
    other = case.weight and case.weight_dtype != case.dtype
    return f"{case.dtype}, weight {case.weight_dtype}" if other else case.dtype


def shape_in_words(case: NormCase) -> str:
    """Rows and columns, and for a slice of a projection its heads and the projection's width."""
    heads = f", {case.heads} heads of {case.projection}" if case.heads else ""
    return f"{case.rows} x {case.cols}{heads}"
