"""What the README claims is what a command of this project writes from a published file."""

import re
import shlex
from itertools import takewhile
from pathlib import Path

import matplotlib
import pytest

import reports
from harness.records import RANKED
from harness.results import load
from reports.plot_style import save
from reports.plots import draw

ROOT = Path(__file__).parent.parent
PUBLISHED = sorted((ROOT / "results").rglob("*.jsonl.bz2"))
BLOCK = re.compile(
    r"<!-- `normbwd report (?P<files>[^`]+?) --format (?P<form>\w+)` -->\n(?P<text>.*?)<!-- end -->", re.DOTALL
)
PLOTS = re.compile(
    r"<!-- `normbwd report (?P<file>\S+) --format plots --out (?P<folder>\S+)` -->\n(?P<shown>.*?)<!-- end -->",
    re.DOTALL,
)
DRAWN_WITH = re.search(r"^matplotlib==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


PAGES = [
    "README.md",
    "docs/method.md",
    "docs/peers.md",
    "docs/pull-requests.md",
    "docs/results.md",
    "docs/verification.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_what_the_report_writes(page):
    blocks = list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))
    assert blocks
    for block in blocks:
        results = [load(ROOT / file) for file in block["files"].split()]
        assert block["text"].strip() == reports.render(results, block["form"]).strip(), block["files"]


@pytest.mark.skipif(
    DRAWN_WITH is None or matplotlib.__version__ != DRAWN_WITH[1], reason="another matplotlib draws other bytes"
)
def test_plots_are_what_the_report_draws(tmp_path):
    block = PLOTS.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert block
    shown = [ROOT / path for path in re.findall(r"\]\((.*?)\)", block["shown"])]
    assert len(shown) == 2
    assert set(shown) == set((ROOT / block["folder"]).iterdir())
    drawn = dict(draw(load(ROOT / block["file"])))
    for path in shown:
        save(drawn[path.stem], tmp_path / path.name)
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name
        assert path.stat().st_size < 60_000


COMMANDS = re.compile(r"(?:`|^    )normbwd report (results/[^`\n]+)", re.MULTILINE)


def test_every_format_is_told_of_with_a_command_on_published_files():
    told = set()
    for command in COMMANDS.findall((ROOT / "docs/reports.md").read_text(encoding="utf-8")):
        words = shlex.split(command)
        files = list(takewhile(lambda word: not word.startswith("--"), words))
        options = dict(zip(words[len(files) :: 2], words[len(files) + 1 :: 2], strict=True))
        assert all((ROOT / file).is_file() for file in files), command
        assert set(options) <= {"--format", "--out", "--impl"}, command
        told.add(options.get("--format", "console"))
    assert told == set(reports.FORMATS)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_runs_are_finished_clean_and_small(path):
    results = load(path)
    assert (results.end is None) == ("unfinished" in path.name)  # what was cut off says so, and nothing else does
    assert results.run.revision
    assert "dirty" not in results.run.revision
    assert results.run.device.profile == path.parent.name
    if results.run.settings.timed:  # a verification is there to show what fails
        assert {row.status for row in results.rows} <= {*RANKED, "unsupported"}
    assert all(row.timing.proven for row in results.rows if row.timing)
    assert path.stat().st_size < 300_000


@pytest.mark.parametrize("name", ["training-rms.txt", "training-layer.txt"])
def test_what_a_training_printed_is_quoted_as_it_was(name):
    quoted = (ROOT / "docs/kernel.md").read_text(encoding="utf-8").split("$ python examples/training_step.py")
    lines = quoted[1 + ("layer" in name)].split("\n\n")[0].splitlines()[1:]
    printed = (ROOT / "results/h200" / name).read_text(encoding="utf-8").splitlines()
    quoted_lines = [line.removeprefix("    ") for line in lines if line.strip()]
    assert len(quoted_lines) > 5
    assert set(quoted_lines) <= set(printed)


def test_there_are_published_runs():
    assert PUBLISHED
