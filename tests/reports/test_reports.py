import subprocess
import sys

import pytest

import reports
from harness.errors import UsageError
from tests.results_factory import mixed


@pytest.mark.parametrize("form", reports.FORMATS)
def test_every_format_reaches_a_file_and_standard_output(form, tmp_path, capsys):
    reports.write(mixed(), form, tmp_path / "report")
    text = (tmp_path / "report").read_text(encoding="utf-8")
    reports.write(mixed(), form)
    assert "triton-inhouse" in text
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in text.splitlines()]


def test_the_subject_and_baseline_are_passed_on():
    assert reports.render(mixed(), "pr", baseline="quack", impl="torch-eager").startswith("torch-eager is fastest in 0")


def test_unknown_format_and_unwritable_file(tmp_path):
    with pytest.raises(UsageError, match="console, markdown, grid, pr, csv, json"):
        reports.render(mixed(), "pdf")
    with pytest.raises(UsageError, match="--out"):
        reports.write(mixed(), "csv", tmp_path / "no" / "such" / "folder")


def test_importing_reports_imports_neither_torch_nor_the_bootstrap():
    code = "import sys, reports; print([name for name in ('torch', 'triton', 'arch', 'pandas') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
