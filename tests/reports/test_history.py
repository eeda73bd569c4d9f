import re
from dataclasses import replace

import pytest

import reports
from harness.analysis.comparison import compare
from harness.errors import UsageError
from reports.formats.history import checked
from tests.results_factory import CASE, LAYER, helpers, history, results, row, verified_only


def render(runs):
    return reports.render(runs, "history")


def run(quack, base=100.0, started_at="2026-11-20T10:00:00+00:00", revision="aaaaaaaaaaaa", device=None, case=CASE):
    """A run of one case with these times, of a revision and a device."""
    rows = [row("torch-eager", base, case), row("quack", quack, case), row("liger", 60.0, case, shift=1)]
    made = results(*rows, *helpers(base, 46.0, case))
    record = made.run.model_copy(update={"started_at": started_at, "revision": revision})
    if device:
        record = record.model_copy(update={"device": record.device.model_copy(update={"name": device})})
    return replace(made, run=record)


LATER = run(48.0, started_at="2026-11-21T10:00:00+00:00", revision="bbbbbbbbbbbb")
ELSEWHERE = run(40.0, base=90.0, device="NVIDIA B200")


def test_golden(golden):
    golden("history.md", render([run(50.0), LATER, ELSEWHERE]))


def cells(text, title, impl):
    """The cells of an implementation in the table under a title."""
    (line,) = [line for line in text.split(title)[1].split("##")[0].splitlines() if f" {impl} " in line]
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


def test_two_devices_stand_under_their_names():
    text = render([run(50.0), ELSEWHERE])
    heads = [line for line in text.splitlines() if line.startswith("| case")]
    assert [[cell.strip() for cell in line.strip("|").split("|")][2:] for line in heads] == [
        ["NVIDIA H200", "NVIDIA B200"]
    ] * 3
    assert cells(text, "rms: % of the device's add", "quack") == ["92.0", "115.0"]
    assert "- run 2: 3 of 3 right, same bits. quack is fastest in 1 of 1 case on this GPU." in text


def test_runs_of_one_device_stand_under_their_numbers():
    text = render([run(50.0), LATER])
    assert "% of the device's add" not in text
    heads = [line.split() for line in text.splitlines() if line.startswith("| case")]
    assert heads == [["|", "case", "|", "impl", "|", "run", "1", "|", "run", "2", "|"]] * 2


def test_a_case_that_only_one_run_has_is_left_out():
    both = [run(50.0), run(48.0, case=LAYER), LATER]
    assert checked([compare(each) for each in both]) == [CASE]
    assert "## layer" not in render(both)


def test_many_runs_are_a_history():
    text = render(history(runs=16, step=1.05))
    assert "NVIDIA H200, 16 runs: 1 of 3 series changed." in text
    (line,) = [line for line in text.splitlines() if "| quack " in line]
    assert re.search(r"\+[45]\.\d % at run 9 \(000000000\) .* 15 .* wrong in run 12", line)
    apart = render(history(runs=16, step=1.05, changed={"engine_version": 2}))
    assert "0 of 3 series changed" in apart
    assert "engine 0 -> 2" in apart


def test_the_page_of_several_runs_is_small_and_has_their_plot(tmp_path):
    page = reports.render(history(runs=16, step=1.05), "html")
    assert "1 of 3 series changed" in page
    assert len(page) < 300_000
    reports.write(history(runs=16, step=1.05), "plots", tmp_path)
    assert re.search(r">\+[45]\.\d %<", (tmp_path / "history-rms.svg").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([LATER], "shows several files side by side"),
        ([LATER, run(48.0, case=LAYER)], "no case in common"),
        ([LATER, verified_only()], "file 2 holds no times"),
    ],
)
def test_files_that_cannot_stand_beside_each_other(runs, why):
    with pytest.raises(UsageError, match=why):
        reports.render(runs, "history")
