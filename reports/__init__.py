"""Writes results files as reports; it never measures, and needs neither torch nor a device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from harness.analysis.comparison import Comparison, compare
from harness.errors import UsageError
from harness.records.contexts import COLD
from harness.records.file import Results
from reports.formats import console, dtypes, export, grid, history, html, markdown, pull_request, verification
from reports.parts import kernel_table, selftest
from reports.studies import aa, engines, flushes, processes, spans

_COMPARING: dict[str, Callable[[Comparison, str | None], str]] = {
    "console": lambda comparison, _: console.render(comparison),
    "markdown": lambda comparison, _: markdown.render(comparison),
    "grid": lambda comparison, _: grid.render(comparison),
    "pr": pull_request.render,
    "csv": lambda comparison, _: export.to_csv(comparison),
    "json": lambda comparison, _: export.to_json(comparison),
    "kernels": lambda comparison, _: kernel_table.render(comparison),
    "spans": lambda comparison, _: spans.render(comparison),
}
_STUDYING: dict[str, Callable[[Results], str]] = {
    "selftest": selftest.page,
    "engines": engines.render,
    "aa": aa.render,
    "processes": processes.render,
}
_WHOLE: dict[str, Callable[[Sequence[Results], str | None, str], str]] = {"html": html.render}
_OF_SEVERAL: dict[str, Callable[[Sequence[Results]], str]] = {
    "dtypes": dtypes.render,
    "flush": flushes.render,
    "history": history.render,
    "verification": verification.render,
}
DRAWN = ("plots",)
TEXTS = (*_COMPARING, *_WHOLE, *_STUDYING, *_OF_SEVERAL)
FORMATS = (*TEXTS, *DRAWN)

Runs = Results | Sequence[Results]  # several only for a format that compares files


def render(
    results: Runs, form: str, *, baseline: str | None = None, impl: str | None = None, context: str = COLD
) -> str:
    """The text of a report in one of TEXTS; `impl` is the subject of a `pr`, other formats show all implementations.

    `context` is the context of the tables of cases. Raises UsageError for an unknown format, for more files than the
    format takes, and for a name that the results do not hold.
    """
    if form in DRAWN:
        raise UsageError(f"--format {form} is drawn, not written; give a folder with --out")
    runs = [results] if isinstance(results, Results) else results
    if context != COLD and form in {**_STUDYING, **_OF_SEVERAL}:
        raise UsageError(f"--format {form} is about the context {COLD}; leave out --context")
    if form in _OF_SEVERAL:
        return _OF_SEVERAL[form](runs)
    if form in _WHOLE:
        return _WHOLE[form](runs, baseline, context)
    run = _only(results, form)
    return _STUDYING[form](run) if form in _STUDYING else _COMPARING[form](compare(run, baseline, context), impl)


def write(
    results: Runs,
    form: str,
    out: Path | None = None,
    *,
    baseline: str | None = None,
    impl: str | None = None,
    context: str = COLD,
) -> None:
    """Write a report to a file, or to standard output, where the `console` format has the terminal's colours.

    `plots` writes files into the folder `out`. Raises UsageError as `render` does, and where nothing can be written.
    """
    if form in DRAWN and out is not None:
        from reports.plots import draw  # imports matplotlib: seconds

        draw.write(_only(results, form), out, baseline, context)
        return
    if out is None and form == "console":
        comparison = compare(_only(results, form), baseline, context)
        console.show(comparison, Console(width=None if sys.stdout.isatty() else console.WIDTH))
        return
    text = render(results, form, baseline=baseline, impl=impl, context=context)
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}; give a writable path with --out") from error


def _only(results: Runs, form: str) -> Results:
    """The one file that a format takes."""
    if form not in FORMATS:
        raise UsageError(f"no report format {form!r}; --format can be: {', '.join(FORMATS)}")
    if isinstance(results, Results):
        return results
    if len(results) != 1:
        raise UsageError(f"--format {form} takes one file, not {len(results)}; {', '.join(_OF_SEVERAL)} take several")
    return results[0]
