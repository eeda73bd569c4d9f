"""The pages in a headless Chromium, as a reader opens them: from a file, with a mouse or a keyboard, without a network.

Every check is also shown pages with a fault that it is there to find.
"""

from functools import cache
from pathlib import Path

import pytest

import reports
from harness.records.file import load
from tests.reports import page_checks
from tests.reports.page_checks import CHECKS
from tests.results_factory import CASE, LAYER, careful, history, mixed

pytestmark = pytest.mark.browser

RESULTS = Path(__file__).parents[2] / "results/h200"
PAGES = {
    "timed": lambda: load(RESULTS / "fast-llm.jsonl.bz2"),
    "verified": lambda: load(RESULTS / "verify-peers.jsonl.bz2"),
    "mixed": mixed,
    "careful": careful,
    "history": lambda: history(runs=12, step=1.05, at=6, cases=(CASE, LAYER)),
}


@cache
def text_of(name):
    return reports.render(PAGES[name](), "html")


# A click on each of a hundred heads takes long on a large page; `careful` has tables of the same kinds.
TRIED = [
    (check, name) for check in CHECKS for name in PAGES if (check.__name__, name) != ("sorts_by_click", "verified")
]


@pytest.mark.parametrize(("check", "name"), TRIED, ids=[f"{check.__name__}-{name}" for check, name in TRIED])
def test_a_page(check, name, opener, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(text_of(name), encoding="utf-8")
    check(opener(path))


FAULTS = {
    "figures sorted as text": ("sorts_by_click", "if (!numeric) return text;", "return text;"),
    "one direction": ("sorts_by_click", 'direction === "ascending" ? 1 : -1', "1"),
    "nothing first": ("sorts_by_click", "return (a === null) - (b === null)", "return (b === null) - (a === null)"),
    "no focus ring": ("shows_where_the_keyboard_is", "outline: 2px solid", "outline: 0 solid"),
    "norms not filtered": ("filters_by_norm_and_implementation", "!norms.has(norm)", "false"),
    "filtered by one of both": (
        "filters_by_norm_and_implementation",
        "|| (impl !== undefined",
        "&& (impl !== undefined",
    ),
    "cases not filtered": ("filters_by_case", ".includes(text)", ".includes('')"),
    "a reason that stays hidden": ("tells_the_reason_on_demand", "</summary><div>", "</summary><div hidden>"),
    "an error": ("complains_of_nothing", "</body>", "<script>nothing()</script></body>"),
    "a remote picture": ("asks_the_network_for_nothing", "<h1>", '<img src="https://example.org/a.png" alt=""><h1>'),
    "a request by script": (
        "asks_the_network_for_nothing",
        '"use strict";',
        'fetch("https://example.org").catch(() => {});',
    ),
    "faint text in the light": ("is_readable_in_light_and_dark", "--dim: #666", "--dim: #888"),
    "no dark": ("is_readable_in_light_and_dark", "prefers-color-scheme: dark", "min-width: 99999px"),
    "a broken plot": ("shows_its_plots", "data:image/svg+xml;base64,", "data:image/svg+xml;base64,AAAA"),
    "rows that a script has to show": ("shows_every_row_without_scripts", "<tr data-", "<tr hidden data-"),
    "dead controls": ("shows_every_row_without_scripts", '<form id="filters" hidden>', '<form id="filters">'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, opener, tmp_path):
    check, sound, faulty = FAULTS[fault]
    path = tmp_path / "page.html"
    assert sound in text_of("mixed")
    path.write_text(text_of("mixed").replace(sound, faulty), encoding="utf-8")
    with pytest.raises(AssertionError):
        getattr(page_checks, check)(opener(path))


def test_a_case_that_leads_nowhere_is_found(opener, tmp_path):
    sound = 'form.elements["case"].value = link.textContent;'
    assert sound in text_of("mixed")
    path = tmp_path / "page.html"
    path.write_text(text_of("mixed").replace(sound, ""), encoding="utf-8")
    with pytest.raises(AssertionError):
        page_checks.shows_the_case_that_is_clicked(opener(path))
