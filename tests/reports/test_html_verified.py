"""The page of a verification: it holds what the markdown holds, cell for cell, and what is behind every outcome."""

from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

import reports
from harness.analysis.comparison import compare
from harness.errors import UsageError
from harness.records.file import load
from reports.formats.verification import sections
from reports.table import Section, Table
from tests.results_factory import careful, longer, outcomes, results, row, verified_only

PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("*/verify-*.jsonl.bz2"))


class Page(HTMLParser):
    """Of every table its rows of (attributes, cells); of a cell its attributes, its text, and the lines behind it."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.titles, self._cell, self._line, self._title = [], [], None, None, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append((dict(attrs), []))
        elif tag in ("td", "th"):
            self._cell = [dict(attrs), "", []]
            self.tables[-1][-1][1].append(self._cell)
        elif tag == "div" and self._cell:
            self._cell[2].append("")
            self._line = True
        elif tag in ("h2", "h3"):
            self._title = True
            self.titles.append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = None
        self._line = self._line and tag != "div"
        self._title = self._title and tag not in ("h2", "h3")

    def handle_data(self, data):
        if self._title:
            self.titles[-1] += data
        elif self._cell and self._line:
            self._cell[2][-1] += data
        elif self._cell:
            self._cell[1] += data


def walk(parts):
    """Every title and table of sections, in order."""
    for part in parts:
        if isinstance(part, Section):
            yield part.title
            yield from walk(part.parts)
        elif isinstance(part, Table) and part.rows:
            yield part


@pytest.mark.parametrize(
    "made_by", [[careful], [careful, longer], [verified_only], *([partial(load, path)] for path in PUBLISHED[-1:])]
)
def test_every_title_and_every_cell_is_there_in_order(made_by):
    runs = [make() for make in made_by]
    page, made = Page(reports.render(runs, "html")), list(walk(sections(list(map(compare, runs)), outcomes(runs))))
    assert [title for title in page.titles if title in made] == [each for each in made if isinstance(each, str)]
    tables = [each for each in made if isinstance(each, Table)]
    assert len(page.tables) == len(tables) > 2
    for shown, table in zip(page.tables, tables, strict=True):
        (_, heads), *rows = shown
        assert [text for _, text, _ in heads] == list(table.heads)
        assert [attributes["data-kind"] for attributes, *_ in heads] == list(table.kinds)
        assert [[text for _, text, _ in cells] for _, cells in rows] == [[c.text for c in each] for each in table.rows]
        assert [[why for *_, why in cells] for _, cells in rows] == [[list(c.why) for c in each] for each in table.rows]


def test_several_files_have_their_conditions_each():
    assert "<h3>File 1</h3>" not in reports.render([careful()], "html")
    text = reports.render([careful(), longer()], "html")
    assert "<h3>File 1</h3>" in text
    assert "<h3>File 2</h3>" in text
    assert "same bits in 3000 runs" in text
    with pytest.raises(UsageError, match="different devices"):
        reports.render([careful(), results(row("quack"), cpu=True)], "html")


def test_backticks_are_code_and_nothing_else_is_markup():
    bad = results(row("quack", status="crashed", reason="`a` <b>"), timed=False)
    bad = replace(bad, run=bad.run.model_copy(update={"command": "normbwd verify --impls <i>"}))
    text = reports.render([bad], "html")
    assert "<b>" not in text
    assert "<code>normbwd verify --impls &lt;i&gt;</code>" in text
    assert "<code>same bits in 300 runs</code>" in reports.render([careful()], "html")
