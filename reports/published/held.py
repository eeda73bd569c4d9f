"""Describes what a published file holds, and what the plan asks instead, as text for a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from harness.analysis import figures
from harness.analysis.case_labels import NORMS
from harness.analysis.currency import cases_lacking
from harness.cases import NormCase
from harness.cases.suites import SUITES
from harness.cases.unfused import WITH_TORCH
from harness.cases.variants import PLAIN
from harness.records.cases_asked import cases_on
from harness.records.contexts import COLD
from harness.records.file import Results
from harness.records.published_plan import PlannedRun
from harness.records.run_records import ImplRecord, RunRecord
from harness.records.settings import Settings
from reports.published.case_words import dtype_in_words, variant_in_words

NAMED = 4  # shapes or implementations, more are counted
FLUSHES = {"clean": "", "dirty": "a flush that writes alone", "none": "no flush"}


def contents(results: Results) -> str:
    """The cases, the implementations, and how they were measured, in one line."""
    how = _how(results.run.settings, bool(results.sanitized), len(results.gpus))
    return "; ".join((_cases(_cases_of(results)), _impls(results.run.implementations), how))


def planned_instead(results: Results, planned: PlannedRun) -> str | None:
    """The parts that the plan now asks for and the file does not hold, in words; None where it holds all."""
    was, settings = results.run.settings, planned.settings
    settings = settings.changed(repeats=settings.repeats or was.repeats)  # 0 means the device's default
    cases = cases_on("cuda", settings)
    all_cases = set(_cases_of(results)) <= set(cases) and not cases_lacking(results, set(cases))
    how = _how(settings, planned.sanitizer)
    parts = [
        *([] if all_cases else [_cases(cases)]),
        *([] if _has_planned_impls(results.run, settings) else [_impls_of(settings)]),
        *([] if how == _how(was, bool(results.sanitized)) else [how]),
    ]
    return "; ".join(parts) or None


def _cases_of(results: Results) -> list[NormCase]:
    return list(dict.fromkeys(row.case for row in results.rows))


def _has_planned_impls(run: RunRecord, planned: Settings) -> bool:
    """Whether the implementations of a run are those that the plan names, or one a library where it names none."""
    impls = _without_helped(run.implementations)
    names = {impl.name for impl in impls}
    if planned.baseline and planned.baseline != run.settings.baseline:
        return False
    if planned.impls is None:
        return len({(impl.source, impl.family) for impl in impls}) == len(impls) > 1
    patterns = planned.impls.split(",")
    if "all" in patterns:
        return len({impl.family for impl in impls}) < len(impls)
    all_match = all(any(fnmatchcase(name, pattern) for name in names) for pattern in patterns)
    return all_match and all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in names)


def _without_helped(impls: Iterable[ImplRecord]) -> list[ImplRecord]:
    """The implementations without `NAME + torch`, which is chosen together with NAME."""
    return [impl for impl in impls if not impl.name.endswith(WITH_TORCH)]


def _impls_of(settings: Settings) -> str:
    """The implementations that settings name, in words."""
    names = {None: "one implementation a library", "all": "every implementation"}.get(settings.impls, settings.impls)
    return f"{names}, over {settings.baseline}" if settings.baseline else str(names).replace(",", ", ")


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
    shapes = dict.fromkeys((case.rows, case.cols) for case in cases)
    suite = next((suite for suite in SUITES.values() if set(suite.shapes) == set(shapes) and not suite.cases), None)
    if suite:
        return f"the {len(shapes)} shapes of suite {suite.name}"
    if len(shapes) <= NAMED:
        return ", ".join(f"{rows} x {cols}" for rows, cols in shapes)
    return f"{len(shapes)} shapes"


def _impls(impls: Sequence[ImplRecord]) -> str:
    """The implementations that were installed, by name or by number, and how many were missing."""
    named = _without_helped(impls)
    installed = [impl for impl in named if not impl.missing]
    absent = f", {len(named) - len(installed)} more missing" if len(installed) < len(named) else ""
    if len(installed) <= NAMED:
        return ", ".join(impl.name for impl in installed) + absent
    families = len({impl.family for impl in installed})
    libraries = f" of {families} libraries" if families < len(installed) else ""
    return f"{len(installed)} implementations{libraries}{absent}"


def _how(settings: Settings, sanitized: bool, gpus: int = 0) -> str:
    if not settings.timed:
        under = ", and under compute-sanitizer" if sanitized else ""
        return f"{figures.count(settings.repeats, 'run')} a case{under}"
    others = [context for context in settings.context if context != COLD]
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
