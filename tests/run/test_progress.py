import io

import pytest
from rich.console import Console

from harness.cases import NormCase
from harness.records.schema import RowRecord
from harness.run.progress import Display

CASE = NormCase("rms", 16, 64, device="cpu")
OTHER = NormCase("rms", 32, 64, device="cpu")


def row(impl, status, reason=None, **more):
    return RowRecord(case=CASE, impl=impl, status=status, reason=reason, **more)


def play(display):
    """A run of two cases."""
    with display.cases(2):
        with display.compiling(3) as advance:
            for _ in range(3):
                advance()
        display.case(CASE)
        display.step(None, "inputs")
        display.step("a", "verify")
        display.row(row("a", "ok"))
        display.row(row("b", "ok"))
        display.row(row("b", "ok", role="again"))
        display.row(row("c", "wrong", "dx is [bold] off"))
        display.row(row("d", "missing", "not installed: d"))
        display.case_done()
        display.case(OTHER)
        display.row(row("a", "timeout", "no sign of life"))
        display.case_done()


def test_progress_without_terminal_is_a_line_a_case(capsys):
    """Each failure has a line of its own."""
    play(Display())
    captured = capsys.readouterr()
    assert captured.out == ""  # standard output holds the report alone
    assert captured.err.splitlines() == [
        "compiling 3 backwards ahead",
        "rms-16x64-bf16 c: wrong: dx is [bold] off",
        "rms-16x64-bf16: 2 ok, 1 wrong, 1 missing",
        "rms-16x64-bf16 a: timeout: no sign of life",
        "rms-32x64-bf16: 1 timeout",
    ]


def test_progress_on_terminal_is_a_bar_and_failures():
    display, screen = Display(), io.StringIO()
    display._console = Console(file=screen, force_terminal=True, width=200, legacy_windows=False)
    play(display)
    text = screen.getvalue()
    assert "rms-16x64-bf16 c: wrong: dx is [bold] off" in text
    assert "2 ok" not in text
    assert "2/2" in text


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "oom"])
def test_failures_are_said_at_once(capsys, status):
    Display().row(row("a", status, "because"))
    assert capsys.readouterr().err == f"rms-16x64-bf16 a: {status}: because\n"


@pytest.mark.parametrize("status", ["ok", "nondeterministic", "unsupported", "missing"])
def test_what_is_no_failure_is_counted_only(capsys, status):
    Display().row(row("a", status, "because"))
    assert capsys.readouterr().err == ""


def bar(display, screen, *steps):
    """What a bar says after steps; it is drawn anew for each."""
    display._console = Console(file=screen, force_terminal=True, width=200, legacy_windows=False)
    with display.cases(1):
        for step in steps:
            step()
            display._progress.refresh()
    return screen.getvalue()


def test_a_part_says_which_it_is_and_counts_for_the_whole(capsys):
    display = Display()
    with display.cases(2), display.part("h200 1") as part:
        part.case(CASE)
        part.row(row("c", "wrong", "off"))
        part.case_done()
        part.say("lost")
    lines = [f"{CASE.key} c: wrong: off", f"{CASE.key}: 1 wrong", "lost"]
    assert capsys.readouterr().err.splitlines() == [f"h200 1: {line}" for line in lines]


def test_parts_stand_below_each_other_on_a_terminal():
    display, screen = Display(), io.StringIO()
    display._console = Console(file=screen, force_terminal=True, width=120)
    with display.cases(2), display.part("h200 0") as first, display.part("h200 1") as second:
        first.case(CASE)
        second.case(CASE)
        assert display._progress is not None
        shown = [task.description for task in display._progress.tasks]
        first.case_done()
        assert [task.completed for task in display._progress.tasks] == [1, 1, 0]
    assert shown == ["planned", f"h200 0: {CASE.key}", f"h200 1: {CASE.key}"]


def test_a_self_test_before_any_case_stands_by_itself():
    display = Display()
    text = bar(display, io.StringIO(), lambda: display.step(None, "self-test"))
    assert "self-test" in text
    assert "·" not in text


def test_a_step_of_a_case_names_the_case():
    display = Display()
    text = bar(display, io.StringIO(), lambda: display.case(CASE), lambda: display.step("a", "verify"))
    assert "rms-16x64-bf16 · verify a" in text


def test_a_self_test_after_the_cases_stands_by_itself():
    display = Display()
    steps = (lambda: display.case(CASE), display.case_done, lambda: display.step(None, "self-test"))
    text = bar(display, io.StringIO(), *steps)
    assert "self-test" in text
    assert "·" not in text
