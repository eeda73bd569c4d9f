"""What the README claims is what a command of this project writes from a published file."""

import re
from pathlib import Path

import pytest

import reports
from harness.records import RANKED
from harness.results import load

ROOT = Path(__file__).parent.parent
PUBLISHED = sorted((ROOT / "results").rglob("*.jsonl.gz"))
BLOCK = re.compile(
    r"<!-- `normbwd report (?P<files>[^`]+?) --format (?P<form>\w+)` -->\n(?P<text>.*?)<!-- end -->", re.DOTALL
)


PAGES = ["README.md", "docs/method.md", "docs/peers.md", "docs/results.md", "docs/verification.md"]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_what_the_report_writes(page):
    blocks = list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))
    assert blocks
    for block in blocks:
        results = [load(ROOT / file) for file in block["files"].split()]
        assert block["text"].strip() == reports.render(results, block["form"]).strip(), block["files"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_runs_are_finished_clean_and_small(path):
    results = load(path)
    assert results.end is not None
    assert results.run.revision
    assert "dirty" not in results.run.revision
    assert results.run.device.profile == path.parent.name
    if results.run.settings.timed:  # a verification is there to show what fails
        assert {row.status for row in results.rows} <= {*RANKED, "unsupported"}
    assert all(row.timing.proven for row in results.rows if row.timing)
    assert path.stat().st_size < 300_000


def test_there_are_published_runs():
    assert PUBLISHED
