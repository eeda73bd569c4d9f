"""What a person sees while a run goes on: a bar on a terminal, a line a case elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from harness.cases import NormCase
from harness.results.schema import RowRecord


class Display:
    """Progress on standard error, so that standard output holds the report alone.

    One with a `name` shows its own part of what `whole` shows.
    """

    def __init__(self, whole: Display | None = None, name: str = "") -> None:
        self._whole = whole
        self._name = name
        self._console: Console = whole._console if whole else Console(stderr=True, emoji=False)
        self._progress: Progress | None = None
        self._task = None
        self._case: NormCase | None = None
        self._statuses: Counter[str] = Counter()

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(self._named(text), highlight=False, markup=False, soft_wrap=True)

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
        """Show progress over `total` compilations; the function given counts one."""
        assert self._progress is not None, "compiling is part of a run"
        progress = self._progress
        if not self._console.is_terminal:
            self.say(f"compiling {total} backwards ahead")
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
        """A row is final; what went wrong is said at once."""
        if row.role != "impl":
            return
        self._statuses[row.status] += 1
        if row.status in ("wrong", "crashed", "timeout", "oom"):
            self.say(f"{row.case.key} {row.impl}: {row.status}: {row.reason}")

    def case_done(self) -> None:
        """A case is finished."""
        assert self._case is not None, "a case that ends has begun"
        self._advance()
        if not self._console.is_terminal:
            counted = ", ".join(f"{count} {status}" for status, count in self._statuses.items())
            self.say(f"{self._case.key}: {counted}")
        self._case = None

    def _advance(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)
        if self._whole is not None:
            self._whole._advance()

    def _describe(self, text: str) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=self._named(text))

    def _named(self, text: str) -> str:
        return f"{self._name}: {text}" if self._name else text

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description:<60}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
