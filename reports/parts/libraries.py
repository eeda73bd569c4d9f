"""The headline: a row a library, as it comes and at its best, and apart from them what is run outside its purpose."""

from __future__ import annotations

from collections.abc import Sequence

from harness.analysis import libraries
from harness.analysis.comparison import Comparison
from harness.analysis.libraries import Mean, Standing
from harness.cases import Norm
from harness.cases.unfused import WITH_TORCH
from reports import figures
from reports.labels import NORMS, first_word
from reports.parts.answers import counts
from reports.parts.conditions import libraries_text, without_hashes
from reports.table import Cell, Section, Table, left, table

OUTSIDE = "Outside what they were made for"


def section(comparison: Comparison) -> Section:
    """Both tables with what one has to know of them."""
    main, outside = tables(comparison)
    means = f"Geometric mean speedups over {comparison.baseline} (smallest to largest), comparable over the same cases."
    about = f"{means} {how_chosen(comparison)}" if main.rows else "No means: the baseline ranks in no case."
    apart = [f"{OUTSIDE}:", outside] if outside.rows else []
    versions = f"Versions: {without_hashes(libraries_text(comparison.run.libraries))}."
    return Section("Libraries", (main, about, *apart, versions))


def tables(comparison: Comparison) -> tuple[Table, Table]:
    """The libraries that compete, the best of either norm on top, and those outside what they were made for."""
    standings = libraries.standings(comparison)
    by_name = {(each.library.name, each.norm): each for each in standings}
    norms: list[Norm] = [norm for norm in NORMS if any(each.norm == norm for each in standings)]
    names = {each.library.name: each.library for each in standings}
    inside = [name for name, library in names.items() if not library.outside]
    known = libraries.unmeasured(comparison) is not None  # otherwise a column would have nothing to say
    columns = ("default", "best variant") if known else ("default",)
    heads = [f"{NORMS[norm]}, {column}" for norm in norms for column in columns]

    def row(name: str) -> list[str | Cell]:
        of_norms = [by_name.get((name, norm)) for norm in norms]
        pairs = [(_mean(each.default if each else None), _best(each))[: len(columns)] for each in of_norms]
        return [with_marks(names[name].variants[0], comparison), *(cell for pair in pairs for cell in pair)]

    main = [[*row(name), firsts([by_name.get((name, norm)) for norm in norms])] for name in inside]
    apart = [[*row(name), library.outside] for name, library in names.items() if library.outside]
    first = f"{first_word(comparison)} in"
    return table(left("library", *heads, first), main), table(left("library", *heads, "why"), apart)


def how_chosen(comparison: Comparison) -> str:
    """How the best variants were chosen and what their search took; or that variants were not measured."""
    lacking = libraries.unmeasured(comparison)
    if lacking is None:
        return "Variants not measured, so none is called fastest."
    several = comparison.run.settings.processes > 1
    how = "by the other processes than the one that counts" if several else "in the process that measured it"
    chosen = dict.fromkeys(name for each in libraries.standings(comparison) for name in each.chosen)
    defaults = {library.variants[0] for library in libraries.libraries(comparison)}
    took = ", ".join(
        f"{name} {_took(comparison, name)}" for name in chosen if name not in defaults and WITH_TORCH not in name
    )
    budget = f" To find its configuration for a case took: {took}." if took else ""
    without = f" Variants not measured: {', '.join(lacking)}; so none is called fastest." if lacking else ""
    return f"Best variant: chosen case by case, {how}.{budget}{without}"


def _took(comparison: Comparison, impl: str) -> str:
    tried, seconds = libraries.budget(comparison, impl)
    return f"{tried + 1} timed by `normbwd tune`" if tried else figures.seconds(seconds)


def with_marks(name: str, *comparisons: Comparison) -> str:
    """A library's default, and in how many of its cases it was right with the same bits, where that is not in all."""
    each = [counts(comparison, name) for comparison in comparisons]
    right, ran, same, of_right = (sum(of) for of in zip(*((*one, *other) for one, other in each), strict=True))
    marks = [f"right in {right} of {ran}"] if right < ran else []
    marks += [f"same bits in {same} of {of_right}"] if same < of_right else []
    return f"{name} ({', '.join(marks)})" if marks else name


def _best(standing: Standing | None) -> Cell:
    """The best variant's mean, and the variant that was chosen most often where that is not the default."""
    if standing is None:
        return Cell(figures.NOTHING)
    default, *others = standing.library.variants
    chosen = [name for name, _ in standing.chosen.most_common() if name != default]
    known = chosen or standing.library.lacking == () or any(not name.endswith(WITH_TORCH) for name in others)
    if standing.library.lacking is None or not known:
        return Cell("not measured")
    cell = _mean(standing.best)
    return Cell(f"{cell.text}, {chosen[0]}", cell.key) if chosen else cell


def _mean(mean: Mean | None) -> Cell:
    """A mean with its range, and over how many cases it is where it lacks some."""
    if mean is None:
        return Cell(figures.NOTHING)
    reach = f" ({figures.plain_ratio(mean.smallest)} to {figures.plain_ratio(mean.largest)})"
    some = f" in {mean.cases} of {mean.total}" if mean.cases < mean.total else ""
    return Cell(f"{figures.plain_ratio(mean.value)}{reach}{some}", mean.value)


def firsts(standings: Sequence[Standing | None]) -> Cell:
    """The cases of all standings in which it is ahead of all others, and those in which it ties for that."""
    first, tied = (sum(getattr(each, name) or 0 for each in standings if each) for name in ("first", "tied"))
    return Cell(f"{first}, tied in {tied}" if tied else str(first), first)
