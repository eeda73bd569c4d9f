"""The command line: what can be asked, and the exit code of the answer.

0 ok, 1 a check failed, 2 bad usage or input, 3 inconclusive, 4 the environment cannot do it; 130 interrupted.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.console import Console
from rich.markup import escape

from harness.errors import UnavailableError, UsageError
from harness.results.file import load
from harness.results.schema import RANKED, RowRecord
from harness.results.schema import Flush as FlushMode
from harness.run.progress import Display
from harness.run.settings import PROCESSES_OF_A_CLAIM, Choice

# What Typer raises for an unknown option or a value of the wrong type; it exports only this subclass.
TyperUsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])

app = typer.Typer(
    name="normbwd",
    help="Which norm backward is right, deterministic and fastest on this GPU, by how much, and how sure are we?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CASES = "Cases"
Device = Annotated[str, typer.Option(help="auto, cpu, or the device that must be here: h100, h200, b200, ...")]
Suite = Annotated[
    str | None, typer.Option(help="a named set of shapes; `list suites` names them", rich_help_panel=CASES)
]
Shapes = Annotated[str | None, typer.Option(help="ROWSxCOLS,...", rich_help_panel=CASES)]
NormOption = Annotated[str, typer.Option("--norm", help="rms, layer or both", rich_help_panel=CASES)]
DtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", help="of x and dy: bf16, fp16, fp32 (default bf16; on a CPU fp32)", rich_help_panel=CASES),
]
WeightDtype = Annotated[str | None, typer.Option(help="of weight and bias (default: as x)", rich_help_panel=CASES)]
Bias = Annotated[bool, typer.Option(help="a bias in LayerNorm", rich_help_panel=CASES)]
ZeroCentred = Annotated[
    bool, typer.Option("--zero-centred", help="multiply by 1 + weight", rich_help_panel=CASES, show_default=False)
]
Eps = Annotated[float, typer.Option(rich_help_panel=CASES)]
Impls = Annotated[str | None, typer.Option(help="names or patterns, a,b-*,... (default: all but those on request)")]
ImplFiles = Annotated[list[Path] | None, typer.Option("--impl", help="a file with an adapter; may be repeated")]
Baseline = Annotated[str | None, typer.Option(help="what speedups are over (default: torch-eager)")]
Seed = Annotated[int, typer.Option(help="of the random inputs and the order of samples")]
Flush = Annotated[str, typer.Option(help="how caches are evicted before each sample: clean, dirty or none")]
Quick = Annotated[bool, typer.Option("--quick", help="fewer blocks and repetitions: a look, not a claim")]
Processes = Annotated[int, typer.Option(help="fresh processes that measure every case: 5 where a claim is made")]
Out = Annotated[Path | None, typer.Option(help="folder of the results (default: runs/TIME-DEVICE)")]
Resume = Annotated[bool, typer.Option("--resume", help="go on with an interrupted run, of --out or the latest")]
TimeLimit = Annotated[float, typer.Option(help="seconds that one stage of one implementation may take")]
AllowOthers = Annotated[bool, typer.Option("--allow-others", help="measure although others use the GPU")]
CompileAhead = Annotated[int | None, typer.Option(help="processes that compile ahead, 0 for none (default: by cores)")]


def _shared(
    device: Device = "auto",
    suite: Suite = None,
    shapes: Shapes = None,
    norm: NormOption = "rms,layer",
    dtype: DtypeOption = None,
    weight_dtype: WeightDtype = None,
    bias: Bias = True,
    zero_centred: ZeroCentred = False,
    eps: Eps = 1e-5,
    impls: Impls = None,
    impl: ImplFiles = None,
    seed: Seed = 0,
    out: Out = None,
    resume: Resume = False,
    time_limit: TimeLimit = 300.0,
    compile_ahead: CompileAhead = None,
    allow_others: AllowOthers = False,
) -> Choice:
    return Choice(
        device=device,
        suite=suite,
        shapes=shapes,
        norm=norm,
        dtype=dtype,
        weight_dtype=weight_dtype,
        bias=bias,
        zero_centred=zero_centred,
        eps=eps,
        impls=impls,
        impl_files=tuple(impl or ()),
        seed=seed,
        out=out,
        resume=resume,
        time_limit_s=time_limit,
        compile_ahead=compile_ahead,
        allow_others=allow_others,
        command=_command(),
    )


def _measuring(command: Callable[..., None], hidden: Sequence[str] = ()) -> Callable[..., None]:
    """Give a command the options of `_shared` as well; their Choice is its first argument.

    Those `hidden`, which it refuses with a reason, are not in its help.
    """
    own = list(signature(command, eval_str=True).parameters.values())[1:]
    shared = list(signature(_shared, eval_str=True).parameters.values())
    shared = [_hidden(each) if each.name in hidden else each for each in shared]

    def run(**given: Any) -> None:
        command(_shared(**{each.name: given.pop(each.name) for each in shared}), **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    options = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
    run.__dict__["__signature__"] = Signature(options)
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def _hidden(option: Parameter) -> Parameter:
    kind, told = get_args(option.annotation)
    told = copy(told)
    told.hidden = True
    return option.replace(annotation=Annotated[kind, told])


@app.command()
@_measuring
def bench(
    choice: Choice,
    baseline: Baseline = None,
    flush: Flush = "clean",
    quick: Quick = False,
    processes: Processes = 1,
    twice: Annotated[bool, typer.Option("--twice", help="an A/A pair for every implementation")] = False,
    cross_check: Annotated[bool, typer.Option("--cross-check", help="let other engines time it as well")] = False,
) -> None:
    """Verify and time implementations, interleaved, and print the comparison."""
    choice = replace(choice, baseline=baseline, flush=_flush(flush), quick=quick, processes=processes)
    _measure_and_report(replace(choice, twice=twice, cross_check=cross_check))


@app.command()
@_measuring
def verify(
    choice: Choice,
    inputs: Annotated[str, typer.Option(help="kinds of inputs, such as normal,mean-*", rich_help_panel=CASES)] = "all",
    seeds: Annotated[int | None, typer.Option(help="inputs drawn for every case (default: 10)")] = None,
    repeats: Annotated[int | None, typer.Option(help="runs compared bit by bit (default: 300; on a CPU 12)")] = None,
    sanitizer: Annotated[
        bool,
        typer.Option("--sanitizer", help="also run compute-sanitizer's memcheck, initcheck, racecheck on small cases"),
    ] = False,
) -> None:
    """Verify implementations without timing them; exit 1 where one is wrong or fails, or a sanitizer finds an error.

    Without shapes or a suite: the catalogue, every kind of inputs at one shape and the usual kind at many.
    """
    choice = replace(choice, timed=False, inputs=inputs, seeds=seeds, repeats=repeats, sanitizer=sanitizer)
    results = load(_measure_and_report(choice))
    failed = any(row.status not in (*RANKED, "unsupported", "missing") for row in results.rows)
    raise typer.Exit(1 if failed or any(record.errors for record in results.sanitized) else 0)


@app.command()
@_measuring
def compare(
    choice: Choice,
    base: Annotated[str, typer.Option(help="the revision to compare with")],
    head: Annotated[str, typer.Option(help="the revision that is compared")] = "HEAD",
    flush: Flush = "clean",
    quick: Quick = False,
    processes: Annotated[
        int | None, typer.Option(help="fresh processes that measure every case (default: 5; with --quick 1)")
    ] = None,
) -> None:
    """Measure two revisions of one implementation (--impls NAME) in the same blocks."""
    from harness.run.compare import revisions_chosen

    if processes is None:
        processes = 1 if quick else PROCESSES_OF_A_CLAIM
    choice = replace(choice, flush=_flush(flush), quick=quick, processes=processes)
    choice.check()
    with revisions_chosen(choice, base, head) as (chosen, newer):
        _measure_and_report(chosen, "pr", newer)


@app.command()
@partial(_measuring, hidden=("impls", "impl"))
def tune(
    choice: Choice,
    quick: Quick = False,
    processes: Annotated[
        int | None, typer.Option(help="fresh processes that confirm the winners (default: 5; with --quick 1)")
    ] = None,
) -> None:
    """Find the in-house kernel's fastest launches on this GPU, and write them to a file that its choice can read.

    NORMBWD_LAUNCHES=FILE makes every later run, and a model that uses the kernel, take the launches from it.
    """
    from harness.tune.sweep import tune as run_tune
    from reports.parts import tuning

    if processes is None:
        processes = 1 if quick else PROCESSES_OF_A_CLAIM
    display = Display()
    swept, best, path = run_tune(replace(choice, quick=quick, processes=processes), display)
    sys.stdout.write(tuning.render(best))
    display.say(f"launches: {path}")
    if code := _exit_code([row for row in swept.rows if row.impl == swept.run.settings.baseline]):
        raise typer.Exit(code)


@app.command()
def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            help="a results.jsonl; several for history, verification, flush (one a flush), or html of verifications"
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="console, markdown, verification, history, grid, pr, html, csv, json, kernels, plots, or a study of "
            "the engine: spans, selftest, engines, aa, processes, flush (default: console, of several files history)",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="write to this file instead of printing; for --format plots a folder")
    ] = None,
    baseline: Baseline = None,
    impl: Annotated[str | None, typer.Option(help="whose pull request it is, for --format pr")] = None,
) -> None:
    """Write a results file as tables or plots; needs no GPU and no implementation."""
    import reports

    form = form or ("console" if len(results) == 1 else "history")
    reports.write([load(path) for path in results], form, out, baseline=baseline, impl=impl)


@app.command()
def gate(
    results: Annotated[list[Path], typer.Argument(help="the results.jsonl of one run")],
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
    allow_others: AllowOthers = False,
) -> None:
    """Judge a results file against limits; exit 0 pass, 1 regressed, 3 inconclusive, 2 nothing measured.

    With --confirm what failed on speed is measured again and fails only if it does so again; exit 4 where it cannot be.
    """
    from harness.gate.confirm import confirm as measure_again
    from harness.gate.judge import judge, only
    from harness.gate.limits import read_limits
    from harness.results.verdicts import exit_code
    from reports.parts import verdicts

    if not confirm and (processes is not None or out is not None or resume or allow_others):
        raise UsageError("--processes, --out, --resume and --allow-others are of the run that confirms; add --confirm")
    run = only([load(path) for path in results])
    limits = read_limits(config)
    judged = judge(run, limits)
    sys.stdout.write(verdicts.render(judged))
    sys.stdout.flush()  # whatever comes, this much is known
    if confirm:
        choice = Choice(processes=processes or PROCESSES_OF_A_CLAIM, out=out, resume=resume, allow_others=allow_others)
        again = measure_again(judged, limits, run.run, results[0], replace(choice, command=_command()), Display())
        if again is not None:
            judged, path = again
            sys.stdout.write(f"\nMeasured again: {path}\n\n{verdicts.render(judged)}")
    raise typer.Exit(exit_code(judged))


@app.command()
def selftest(
    device: Device = "auto",
    seed: Seed = 0,
    out: Out = None,
    allow_others: AllowOthers = False,
    time_limit: TimeLimit = 300.0,
) -> None:
    """Test the engine on work of which the time is known: its error budget here; exit 1 where a check failed."""
    from harness.run.session import bench as run_bench
    from reports.parts import selftest as page

    choice = Choice(device=device, seed=seed, out=out, allow_others=allow_others, time_limit_s=time_limit)
    display = Display()
    path = run_bench(replace(choice, selftest_alone=True, command=_command()), display)
    records = load(path).selftests
    sys.stdout.write(page.render(records))
    display.say(f"results: {path}")
    failed = not records or any(check.passed is False for record in records for check in record.checks)
    raise typer.Exit(1 if failed else 0)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="impls, suites or devices")],
    impl: ImplFiles = None,
) -> None:
    """Say what is known and what is available here, with the reason where something is missing."""
    from harness.run import listing

    listing.show(what, tuple(impl or ()), Console())


def _measure_and_report(choice: Choice, form: str = "console", impl: str | None = None) -> Path:
    """Measure, print the report, write all of it beside the results; raise typer.Exit where nothing passed."""
    import reports
    from harness.run.session import bench as run_bench

    display = Display()
    path = run_bench(choice, display)
    results = load(path)
    reports.write(results, form, impl=impl)
    markdown = path.with_name("report.md")
    reports.write(results, "markdown" if choice.timed else "verification", markdown)
    display.say(f"results: {path}\nreport:  {markdown}")
    if code := _exit_code(results.rows):
        raise typer.Exit(code)
    return path


def _flush(text: str) -> FlushMode:
    if text not in ("clean", "dirty", "none"):
        raise UsageError(f"--flush {text}: not one of clean, dirty, none")
    return text


def _exit_code(rows: Sequence[RowRecord]) -> int:
    """0 where anything passed; else 4 where memory was short for all that was tried, or nothing could be; else 1."""
    tried = {row.status for row in rows if row.role == "impl"}
    if tried.intersection(RANKED):
        return 0
    return 4 if tried <= {"oom", "missing", "unsupported"} else 1


def _command() -> str:
    """The command line as another person would type it."""
    return shlex.join(["normbwd", *sys.argv[1:]])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with the code of the answer."""
    try:
        code = app(arguments, prog_name="normbwd", standalone_mode=False)  # errors are ours to print, in one line
        if code == 130:  # Typer turns an interrupt into an exit
            _complain("interrupted; what is done is kept, --resume goes on from it")
    except (UsageError, UnavailableError) as error:
        _complain(str(error))
        code = error.exit_code
    except TyperUsageError as error:
        if message := error.format_message().rstrip("."):  # empty where it has shown the help
            _complain(f"{message}; `normbwd --help` tells what there is")
        code = UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted; what is done is kept, --resume goes on from it")
        code = 130
    sys.exit(code)


def _complain(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[red]error:[/red] {escape(text)}", highlight=False)


if __name__ == "__main__":
    main()
