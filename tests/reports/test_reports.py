import subprocess
import sys

import pytest

import reports
from harness.errors import UsageError
from tests.results_factory import careful, longer, mixed, thorough

SEVERAL = {
    "gpus": [mixed(), mixed()],
    "history": [mixed(), mixed()],
    "leads": [mixed()],
    "verification": [careful(), longer()],
}


@pytest.mark.parametrize("form", ["aa", "engines", "processes"])
def test_golden(golden, form):
    golden(f"thorough.{form}.md", reports.render(thorough(), form))


@pytest.mark.parametrize("form", reports.TEXTS)
def test_every_format_reaches_a_file_and_standard_output(form, tmp_path, capsys):
    measured = SEVERAL.get(form, thorough())
    reports.write(measured, form, tmp_path / "report")
    text = (tmp_path / "report").read_text(encoding="utf-8")
    reports.write(measured, form)
    assert any(word in text for word in ("quack", "pairs", "processes", "coldness", "t0", "GPU", "clean"))
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in text.splitlines()]


def test_the_subject_and_baseline_are_passed_on():
    text = reports.render(mixed(), "pr", baseline="quack", impl="torch-eager")
    assert text.startswith(
        "torch-eager: right 2 of 2, same bits 2 of 2. Failed: quack wrong on 1. torch-eager is fastest in 0"
    )


def test_unknown_format_and_unwritable_file(tmp_path):
    with pytest.raises(UsageError, match=", ".join(reports.FORMATS)):
        reports.render(mixed(), "pdf")
    with pytest.raises(UsageError, match="--out"):
        reports.write(mixed(), "csv", tmp_path / "no" / "such" / "folder")


@pytest.mark.parametrize("form", [form for form in reports.FORMATS if form not in reports.OF_SEVERAL])
def test_only_some_formats_take_several_files(form, tmp_path):
    said = f"--format {form} takes one file, not 2; {', '.join(reports.OF_SEVERAL)} take several"
    with pytest.raises(UsageError, match=said):
        reports.write([mixed(), mixed()], form, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_reports_import_what_is_quick_to_import():
    heavy = ["torch", "triton", "scipy.stats", "arch", "pandas", "matplotlib"]
    code = f"import sys, reports; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
