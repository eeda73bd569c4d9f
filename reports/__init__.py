"""Writes results files as reports; it never measures, and needs neither torch nor a device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from harness.analysis.comparison import Comparison, compare
from harness.analysis.verdicts import Verdict
from harness.errors import UsageError
from harness.records.contexts import COLD
from harness.records.file import Results
from harness.records.run_records import SameCodeRecord
from reports.formats import (
    console,
    dashboards,
    export,
    gpus,
    grid,
    history,
    html,
    leads,
    markdown,
    pull_request,
    verification,
)
from reports.parts import kernel_table, selftest, studies

Runs = Results | Sequence[Results]  # several only for a format that compares files
OF_SEVERAL = ("gpus", "history", "html", "leads", "plots", "verification")
WRITTEN: dict[str, Callable[[Sequence[Comparison], str | None], str]] = {
    "console": lambda runs, _: console.render(runs[0]),
    "markdown": lambda runs, _: markdown.render(runs[0]),
    "grid": lambda runs, _: grid.render(runs[0]),
    "pr": lambda runs, impl: pull_request.render(runs[0], impl),
    "csv": lambda runs, _: export.to_csv(runs[0]),
    "json": lambda runs, _: export.to_json(runs[0]),
    "github-action-benchmark": lambda runs, _: dashboards.github_action_benchmark(runs[0]),
    "pytorch-hud": lambda runs, _: dashboards.pytorch_hud(runs[0]),
    "kernels": lambda runs, _: kernel_table.render(runs[0]),
    "leads": lambda runs, _: leads.render(runs),
    "gpus": lambda runs, _: gpus.render(runs),
    "history": lambda runs, _: history.render(runs),
    "html": lambda runs, _: html.render(runs),
    "verification": lambda runs, _: verification.render(runs),
    "selftest": lambda runs, _: selftest.page(runs[0]),
    "engines": lambda runs, _: studies.engines(runs[0]),
    "aa": lambda runs, _: studies.aa(runs[0]),
    "processes": lambda runs, _: studies.processes(runs[0]),
    "first-call": lambda runs, _: studies.first_calls(runs[0]),
}
DRAWN = ("plots", "all-plots")  # at most eight, or with the kernels of every case
TEXTS = tuple(WRITTEN)
FORMATS = (*TEXTS, *DRAWN)
ABOUT_COLD = (*("selftest", "engines", "aa", "processes", "first-call"), *("gpus", "history", "leads", "verification"))


def render(
    results: Runs, form: str, *, baseline: str | None = None, impl: str | None = None, context: str = COLD
) -> str:
    """The text of a report in one of TEXTS; `impl` is the subject of a `pr`, other formats show all implementations.

    `context` is the context of the tables of cases. Raises UsageError for an unknown format, for more files than the
    format takes, and for a name that the results do not hold.
    """
    runs = _compared(results, form, baseline, context)
    return WRITTEN[form](runs, impl)


def write(
    results: Runs,
    form: str,
    out: Path | None = None,
    *,
    baseline: str | None = None,
    impl: str | None = None,
    context: str = COLD,
) -> None:
    """Write a report of results files as `write_compared` does; raises UsageError as `render` does."""
    write_compared(_compared(results, form, baseline, context, out), form, out, impl)


def write_compared(runs: Sequence[Comparison], form: str, out: Path | None = None, impl: str | None = None) -> None:
    """Write a report to a file, or to standard output, where the `console` format has the terminal's colours.

    Those of DRAWN write files into the folder `out`. Raises UsageError where nothing can be written.
    """
    if form in DRAWN and out is not None:
        from reports.plots import draw  # imports matplotlib: seconds

        draw.write(runs, out, everything=form == "all-plots")
    elif form == "console" and out is None:
        console.show(runs[0], Console(width=None if sys.stdout.isatty() else console.WIDTH))
    else:
        _put(WRITTEN[form](runs, impl), out)


def write_comment(run: Results, verdicts: Sequence[Verdict], out: Path) -> None:
    """Write what a pull request's comment says of a run and a gate's verdicts on it."""
    _put(pull_request.render(compare(run), verdicts=verdicts), out)


def write_same_code(record: SameCodeRecord, form: str, out: Path | None = None) -> None:
    """Write that nothing was measured because head's code is base's, as JSON or else as text."""
    _put(export.dumped(record) if form == "json" else pull_request.same_code(record), out)


def _put(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}; give a writable path with --out") from error


def _compared(
    results: Runs, form: str, baseline: str | None, context: str, out: Path | None = None
) -> list[Comparison]:
    """The files compared; raises UsageError where the format is unknown, or takes neither so many nor that context."""
    runs = [results] if isinstance(results, Results) else results
    if context != COLD and form in ABOUT_COLD:
        raise UsageError(f"--format {form} is about the context {COLD}; leave out --context")
    if form not in FORMATS:
        raise UsageError(f"no report format {form!r}; --format can be: {', '.join(FORMATS)}")
    if len(runs) != 1 and form not in OF_SEVERAL:
        raise UsageError(f"--format {form} takes one file, not {len(runs)}; {', '.join(OF_SEVERAL)} take several")
    if form in DRAWN and out is None:
        raise UsageError(f"--format {form} is drawn, not written; give a folder with --out")
    return [compare(run, baseline, context) for run in runs]
