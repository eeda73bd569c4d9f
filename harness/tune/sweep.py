"""Measures the configurations that implementations offer: a sweep of all, and the winners again in fresh processes.

Both are runs of `bench`, so that every configuration is verified, and timed in the same blocks as the default.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from harness.cases.tuned import TunedCase, TunedFile
from harness.errors import UsageError
from harness.records.file import Results, load
from harness.run import opening, session
from harness.run.invocation import Invocation
from harness.run.progress import Display, counted
from harness.tune.offers import Tunable, find_tunables
from harness.tune.winners import Best, best_candidates, confirmed, record
from harness.worker.configured import candidate_name

FOLDER = "-tune"  # what the folder of a tuning ends in, after its time
FILE_NAME = "tuned.json"


def tune(invocation: Invocation, display: Display) -> tuple[TunedFile, Path, list[Results]]:
    """Tune the implementations of the invocation; return the tuned file, its path, and the sweeps.

    The invocation's number of processes is that of the runs that confirm the winners. Raises UsageError and
    UnavailableError before anything is written, and InterruptedRun after an interrupt.
    """
    display.say("starting a worker to see what can be tuned here")
    profile, tunables = find_tunables(invocation)
    folder = invocation.out or _folder(invocation.resume, profile)
    with _naming_files_of_interrupted(folder):
        tuned = [
            (tunable, *_sweep_and_confirm(tunable, invocation, folder / tunable.name, display)) for tunable in tunables
        ]
    file = tuned_file(tuned)
    return file, _write(file, folder / FILE_NAME), [sweep for _, sweep, _ in tuned]


@contextmanager
def _naming_files_of_interrupted(folder: Path) -> Generator[None]:
    """Turn an interrupt into an InterruptedRun of the tuned file, where any run of the tuning has begun."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if any(folder.glob(f"*/*/{opening.RESULTS_NAME}")):
            raise session.InterruptedRun(folder / FILE_NAME) from interrupt
        raise


def tuned_file(tuned: Sequence[tuple[Tunable, Results, list[Best]]]) -> TunedFile:
    """The tuned file, from each implementation's sweep and its best configurations."""
    run = tuned[0][1].run
    return TunedFile(
        device=run.device.name,
        multiprocessors=run.device.sm_count,
        libraries=run.libraries,
        date=run.started_at,
        revision=run.revision,
        cases=[_tuned_case(item, tunable) for tunable, _, best in tuned for item in best],
    )


def _sweep_and_confirm(
    tunable: Tunable, invocation: Invocation, folder: Path, display: Display
) -> tuple[Results, list[Best]]:
    name = tunable.name
    offered = invocation.for_cases(list(tunable.configs)).changed(baseline=name, offered={name: tunable.most})
    display.say(f"{name}: up to {counted(tunable.most, 'configuration')} beside the default")
    sweep = _measure(offered, tunable, f"{name},{name}#*", folder / "sweep", 1, display)
    best = best_candidates(sweep)
    winners = {item.case: item.candidate for item in best if item.candidate}
    display.say(f"{name}: a configuration is faster in {len(winners)} of {len(best)} cases")
    if winners:
        display.say(f"{name}: measuring the winners again")
        names = ",".join([name, *sorted(set(winners.values()))])
        processes = invocation.settings.processes
        confirming = offered.for_cases(list(winners))
        best = confirmed(best, _measure(confirming, tunable, names, folder / "confirm", processes, display))
    return sweep, best


def _measure(
    invocation: Invocation, tunable: Tunable, impls: str, out: Path, processes: int, display: Display
) -> Results:
    """Measure one run; with --resume, an earlier run in the folder is resumed."""
    resume = invocation.resume and (out / opening.RESULTS_NAME).exists()
    changed = invocation.changed(impls=impls, processes=processes, out=out, resume=resume)
    results = load(session.bench(changed, display))
    _refuse_other_configs(results, tunable, out)
    return results


def _refuse_other_configs(results: Results, tunable: Tunable, out: Path) -> None:
    """Raise UsageError where an earlier part of the run measured other configurations than are offered now."""
    names = {
        (case, candidate_name(tunable.name, number)): name
        for case, configs in tunable.configs.items()
        for number, name in enumerate(configs)
        if number
    }
    for row in results.rows:
        measured = [note.fields["name"] for note in row.notes if note.code == "configuration"]
        if row.notes and (name := names.get((row.case, row.impl))) is not None and name not in measured:
            raise UsageError(
                f"{tunable.name} offers other configurations than those measured in {out}; start a new tuning"
            )


def _folder(resume: bool, profile: str) -> Path:
    """A new folder, or with --resume the latest one."""
    if not resume:
        return opening.RUNS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{profile}{FOLDER}"
    earlier = sorted(opening.RUNS.glob(f"*{FOLDER}"))
    if not earlier:
        raise UsageError("--resume: nothing was tuned in runs/ yet; name the folder with --out")
    return earlier[-1]


def _tuned_case(best: Best, tunable: Tunable) -> TunedCase:
    configs = tunable.configs[best.case]
    names = {candidate_name(tunable.name, number): name for number, name in enumerate(configs)}
    return record(best, tunable.name, configs, names[best.candidate] if best.candidate else None)


def _write(file: TunedFile, path: Path) -> Path:
    try:
        path.write_text(file.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; give a writable folder with --out") from error
    return path
