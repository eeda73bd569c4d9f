"""The commands and their exit codes.

0 ok, 1 a check failed, 2 bad usage or input, 3 inconclusive, 4 the environment cannot do it; 130 interrupted.
"""

from __future__ import annotations

if __name__ == "__main__":  # what follows takes a second to import, in which an interrupt may come
    from harness import interrupts

    interrupts.main()  # imports this file under its own name, and exits

import gc
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from harness import __version__
from harness.defaults import OWN_IMPL
from harness.engine_version import ENGINE_VERSION
from harness.errors import UnavailableError, UsageError, printable
from harness.interrupts import Interrupts
from harness.records.contexts import COLD
from harness.records.file import Results, SameCodeError, in_folder, load
from harness.records.schema import RANKED
from harness.run.invocation import Invocation
from harness.run.opening import refuse_folder
from harness.run.options import BENCH, MACHINE_OPTIONS, RUN_OPTIONS, command_line, options
from harness.run.resolve import PROCESSES_OF_A_CLAIM, check, with_default_processes
from harness.streams import make_forgiving

# What follows a refusal is imported inside the commands, which must refuse a bad name within a second.

# What Typer raises for an unknown option or a value of the wrong type; it exports only this subclass.
TyperUsageError = cast(type[Exception], typer.BadParameter.__mro__[1])

app = typer.Typer(
    name="normbwd",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"normbwd {__version__}, engine {ENGINE_VERSION}\n")
        raise typer.Exit


@app.callback()
def normbwd(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Tell which norm backward is right, deterministic and fastest on this GPU, by how much, and how sure that is."""


ENDING_SIGNALS = [each for each in signal.Signals if each.name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")]
FLEET_OPTIONS = ("fleet", "kinds", "gpus", "dry_run")
CLAIM_DEFAULT = f"(default: {PROCESSES_OF_A_CLAIM}; with --quick 1)"
FOLDERS_TOO: Any = {"callback": lambda paths: [in_folder(path) for path in paths]}  # of runs
CONSOLE_OR_JSON = Annotated[str, typer.Option("--format", help="of what is printed: console or json")]
UNFINISHED = "folder of unfinished runs (default: runs/publish-DEVICE)"


@app.command()
@options(*BENCH, *FLEET_OPTIONS)
def bench(invocation: Invocation) -> None:
    """Verify and time implementations, interleaved, and print the comparison; with --fleet on many GPUs at once."""
    if invocation.format == "json" and (invocation.dry_run or invocation.fleet is not None):
        raise UsageError("--format json: is of one measured run; leave out --dry-run and --fleet")
    if invocation.dry_run:
        check(invocation)
        from harness.fleet.preview import describe_plan
        from harness.run.progress import Display

        sys.stdout.write(describe_plan(invocation, Display()))
        return
    _measure_and_report(invocation)


def is_json(form: str) -> bool:
    """Whether --format asks for JSON; raises UsageError where it is neither that nor `console`."""
    if form not in ("console", "json"):
        raise UsageError(f"--format {form}: not one of console, json")
    return form == "json"


def _measure_and_report(invocation: Invocation, form: str = "console", impl: str | None = None) -> Results:
    """Refuse what is wrong on any device, then measure and report."""
    check(invocation)
    if invocation.fleet is None:
        refuse_folder(invocation.out, invocation.resume)
    from harness.answer import measure_and_report

    return measure_and_report(invocation, "json" if invocation.format == "json" else form, impl)


@app.command()
@options(*RUN_OPTIONS, "inputs", "seeds", "repeats", "sanitizer")
def verify(invocation: Invocation) -> None:
    """Verify implementations without timing them; exit 1 where one is wrong or fails, or a sanitizer finds an error.

    Without shapes or a suite: the catalogue, every kind of inputs at one shape and the usual kind at many.
    """
    results = _measure_and_report(invocation.changed(timed=False))
    failed = any(row.status not in (*RANKED, "unsupported", "missing") for row in results.rows)
    raise typer.Exit(1 if failed or any(record.errors for record in results.sanitized) else 0)


@app.command()
@options(
    *RUN_OPTIONS,
    *("base", "head", "even_if_same", "flush", "quick", "processes"),
    impls="the one implementation whose revisions are compared: a name, no pattern",
    impl_files="the file of its adapter, where it is not one of this project's",
    processes=f"fresh processes that measure every case {CLAIM_DEFAULT}",
)
def compare(invocation: Invocation) -> None:
    """Measure two revisions of one implementation (--impls NAME) in the same blocks."""
    from harness.run.compare import compared_name, revisions_chosen

    name = compared_name(invocation)  # what it refuses comes first
    check(invocation)
    refuse_folder(invocation.out, invocation.resume)
    with revisions_chosen(with_default_processes(invocation)) as chosen:
        from harness.answer import answer_same_code

        if not answer_same_code(chosen, name):
            _measure_and_report(chosen, "pr", f"{name}@{chosen.sides[1].word}")


@app.command()
@options(
    *RUN_OPTIONS,
    *("quick", "processes"),
    impls=f"names or patterns, a,b-*,... (default: those of --impl, else {OWN_IMPL})",
    processes=f"fresh processes that measure the winners once more {CLAIM_DEFAULT}",
    out="folder of the results (default: runs/TIME-DEVICE-tune)",
    resume="go on with an interrupted tuning, of --out or the latest",
)
def tune(invocation: Invocation) -> None:
    """Measure the configurations that implementations offer, and write the fastest to a file for `bench --tuned`.

    Without --impls those of the in-house kernel, which a model takes from the file that NORMBWD_LAUNCHES names.
    """
    check(invocation)  # before what takes long to import
    from harness.answer import exit_code_of_rows, print_resume_hint
    from harness.outputs import print_json
    from harness.run.progress import Display
    from harness.tune.sweep import tune as run_tune
    from reports.parts import tuning

    display = Display()
    with print_resume_hint(invocation, display):
        file, path, sweeps = run_tune(with_default_processes(invocation), display)
    if invocation.format == "json":
        print_json(file)
    else:
        sys.stdout.write(tuning.render(file))
    display.say(f"tuned: {path}")
    if code := exit_code_of_rows(
        [row for swept in sweeps for row in swept.rows if row.impl == swept.run.settings.baseline]
    ):
        raise typer.Exit(code)


def _load_all(paths: Sequence[Path], forms: Mapping[Path | None, str]) -> list[Results]:
    """The files, which stay in memory: the collector need not look through them again and again.

    Where the only one says that nothing was measured, that is written in the `forms`, by file, and the command passes.
    """
    try:
        runs = [load(path) for path in paths]
    except SameCodeError as same:
        if len(paths) > 1 or not {"console", "pr", "json"}.issuperset(forms.values()):
            raise
        from reports import write_same_code

        for out, form in forms.items():
            write_same_code(same.record, form, out)
        raise typer.Exit from None
    gc.freeze()
    return runs


@app.command()
def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="a results.jsonl or a run's folder; several for runs or devices side by side, of which html and plots "
            "are a history, or for verification",
            **FOLDERS_TOO,
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="console, markdown, verification, history, leads, grid, pr, html, csv, json, kernels, plots, "
            "all-plots, a dashboard's: github-action-benchmark, pytorch-hud, or a study of the engine: selftest, "
            "engines, aa, processes, gpus, first-call (default: console, of several files history)",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write to this file instead of printing; for plots a folder")] = None,
    baseline: Annotated[str | None, typer.Option(help="what speedups are over")] = None,
    subject: Annotated[
        str | None, typer.Option(help="name of the implementation whose pull request it is, for --format pr")
    ] = None,
    impl: Annotated[str | None, typer.Option(hidden=True)] = None,  # the older name of --subject
    context: Annotated[str, typer.Option(help="what the tables of cases are about, such as beside:8")] = COLD,
) -> None:
    """Write a results file as tables or plots; needs no GPU and no implementation."""
    if out is not None and any(out.resolve() == path.resolve() for path in results):
        raise UsageError(f"--out {out}: is the results file itself; name another file")
    form = form or ("console" if len(results) == 1 else "history")
    subject = subject or impl
    if subject is not None and form != "pr":
        raise UsageError(f"--subject {subject}: is of --format pr; add that, or leave --subject out")
    runs = _load_all(results, {out: form})
    import reports  # not before a file that cannot be read is refused

    reports.write(runs, form, out, baseline=baseline, impl=subject, context=context)


@app.command()
def documents(
    check: Annotated[
        bool, typer.Option("--check", help="write nothing, name what would change; exit code 1 where anything would")
    ] = False,
) -> None:
    """Write every document of published results, and the page site/index.html; needs no GPU."""
    from harness.outputs import schemas
    from reports.published.documents import write_all

    changed = write_all(check, more=schemas())
    for path in changed:
        sys.stdout.write(f"{path}\n")
    if check and changed:
        sys.stdout.write(
            f"{len(changed)} would change; `normbwd documents` writes {'it' if len(changed) == 1 else 'them'}\n"
        )
        raise typer.Exit(1)


@app.command()
def gate(
    results: Annotated[list[Path], typer.Argument(help="the results.jsonl of one run, or its folder", **FOLDERS_TOO)],
    config: Annotated[Path, typer.Option(help="the claims and the regressions to look for")] = Path("gate.toml"),
    confirm: Annotated[
        bool, typer.Option("--confirm", help="measure what failed on speed again, here, before it counts as regressed")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help=f"fresh processes that confirm (default: {PROCESSES_OF_A_CLAIM})")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the run that confirms (default: confirm-TIME beside the results)")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with an interrupted one, of --out or the latest")
    ] = False,
    allow_others: Annotated[bool, typer.Option("--allow-others", help="measure although others use the GPU")] = False,
    impl: Annotated[
        list[Path] | None, typer.Option("--impl", help="the file of an adapter in the run, which confirms it")
    ] = None,
    tuned: Annotated[list[Path] | None, typer.Option("--tuned", help="the file of `tune` in the run")] = None,
    comment: Annotated[
        Path | None, typer.Option(help="also write `report --format pr` with these verdicts to a file")
    ] = None,
    form: CONSOLE_OR_JSON = "console",
) -> None:
    """Judge a results file against limits; exit 0 pass, 1 regressed, 3 inconclusive, 2 nothing measured.

    With --confirm what failed on speed is measured again and fails only if it does so again; exit 4 where it cannot be.
    """
    if not confirm and (processes is not None or out is not None or resume or allow_others or impl or tuned):
        options = "--processes, --out, --resume, --allow-others, --impl and --tuned"
        raise UsageError(f"{options} are of the run that confirms; add --confirm")
    as_json = is_json(form)
    runs = _load_all(results, {comment: "pr", None: form})
    import reports
    from harness.analysis.verdicts import exit_code
    from harness.gate.confirm import confirm as measure_again
    from harness.gate.judge import judge, not_judged, only
    from harness.gate.limits import read_limits
    from harness.outputs import GateOutput, print_json
    from reports.parts import verdicts

    run = only(runs)
    limits = read_limits(config)
    judged = judge(run, limits)
    left_out, path = not_judged(run, limits, judged), None
    if not as_json:
        sys.stdout.write(verdicts.render(judged))
        sys.stdout.writelines(f"{why}: {', '.join(words)}\n" for why, words in left_out.items())
        sys.stdout.flush()  # the verdicts so far are shown even if measuring again fails
    if comment:
        reports.write_comment(run, judged, comment)
    if confirm:
        from harness.answer import print_resume_hint
        from harness.run.progress import Display

        invocation = Invocation(out=out, resume=resume, allow_others=allow_others, command=command_line())
        files = {"impl_files": tuple(impl or ()), "tuned_files": tuple(tuned or ())}
        invocation = invocation.changed(processes=processes or PROCESSES_OF_A_CLAIM, **files)
        display = Display()
        with print_resume_hint(invocation, display):
            confirmed = measure_again(judged, limits, run.run, results[0], invocation, display)
        if confirmed is not None:
            judged, path = confirmed
            if not as_json:
                sys.stdout.write(f"\nMeasured again: {path}\n\n{verdicts.render(judged)}")
            if comment:
                reports.write_comment(run, judged, comment)
    if as_json:
        print_json(GateOutput(exit_code(judged), judged, left_out, str(path) if path else None))
    raise typer.Exit(exit_code(judged))


@app.command()
@options(*MACHINE_OPTIONS, "minutes", "only", "fleet", "gpus", "dry_run", "check", out=UNFINISHED)
def publish(invocation: Invocation) -> None:
    """Measure what of results/plan.toml is missing or stale on a GPU, and publish it in results/DEVICE.

    It goes on with what an earlier call left unfinished. Exit 1 where nothing in a run passed, and with --check where
    a file may not be published.
    """
    from harness.publish import admission, publishing

    if invocation.check and invocation.dry_run:
        raise UsageError("--check and --dry-run do not go together; give one of them")
    if invocation.check:
        judged = admission.judge_published(invocation.only)
        sys.stdout.write(admission.lines(judged))
        raise typer.Exit(1 if any(judged.values()) else 0)
    from harness.run.progress import Display

    display, begun_s = Display(), time.monotonic()
    surveys = publishing.survey_plan(invocation, display)
    if invocation.dry_run:
        sys.stdout.write("\n".join(survey.lines(tasks) for survey, tasks in surveys))
        from harness.run.newer import newer_text
        from harness.run.session import library_versions
        from harness.worker.libraries import installed

        hello = surveys[0][0].hello
        if found := newer_text(installed() | library_versions(hello, hello.implementations)):
            sys.stdout.write(f"{found}\n")
        return
    ((survey, tasks),) = surveys
    try:
        fates = publishing.publish(survey, tasks, display, begun_s)
    except KeyboardInterrupt:
        _complain("interrupted; what is done is kept, and the same command goes on from it")
        raise SystemExit(130) from None
    for fate, said in (
        ("published", "published"),
        ("unfinished", "left for another call of the same command"),
        ("failed", "nothing passed in"),
    ):
        if names := ", ".join(name for name, of_run in fates.items() if of_run == fate):
            display.say(f"{said}: {names}")
    if "published" in fates.values():
        display.say(
            "next: normbwd publish --check (may they be published?), then normbwd documents (what is made of them)"
        )
    raise typer.Exit(1 if "failed" in fates.values() else 0)


@app.command()
@options(*MACHINE_OPTIONS, "seed", "format")
def selftest(invocation: Invocation) -> None:
    """Test the engine on work of which the time is known: its error budget here; exit 1 where a check failed."""
    check(invocation)
    refuse_folder(invocation.out, invocation.resume)
    from harness.run.progress import Display
    from harness.run.session import bench as run_bench

    display = Display()
    path = run_bench(invocation.changed(selftest_alone=True), display)
    records = load(path).selftests
    from harness.outputs import SelfTestOutput, print_json
    from reports.parts import selftest as page  # takes scipy

    failed = not records or any(check.passed is False for record in records for check in record.checks)
    if invocation.format == "json":
        print_json(SelfTestOutput(int(failed), str(path), records))
    else:
        sys.stdout.write(page.render(records))
    display.say(f"results: {path}")
    raise typer.Exit(int(failed))


@app.command()
def judge(
    file: Annotated[
        Path, typer.Argument(help="the file of an adapter that nobody trusts; it never runs in this process")
    ],
    shapes: Annotated[str | None, typer.Option(help="ROWSxCOLS,... (default: 8192x4096, on a CPU 512x1024)")] = None,
    norm: Annotated[str | None, typer.Option(help="rms, layer or both (default: those that it supports)")] = None,
    dtype: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32 (default: bf16, on a CPU fp32)")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu")] = "auto",
    peers: Annotated[
        str | None, typer.Option(help="trusted implementations to compare with, the first is the baseline")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="seconds that it may take to import, prepare or answer")] = 300.0,
    form: CONSOLE_OR_JSON = "console",
) -> None:
    """Judge a kernel that nobody trusts: right or wrong, deterministic, how fast; exit 0 right, 1 not, 3 inconclusive.

    docs/judge.md says what it withstands.
    """
    from harness.judge import command
    from harness.judge.trial import JudgeSettings

    as_json = is_json(form)
    if device not in ("auto", "cpu", "gpu"):
        raise UsageError(f"--device {device}: not one of auto, cpu, gpu")
    on_gpu = device == "gpu" or (device == "auto" and command.gpu_is_here())
    cases = command.asked_cases(shapes, norm or "both", dtype, on_gpu)
    say = (lambda _: None) if as_json else (lambda case: sys.stdout.write(f"{command.in_words(case)}\n"))
    chosen = command.asked_peers(peers, on_gpu)
    settings = JudgeSettings(time_limit_s=time_limit)
    verdict = command.judge(file, cases, chosen, settings, say, each_norm=norm is not None)
    sys.stdout.write(f"{verdict.model_dump_json(indent=1)}\n" if as_json else f"verdict: {verdict.status}\n")
    raise typer.Exit(verdict.exit_code)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="impls, suites, variants, contexts or devices")],
    impl: Annotated[list[Path] | None, typer.Option("--impl", help="a file with an adapter; may be repeated")] = None,
    newer: Annotated[bool, typer.Option("--newer", help="ask PyPI which libraries have a newer release")] = False,
    form: CONSOLE_OR_JSON = "console",
) -> None:
    """Say what is known and what is available here, with the reason where something is missing."""
    from harness.run import listing

    if (impl or newer) and what != "impls":
        raise UsageError(f"{'--impl' if impl else '--newer'}: adds to `list impls` alone; leave it out")
    as_json = is_json(form)
    if newer and as_json:
        raise UsageError("--newer: is text alone; leave out --format json")
    listed = listing.listing(what, tuple(impl or ()))
    if as_json:
        from harness.outputs import print_json

        print_json(listed)
        return
    from rich.console import Console

    listing.show(listed, Console(emoji=False))
    if newer:
        from harness.run.newer import newer_text
        from harness.worker.libraries import installed

        found = newer_text(installed() | {name: each for item in listed.impls for name, each in item.libraries.items()})
        sys.stdout.write(f"\n{found or 'nothing newer is known to PyPI, or it cannot be asked'}\n")


@app.command()
def serve(
    root: Annotated[
        Path, typer.Option(help="folder of the files that tools may read, and of runs/", file_okay=False, exists=True)
    ] = Path(),
) -> None:
    """Serve tools for agents by the Model Context Protocol, over standard input and output."""
    try:
        from harness import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        raise UnavailableError("serve needs the package mcp: pip install 'mcp>=2.3'") from error
    mcp_server.serve(root)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with the code of the answer. SIGTERM, SIGHUP and SIGQUIT end it as Ctrl-C does."""
    make_forgiving()
    before, interrupts = {number: signal.getsignal(number) for number in ENDING_SIGNALS}, Interrupts()
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # `nohup` ignores SIGHUP
            signal.signal(number, interrupts)
    try:
        _refuse_unusable(sys.argv[1:] if arguments is None else arguments)
        code = app(arguments, prog_name="normbwd", standalone_mode=False)  # errors are printed below, in one line
        sys.stdout.flush()  # while what cannot be written ends in one line
        if code == 130:  # Typer turns an interrupt into an exit
            _complain("interrupted")
    except (UsageError, UnavailableError) as error:
        _complain(str(error))
        code = error.exit_code
    except TyperUsageError as error:
        _complain_of_usage(error)
        code = UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        code = 130
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.exit(code)


def _refuse_unusable(arguments: Sequence[str]) -> None:
    """Raise UsageError for an empty --out, and for an argument that is not UTF-8: results state the command line."""
    for argument in arguments:
        if any("\ud800" <= letter <= "\udfff" for letter in argument):
            raise UsageError(f"{argument!a}: is not UTF-8; give another name")
    if "--out=" in arguments or ("--out", "") in pairwise(arguments):
        raise UsageError("--out is empty; name a folder")


def _complain_of_usage(error: Any) -> None:
    """Say what Typer found wrong; it has no message where it has shown the help."""
    if message := error.format_message().rstrip("."):
        command = error.ctx.command_path if error.ctx else "normbwd"
        _complain(f"{message}; try `{command} --help`")


def _complain(text: str) -> None:
    if not sys.stderr.isatty():
        sys.stderr.write(f"error: {printable(text)}\n")
        return
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, soft_wrap=True, emoji=False).print(
        f"[red]error:[/red] {escape(printable(text))}", highlight=False
    )
