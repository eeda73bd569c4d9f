import io
import re

from rich.console import Console
from rich.text import Text

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
        "rms-16x64-bf16: 2 ok, 1 wrong",
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


def test_a_bar_keeps_its_clock_at_80_columns():
    display, screen = Display(), io.StringIO()
    display._console = Console(file=screen, force_terminal=True, width=80, legacy_windows=False)
    with display.cases(1000), display.part("nvidia-h200-nvl host-with-a-long-name 7") as part:
        part.case(OTHER)
        part.step("torch-compiled-nonstrict", "compile ahead")
        part._progress.advance(part._parent._task, 1000)
        part._progress.refresh()
    lines = [Text.from_ansi(line).plain.rstrip() for line in re.split(r"[\r\n]", screen.getvalue())]
    bars = [line for line in lines if "/" in line]
    assert any("1000/1000" in line for line in bars)
    assert any("…" in line for line in bars)
    assert all(len(line) <= 80 and "0:00:00" in line for line in bars), bars


def test_a_part_says_which_it_is_and_counts_for_the_whole(capsys):
    display = Display()
    with display.cases(2), display.part("h200 1") as part:
        part.case(CASE)
        part.row(row("c", "wrong", "off"))
        part.case_done()
        part.say("lost")
    lines = [f"{CASE.key} c: wrong: off", f"{CASE.key}: 1 wrong", "lost"]
    assert capsys.readouterr().err.splitlines() == [f"h200 1: {line}" for line in lines]
