"""What a published file holds, in the words of a table, and whether that is what the plan asks now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from harness.cases import NormCase
from harness.cases.suites import SUITES
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import PLAIN
from harness.results.cases_asked import cases_on
from harness.results.contexts import COLD, parse_contexts
from harness.results.file import Results
from harness.results.published.planned import PlannedRun
from harness.results.run_records import ImplRecord, RunRecord
from harness.results.settings import Settings
from reports import figures
from reports.data.case_labels import NORMS
from reports.published.case_words import dtype_in_words, shape_in_words, variant_in_words

NAMED = 4  # shapes or implementations, more are counted
FLUSHES = {"clean": "", "dirty": "a flush that writes alone", "none": "no flush"}


def held(results: Results) -> str:
    """The cases, the implementations, and how they were measured, in one line."""
    how = _how(results.run.settings, bool(results.sanitized), len(results.gpus))
    return "; ".join((_cases(_cases_of(results)), _impls(results.run.implementations), how))


def asked_otherwise(results: Results, planned: PlannedRun) -> str | None:
    """What the plan asks now in place of what the file holds, by the same parts; None where the file holds it."""
    was, asked = results.run.settings, planned.settings
    asked = asked.changed(repeats=asked.repeats or was.repeats)  # none: the device's default
    cases = cases_on("cuda", asked)
    how = _how(asked, planned.sanitizer)
    parts = [
        *([] if set(cases) == set(_cases_of(results)) else [_cases(cases)]),
        *([] if _chosen_alike(results.run, asked) else [_chosen(asked)]),
        *([] if how == _how(was, bool(results.sanitized)) else [how]),
    ]
    return "; ".join(parts) or None


def _cases_of(results: Results) -> list[NormCase]:
    return list(dict.fromkeys(row.case for row in results.rows))


def _chosen_alike(run: RunRecord, asked: Settings) -> bool:
    """Whether the implementations of a run are those that the plan names, or one a library where it names none."""
    found = _alone(run.implementations)
    names = {impl.name for impl in found}
    if asked.baseline and asked.baseline != run.settings.baseline:
        return False
    if asked.impls is None:
        return len({(impl.source, impl.family) for impl in found}) == len(found) > 1
    wanted = asked.impls.split(",")
    if "all" in wanted:
        return len({impl.family for impl in found}) < len(found)
    named = all(any(fnmatchcase(name, pattern) for name in names) for pattern in wanted)
    return named and all(any(fnmatchcase(name, pattern) for pattern in wanted) for name in names)


def _alone(impls: Iterable[ImplRecord]) -> list[ImplRecord]:
    """Without those that torch does a part of, which come with the others."""
    return [impl for impl in impls if not impl.name.endswith(WITH_TORCH)]


def _chosen(asked: Settings) -> str:
    """The implementations that settings name, in words."""
    names = {None: "one implementation a library", "all": "every implementation"}.get(asked.impls, asked.impls)
    return f"{names}, over {asked.baseline}" if asked.baseline else str(names).replace(",", ", ")


def _cases(cases: Sequence[NormCase]) -> str:
    kinds = dict.fromkeys(case.inputs for case in cases)
    norms = dict.fromkeys(NORMS[case.norm] for case in cases)
    variants = dict.fromkeys(variant_in_words(case).removeprefix(f"{PLAIN}, ") for case in cases)
    return ", ".join(
        [
            _shapes(cases),
            "both norms" if len(norms) == len(NORMS) else "".join(norms),
            " and ".join(dict.fromkeys(map(dtype_in_words, cases))),
            *([] if set(variants) <= {PLAIN} else [" and ".join(variants)]),
            *([] if set(kinds) <= {"normal"} else [figures.count(len(kinds), "kind") + " of inputs"]),
        ]
    )


def _shapes(cases: Sequence[NormCase]) -> str:
    """A suite by its name, few shapes by theirs, and many by their number."""
    shapes = {(case.rows, case.cols) for case in cases}
    suite = next((suite for suite in SUITES.values() if set(suite.shapes) == shapes and not suite.cases), None)
    if suite:
        return f"the {len(shapes)} shapes of suite {suite.name}"
    if len(shapes) <= NAMED:
        return ", ".join(dict.fromkeys(map(shape_in_words, cases)))
    return f"{len(shapes)} shapes"


def _impls(impls: Sequence[ImplRecord]) -> str:
    """Those that were there by their names or their number, and how many were not."""
    asked = _alone(impls)
    found = [impl for impl in asked if not impl.missing]
    absent = f", {len(asked) - len(found)} more missing" if len(found) < len(asked) else ""
    if len(found) <= NAMED:
        return ", ".join(impl.name for impl in found) + absent
    families = len({impl.family for impl in found})
    return f"{len(found)} implementations{f' of {families} libraries' if families < len(found) else ''}{absent}"


def _how(settings: Settings, sanitized: bool, gpus: int = 0) -> str:
    if not settings.timed:
        under = ", and under compute-sanitizer" if sanitized else ""
        return f"{figures.count(settings.repeats, 'run')} a case{under}"
    others = [context for context in parse_contexts(settings.context) if context != COLD]
    parts = {
        "one process" if settings.processes == 1 else f"{settings.processes} processes": True,
        figures.count(gpus, "GPU"): gpus,
        FLUSHES[settings.flush]: settings.flush != "clean",
        f"cold and in the contexts {', '.join(others)}": others,
        "each implementation twice in its blocks": settings.twice,
        "do_bench and NVBench beside": settings.cross_check,
        "a quick look": settings.quick,
        f"seed {settings.seed}": settings.seed,
    }
    return ", ".join(text for text, is_so in parts.items() if is_so)
