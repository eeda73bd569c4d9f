"""Every document that is written from published results: reports, sections of other documents, a picture, the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import reports
from harness.errors import UsageError
from harness.records.published_plan import CHECKOUT, PACKED_SUFFIX, Plan, read_plan
from reports.markdown_writer import paragraphs, without_padding
from reports.published import site_page
from reports.published.sections import SECTIONS
from reports.published.sources import Source, by_device, sources

SITE = "site/index.html"
PICTURE = "bandwidth-rms"  # a plot of the README, in docs/plots
WITH_SECTIONS = ("README.md", "docs/results.md")
_SECTION = re.compile(r"(?<=<!-- written: )(?P<name>[\w-]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def documents(checkout: Path = CHECKOUT) -> dict[str, Callable[[], str]]:
    """All documents by their paths in the checkout, each as the function that makes its text, which may take seconds.

    Raises UsageError where there is no plan, or where it cannot be read.
    """
    plan = read_plan(checkout / "results/plan.toml")
    files = sources(plan, checkout / "results")
    texts: dict[str, Callable[[], str]] = {}
    for device, of_device in by_device(files).items():
        for page_name, page in plan.pages.items():
            named = [source for source in of_device if page_name in source.pages]
            if of_page := sorted(named, key=lambda source: (source.stale, page.of.index(source.name))):
                texts[f"results/{device}/{page_name}"] = partial(_report, of_page, page.format)
    texts |= {path: partial(_sections, checkout / path, plan, files) for path in WITH_SECTIONS}
    texts[f"docs/plots/{PICTURE}.svg"] = partial(_picture, plan, files)
    texts[SITE] = partial(site_page.render, files, plan)
    return texts


def write_all(
    check: bool = False, checkout: Path = CHECKOUT, more: Mapping[str, Callable[[], str]] | None = None
) -> list[str]:
    """Write every document, and `more`, that differs from what its function gives, and return their paths.

    Reports in results/ that no file gives any more are deleted. With `check` nothing is changed. Raises UsageError as
    `documents` does, and where a document cannot be written.
    """
    texts = documents(checkout)
    changed: list[str] = []
    for name, make_text in (texts | dict(more or {})).items():
        path, text = checkout / name, make_text()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        changed.append(name)
        if not check:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            except OSError as error:
                raise UsageError(f"cannot write {path}: {error.strerror}; give write access to the checkout") from error
    planned = read_plan(checkout / "results/plan.toml").pages
    for path in (path for page in planned for path in checkout.glob(f"results/*/{page}")):
        if (name := path.relative_to(checkout).as_posix()) not in texts:
            changed.append(name)
            if not check:
                path.unlink()
    return changed


def _report(files: Sequence[Source], form: str) -> str:
    """A report with a list of its files after the first lines: what each holds, and how old it is.

    Its tables are not padded: in wide ones the blanks would take more room than the figures.
    """
    text = reports.WRITTEN[form]([source.comparison for source in files], None)
    first, rest = without_padding(text).split("\n\n", 1)
    return paragraphs([first, "\n".join(map(_age, files)), rest])


def _age(source: Source) -> str:
    file = f"{source.name}{PACKED_SUFFIX}"
    mark = f"**{source.mark}**" if source.stale else source.mark
    return f"- [{file}]({file}): {source.about}; {mark}."


def _sections(path: Path, plan: Plan, files: Sequence[Source]) -> str:
    """A document with its sections written again; the text between them stays as it is."""

    def section(match: re.Match[str]) -> str:
        if match["name"] not in SECTIONS:
            raise UsageError(f"{path}: no section {match['name']!r}; <!-- written: --> takes {', '.join(SECTIONS)}")
        return f"{match['name']} -->\n{SECTIONS[match['name']](files, plan)}"

    try:
        return _SECTION.sub(section, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; the checkout needs it") from error


def _picture(plan: Plan, files: Sequence[Source]) -> str:
    """The plot that the README shows: of the plan's first run, from the first device that has it."""
    from reports.plots.draw import draw  # imports matplotlib: seconds
    from reports.plots.style import as_svg

    first = next(iter(plan.runs))
    source = next((source for source in files if source.name == first), None)
    if source is None:
        raise UsageError(f"the picture is of {first}, which no device has; publish it first")
    return as_svg(next(figure for name, figure in draw(source.comparison) if name == PICTURE))
