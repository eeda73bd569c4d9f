"""What this project claims of its own kernel: of what its first run measures, and true of what is published."""

from pathlib import Path

from harness.gate.limits import read_limits
from harness.results.published.planned import file_of, read_plan
from harness.results.settings import DEFAULT_BASELINE
from harness.run.plan import select
from harness.worker.discovery import discover
from harness.worker.serve import record
from tests.test_command_line import typed

ROOT = Path(__file__).parents[2]


def test_claims_are_of_what_the_most_important_run_measures():
    run = next(iter(read_plan().runs.values()))
    known = [record(item) for item in discover() if item.source.startswith("impls/")]
    chosen = {item.name for item in select(known, run.settings.impls, None, DEFAULT_BASELINE)}
    claimed = {name for claim in read_limits(ROOT / "gate.toml").claim for name in claim.names}
    assert claimed <= chosen


def test_claims_hold_of_the_published_run(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert typed(f"gate {file_of('h200', 'fast-llm')}") in (0, None)
    assert "PASS" in capsys.readouterr().out
