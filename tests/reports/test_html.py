"""The page of a comparison: whole, self-contained, and safe from what stands in the results."""

import re
from functools import cache
from html.parser import HTMLParser

import pytest

from harness.analysis.comparison import compare
from harness.errors import UsageError
from reports.formats import html
from reports.formats.html import results_table
from tests.results_factory import careful, mixed, results, row, thorough


def render(run):
    return html.render([compare(run)])


@cache
def page_of(run):
    """The text of the page of one of the made-up runs, `mixed` or `thorough`: its plots take seconds to draw."""
    return render(run())


class Page(HTMLParser):
    """The tags of a page with their attributes, and the cells of its table row by row."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.kinds, self._table, self._in = [], [], [], None, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "table":
            self._table = attributes.get("id")
        if self._table == "results" and tag == "tr" and "data-impl" in attributes:
            self.cells.append([])
        if self._table == "results" and "data-kind" in attributes:
            self.kinds.append(attributes["data-kind"])
        if tag == "td":
            self._in = bool(self.cells) and self._table == "results"
            if self._in:
                self.cells[-1].append(("", attributes))

    def handle_endtag(self, tag):
        if tag == "td":
            self._in = False

    def handle_data(self, data):
        if self._in:
            text, attributes = self.cells[-1][-1]
            self.cells[-1][-1] = (text + data, attributes)


@pytest.mark.parametrize("run", [mixed, thorough])
def test_each_implementation_has_a_row_on_each_case(run):
    comparison = compare(run())
    page = Page(page_of(run))
    expected = results_table(comparison).rows
    rows = [attributes for tag, attributes in page.tags if tag == "tr" and "data-standing" in attributes]
    entries = [(entry.impl, entry.standing) for case in comparison.cases for entry in case.entries]
    assert [(of["data-impl"], of["data-standing"]) for of in rows] == entries
    assert len(page.cells) == len(expected) == sum(len(case.entries) for case in comparison.cases)
    for cells, made in zip(page.cells, expected, strict=True):
        assert [text for text, _ in cells[:-1]] == [cell.text for cell in made[:-1]]
        for (_, attributes), cell in zip(cells, made, strict=True):
            assert attributes.get("data-key") == (None if cell.key is None else str(cell.key))
        assert all(line in cells[-1][0] for line in made[-1].why)


def test_the_speedups_are_shown_and_plots_are_named_in_words():
    text = page_of(mixed)
    shown = text.split("<h2>Speedup at each size</h2>")[1].split("<h2>")[0]
    assert 'alt="Speedup of the RMSNorm backward over torch-eager, bf16"' in shown
    assert "<details" not in shown
    assert not re.search(r"<summary>\w+-\w+", text)


def test_a_case_leads_to_its_first_row():
    comparison = compare(mixed())
    text = page_of(mixed)
    for case in comparison.cases:
        assert text.count(f'<a href="#{case.case.key}">{case.case.key}</a>') == 1
        (first,) = re.findall(rf'<tr ([^>]*) id="{case.case.key}">', text)
        assert f'data-impl="{case.entries[0].impl}"' in first


def test_it_needs_no_network():
    page = Page(page_of(thorough))
    sources = [attributes["src"] for _, attributes in page.tags if "src" in attributes]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "link" not in {tag for tag, _ in page.tags}
    assert not [attributes for _, attributes in page.tags if (attributes.get("href") or "").startswith("http")]
    assert "@import" not in page_of(thorough)


def test_what_stands_in_the_results_is_text_and_no_markup():
    bad = "<script>alert(1)</script> & <b>"
    text = render(results(row("torch-eager", 100.0), row("quack", status="wrong", reason=bad)))
    assert bad not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;" in text


def test_of_several_files_all_or_none_hold_times():
    with pytest.raises(UsageError, match="file 2 holds no times"):
        html.render([compare(mixed()), compare(careful())])
