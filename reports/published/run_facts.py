"""The data of one timed run for the reader's page: figures as text, grouped as a reader chooses.

The page's script draws from the same texts, so that pictures and tables agree.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from harness.analysis.case_comparison import CaseComparison, Entry, bandwidth_gbps
from harness.analysis.comparison import Comparison
from harness.analysis.joining import Joined, same_traffic_add
from harness.analysis.libraries import competing
from harness.analysis.pairing import time_interval
from harness.analysis.step import every_context
from harness.cases import NormCase
from harness.cases.tensors import gradients_of
from harness.cases.tensors import headings as short_names
from harness.cases.variants import PLAIN
from harness.grouping import grouped
from harness.records.contexts import COLD, FWD_BWD, HOST
from harness.records.reason_texts import sentence
from harness.records.settings import Settings
from reports import figures
from reports.labels import determinism, first_word
from reports.parts import answers, caveats, conditions
from reports.published.sources import Source

COLUMNS = (  # of each implementation on a case
    *("impl", "standing", "status", "us", "us_low", "us_high", "speedup", "verdict"),
    *("gbps", "percent_of_add", "rho", "class", "bits", "why"),
)
FLUSHES = {"clean": "", "dirty": "dirty flush", "none": "no flush"}  # site.html explains them


def run_facts(source: Source) -> dict[str, Any]:
    """The data of a run for JSON: of the run itself, and by group its cases and their rows."""
    run, comparison = source.results.run, source.comparison
    return {
        "device": source.device,
        "name": source.name,
        "date": source.date,
        "command": source.command,
        "baseline": comparison.baseline,
        "caveats": caveats.caveats(comparison),
        "budget": conditions.error_budget(comparison),
        "conditions": conditions.conditions(comparison),
        "outside": {impl.name: impl.outside for impl in run.implementations if impl.outside},
        "groups": [group for context in every_context(comparison) for group in _groups(context)],
    }


def context_text(context: str, settings: Settings) -> str:
    """A context, and the flush where it is not the usual one."""
    flush = FLUSHES[settings.flush]
    return ", ".join(filter(None, [context if context != COLD or not flush else "", flush]))


def _groups(comparison: Comparison) -> list[dict[str, Any]]:
    """The cases of a context on the usual inputs, in groups of cases that differ only in shape."""
    run = comparison.run
    sentence_of = partial(answer, comparison, competing=competing(comparison), word=first_word(comparison))
    usual = [each for each in comparison.cases if each.case.inputs == "normal"]
    by_group = grouped(((each.case.norm, variant_text(each.case), dtype_text(each.case)), each) for each in usual)
    return [
        {
            "norm": norm,
            "variant": variant,
            "dtype": dtype,
            "context": context_text(comparison.context, run.settings),
            "gradients": list(_gradients(cases[0]).values()),
            "cases": [{"answer": sentence_of(case), **_case(comparison, case)} for case in cases],
        }
        for (norm, variant, dtype), cases in by_group.items()
    ]


def _gradients(case: CaseComparison) -> dict[str, str]:
    """The short names of the gradients of a case by their names."""
    return short_names(gradient.name for gradient in gradients_of(case.case))


def _case(comparison: Comparison, case: CaseComparison) -> dict[str, Any]:
    moves = comparison.context not in (HOST, FWD_BWD)  # of which the bytes of a backward give no bandwidth
    add_us, _, _, add_gbps = _times(case.case, same_traffic_add(case.joined) if case.add_us else None, moves)
    return {
        "shape": shape_text(case.case),
        "rows": case.case.rows,
        "cols": case.case.cols,
        "band": conditions.aa_band(case),
        "add_us": add_us,
        "add_gbps": add_gbps,
        "entries": [_entry(case, entry, moves) for entry in case.entries],
    }


def answer(comparison: Comparison, case: CaseComparison, competing: Collection[str], word: str) -> str:
    """A sentence: which of those `competing` is first or fastest, and by how much; or why none is called so."""
    if (lead := case.lead_among(competing)) is None:
        return answers.no_fastest(case)
    if lead.tied_with:
        return f"{lead.impl} is first; {', '.join(lead.tied_with)} cannot be told from it."
    if lead.ratios:
        ratio = figures.ratio_and_interval(lead.ratio)
        return f"{lead.impl} is {word}: {ratio} times as fast as {next(iter(lead.ratios))}, the next."
    first = case.entry(lead.impl)
    if (over := first.speedup if first else None) is None:
        return f"{lead.impl} alone was ranked."
    return f"{lead.impl}: {figures.ratio_and_interval(over)} times as fast as {comparison.baseline}."


def _entry(case: CaseComparison, entry: Entry, moves: bool) -> list[Any]:
    """What is known of an implementation on a case, as COLUMNS names it; None at the end is left out."""
    times = _times(
        case.case, case.joined[entry.impl, "impl"] if entry.median_us else None, moves and entry.standing == "ranked"
    )
    checked, why = entry.checked, entry.reason or (entry.waiting.note if entry.waiting else None)
    rhos = [figures.rho(error.rho) if (error := checked.errors.get(name)) else None for name in _gradients(case)]
    extra = " extra roundings" if checked.error_class in ("two", "three") else ""
    row = [
        *(entry.impl, entry.standing, entry.status),
        *times[:3],
        figures.ratio_and_interval(entry.speedup) if entry.speedup else None,
        entry.verdict,
        *times[3:],
        figures.percent(entry.percent_of_add) if entry.percent_of_add else None,
        rhos if any(rhos) else None,
        f"{checked.error_class}{extra}" if checked.error_class else None,
        determinism(checked) if checked.repeats or checked.moved else None,
        sentence(why) if why else None,
    ]
    return row[: max(place for place, value in enumerate(row, 1) if value is not None)]


def _times(case: NormCase, joined: Joined | None, moves: bool) -> list[str | None]:
    """The median us with its interval, and if it `moves` bytes the GB/s; None for no figure."""
    if joined is None:
        return [None] * 4
    gbps = figures.gbps(bandwidth_gbps(case, joined.median_us) if moves else None)
    texts = [*map(figures.microseconds, (joined.median_us, *time_interval(joined.timings))), gbps]
    return [None if text == figures.NOTHING else text for text in texts]


def variant_text(case: NormCase) -> str:
    """The variant and the parameters of a case, such as `plain` or `residual, no weight`."""
    parts = ["+".join(case.features) or PLAIN]
    parts += [] if case.weight else ["no weight"]
    parts += ["no bias"] if case.norm == "layer" and case.weight and not case.bias else []
    parts += ["zero-centred"] if case.zero_centred else []
    parts += [f"eps {case.eps!r}"] if case.eps != 1e-5 else []
    return ", ".join(parts)


def dtype_text(case: NormCase) -> str:
    """The dtype of x and dy, and that of the weight where it is another."""
    other = case.weight and case.weight_dtype != case.dtype
    return f"{case.dtype}, weight {case.weight_dtype}" if other else case.dtype


def shape_text(case: NormCase) -> str:
    """Rows and columns, and for a slice of a projection its heads and the projection's width."""
    heads = f", {case.heads} heads of {case.projection}" if case.heads else ""
    return f"{case.rows} x {case.cols}{heads}"
