"""Text that a results file holds is shown as text, whatever it holds, and what is shown first is right or wrong."""

import re

import pytest

import reports
from harness.analysis.comparison import compare
from harness.records.run_records import SideRecord
from reports.parts.answers import headline
from tests.results_factory import helpers, results, row

pytestmark = pytest.mark.filterwarnings("ignore:Glyph 27")  # matplotlib has no picture of an escape
EVIL = "<script>alert(1)</script> \\| `x` \x1b[2J\n# injected\n$\\frac$ <img src=x>"


def evil(timed=True):
    """A file with EVIL in the fields that reports show."""
    wrong = row(f"wrong {EVIL}", 20.0, status="wrong", reason=EVIL)
    rows = [row("torch-eager", 100.0), row(EVIL, 50.0), wrong, *helpers(100.0, 46.0)]
    file = results(*rows) if timed else results(*(each.model_copy(update={"timing": None}) for each in rows[:3]))
    device = file.run.device.model_copy(update={"name": EVIL, "driver": EVIL})
    more = {"device": device, "command": EVIL, "revision": EVIL, "libraries": {EVIL: EVIL}}
    settings = file.run.settings.model_copy(update={"timed": timed})
    return file.__class__(**{**vars(file), "run": file.run.model_copy(update={**more, "settings": settings})})


@pytest.mark.parametrize("form", ["markdown", "pr", "grid", "verification", "console", "html"])
def test_text_is_neither_markup_nor_a_line_nor_an_escape(form):
    text = reports.render(evil(timed=form != "verification"), form)
    assert "alert(1)" in text
    if form == "html":  # where line breaks and escapes mean nothing
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        return
    assert "\x1b" not in text
    assert not re.search(r"^# injected", text, re.MULTILINE)
    if form != "console":
        outside_code = re.sub(r"`[^`\n]*`", "", text)
        assert not re.search(r"(?<!\\)<(script|img)", outside_code)


def test_plots_take_a_dollar_for_a_dollar(tmp_path):
    from reports.plots import draw

    assert draw.write(compare(evil()), tmp_path)


def test_a_comparison_names_both_commits_after_what_failed():
    rows = [row("quack@base", 100.0), row("quack@head", 50.0, status="wrong", reason="off"), *helpers(100.0, 46.0)]
    file = results(*rows, baseline="quack@base")
    sides = [SideRecord(word=word, commit=letter * 40) for word, letter in (("base", "a"), ("head", "b"))]
    comparison = compare(file.__class__(**{**vars(file), "run": file.run.model_copy(update={"sides": sides})}))
    text = headline(comparison, "quack@head")
    assert text.startswith("quack@head: right 0 of 1, same bits 0 of 0. Failed: quack@head wrong on 1. ")
    assert "Base is commit aaaaaaaaaaaa, head is commit bbbbbbbbbbbb." in text
