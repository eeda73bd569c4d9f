"""Writes a results file as tables for people; never measures, and needs neither torch nor a device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from harness.errors import UsageError
from harness.results import Results
from reports import console, export, grid, markdown, pull_request
from reports.comparison import Comparison, compare

_RENDERERS: dict[str, Callable[[Comparison, str | None], str]] = {
    "console": lambda comparison, _: console.render(comparison),
    "markdown": lambda comparison, _: markdown.render(comparison),
    "grid": lambda comparison, _: grid.render(comparison),
    "pr": pull_request.render,
    "csv": lambda comparison, _: export.to_csv(comparison),
    "json": lambda comparison, _: export.to_json(comparison),
}
FORMATS = tuple(_RENDERERS)


def render(results: Results, form: str, *, baseline: str | None = None, impl: str | None = None) -> str:
    """The text of a report in one of FORMATS; `impl` is the subject of a `pr`, the other formats show all.

    Raises UsageError for an unknown format, or a name that the results do not hold.
    """
    if form not in _RENDERERS:
        raise UsageError(f"no report format {form!r}; --format can be: {', '.join(FORMATS)}")
    return _RENDERERS[form](compare(results, baseline), impl)


def write(
    results: Results, form: str, out: Path | None = None, *, baseline: str | None = None, impl: str | None = None
) -> None:
    """Write a report to a file, or to standard output, where the `console` format has the terminal's colours.

    Raises UsageError as `render` does, and where the file cannot be written.
    """
    if out is None and form == "console":
        console.show(compare(results, baseline), Console(width=None if sys.stdout.isatty() else console.WIDTH))
        return
    text = render(results, form, baseline=baseline, impl=impl)
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}; give a writable path with --out") from error
