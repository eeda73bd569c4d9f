"""The end of a command that measures: it prints the report, writes it beside the results, and sets the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import typer

from harness.records.file import RESULTS_NAME, Results, ResultsFile, load
from harness.records.run_records import SameCodeRecord, SideRecord
from harness.records.schema import RANKED, RowRecord
from harness.run.invocation import Invocation
from harness.run.opening import claimed
from harness.run.progress import Display


def measure_and_report(invocation: Invocation, form: str = "console", impl: str | None = None) -> Results:
    """Measure, print the report and write it beside the results; return the results.

    An interrupted run is reported as far as it came, with the command that resumes it. Raises typer.Exit where nothing
    passed.
    """
    from harness.run.session import InterruptedRun

    display = Display()
    with print_resume_hint(invocation, display):
        try:
            path = _measure(invocation, display)
        except InterruptedRun as interruption:
            _report(interruption.path, invocation, display, form, impl)
            raise
    results = _report(path, invocation, display, form, impl)
    if code := exit_code_of_rows(results.rows) or _exit_code_of_judged(results, invocation, impl):
        raise typer.Exit(code)
    return results


@contextmanager
def print_resume_hint(invocation: Invocation, display: Display) -> Generator[None]:
    """After an interrupt, say which command goes on with what is done, or that nothing was measured."""
    from harness.run.session import InterruptedRun

    try:
        yield
    except InterruptedRun as interruption:
        resume = "" if invocation.resume else " --resume"
        out = "" if invocation.out else f" --out {shlex.quote(str(interruption.path.parent))}"
        display.say(f"go on:   {invocation.command}{resume}{out} (what is done is kept)")
        raise
    except KeyboardInterrupt:
        display.say(f"nothing{' more' if invocation.resume else ''} was measured")
        raise


def answer_same_code(invocation: Invocation, name: str) -> bool:
    """Whether both sides of a comparison are the same code; if so, say it, and write it to --out for results."""
    from harness.run.same_code import is_same_code
    from reports import write_same_code

    if invocation.even_if_same or invocation.resume or not is_same_code(name, invocation.sides):
        return False
    sides = [SideRecord(word=side.word, commit=side.commit, file=side.named) for side in invocation.sides]
    record = SameCodeRecord(command=invocation.command, impl=name, sides=sides)
    if invocation.out:
        with claimed(path := invocation.out / RESULTS_NAME), closing(ResultsFile(path)) as file:
            file.append(record)
    write_same_code(record, invocation.format)
    return True


def _measure(invocation: Invocation, display: Display) -> Path:
    """Measure on the device of this host, or on a fleet."""
    if invocation.fleet is not None:
        from harness.fleet.spread import bench as bench_on_fleet

        return bench_on_fleet(invocation, display)
    from harness.run.session import bench as run_bench

    return run_bench(invocation, display)


def _report(path: Path, invocation: Invocation, display: Display, form: str, impl: str | None) -> Results:
    """Print the report of a file and write it beside the file, which is read and compared once."""
    import reports
    from harness.analysis.comparison import compare

    results = load(path)
    measured = any(row.status not in ("missing", "unsupported") for row in results.rows)
    if not measured and (results.end is None or results.end.interrupted):
        display.say(f"results: {path}, in which nothing was measured yet")
        return results
    comparison, markdown = compare(results), path.with_name("report.md")
    reports.write_compared([comparison], "markdown" if invocation.settings.timed else "verification", markdown)
    reports.write_compared([comparison], form, impl=impl)
    display.say(f"results: {path}\nreport:  {markdown}")
    return results


def exit_code_of_rows(rows: Sequence[RowRecord]) -> int:
    """0 where anything passed; else 4 where memory was short for all that was tried, or nothing could be; else 1."""
    tried = {row.status for row in rows if row.role == "impl"}
    if tried.intersection(RANKED):
        return 0
    return 4 if tried <= {"oom", "missing", "unsupported"} else 1


def _exit_code_of_judged(results: Results, invocation: Invocation, subject: str | None) -> int:
    """1 where the head of a comparison or what an --impl file adds did not pass, whatever others did; else 0.

    A head that refuses what its base runs did not pass.
    """
    files = {str(path) for path in invocation.impl_files}
    names = {impl.name for impl in results.run.implementations if impl.source in files} | {subject}
    baseline = results.run.settings.baseline
    run_by_base = {row.case for row in results.rows if row.impl == baseline and row.status in RANKED}

    def failed(row: RowRecord) -> bool:
        if row.status == "unsupported":
            return row.impl == subject and row.case in run_by_base
        return row.impl in names and row.status not in (*RANKED, "missing")

    return int(any(map(failed, results.rows)))
