"""The progress of a run on standard error: a bar on a terminal, otherwise a line for each case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from harness.cases import NormCase
from harness.records.reason_texts import sentence
from harness.records.schema import FAILED, RowRecord

BESIDE_TEXT = 10 + 9 + 2 * 7 + 4  # characters: the bar, `1000/1000`, two clocks, and what is between


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 case` and `3 cases`."""
    return f"{number} {noun}{'s' * (number != 1)}"


class Display:
    """Progress on standard error, so that standard output holds the report alone.

    A part, such as one GPU of a fleet, has a `name` and the `parent` display.
    """

    def __init__(self, parent: Display | None = None, name: str = "") -> None:
        self._parent = parent
        self._name = name
        self._console: Console = parent._console if parent else Console(stderr=True, emoji=False)
        self._progress: Progress | None = None
        self._task = None
        self._case: NormCase | None = None
        self._statuses: Counter[str] = Counter()

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(self._prefixed(text), highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def part(self, name: str) -> Generator[Display]:
        """Show progress of a part of the run, such as one GPU of several, on a line of its own."""
        part = Display(self, name)
        if self._progress is not None:
            part._progress = self._progress
            part._task = self._progress.add_task(name, total=None)
        yield part
        if part._progress is not None and part._task is not None:
            part._progress.remove_task(part._task)

    @contextmanager
    def cases(self, total: int) -> Generator[None]:
        """Show progress over `total` cases."""
        with self._bar() as progress:
            self._progress = progress
            self._task = progress.add_task("planned", total=total)
            yield
            self._progress = None

    @contextmanager
    def compiling(self, total: int) -> Generator[Callable[[], None]]:
        """Show progress over `total` compilations; yields the function that counts one."""
        assert self._progress is not None, "compiling is part of a run"
        progress = self._progress
        if not self._console.is_terminal:
            self.say(f"compiling {counted(total, 'backward')} ahead")
        task = progress.add_task("compiling ahead", total=total)
        yield lambda: progress.advance(task)
        progress.remove_task(task)

    def case(self, case: NormCase) -> None:
        """A case begins."""
        self._case = case
        self._statuses.clear()
        self._describe(case.key)

    def step(self, impl: str | None, stage: str) -> None:
        """An implementation enters a stage."""
        where = f"{self._case.key} · " if self._case else ""
        self._describe(f"{where}{stage} {impl or ''}".rstrip())

    def row(self, row: RowRecord) -> None:
        """A row is final; a failure is printed at once, and what is missing was said before the first case."""
        if row.role != "impl" or row.status == "missing":
            return
        self._statuses[row.status] += 1
        if row.status in FAILED:
            why = f": {sentence(row.reason)}" if row.reason else ""
            self.say(f"{row.case.key} {row.impl}: {row.status}{why}")

    def case_done(self) -> None:
        """A case is finished."""
        assert self._case is not None, "a case that ends has begun"
        self._advance()
        if not self._console.is_terminal:
            counts = ", ".join(f"{count} {status}" for status, count in self._statuses.items())
            self.say(f"{self._case.key}: {counts or 'nothing to run'}")
        self._case = None

    def _advance(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)
        if self._parent is not None:
            self._parent._advance()

    def _describe(self, text: str) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=self._prefixed(text))

    def _prefixed(self, text: str) -> str:
        return f"{self._name}: {text}" if self._name else text

    def _bar(self) -> Progress:
        width = min(60, max(10, self._console.width - BESIDE_TEXT))  # a line that wraps is drawn again and again
        return Progress(
            TextColumn("{task.description}", table_column=Column(width=width, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
