"""Measures failures of speed again on the device here: the same cases, implementations and settings, new inputs.

It makes an invocation like the one that started the run, from the run's record; `bench` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from harness import devices
from harness.cases import NormCase
from harness.errors import UnavailableError, UsageError
from harness.gate.failures import cases_behind, confirmed, names_behind
from harness.gate.limits import Limits
from harness.results.file import load
from harness.results.run_records import RunRecord
from harness.results.verdicts import Verdict
from harness.run import compare, opening, session
from harness.run.invocation import Invocation
from harness.run.progress import Display
from harness.run.provenance import own_revision
from harness.worker.messages import Hello

FOLDER = "confirm-"  # and the time; the folder lies beside the results that are confirmed


def confirm(
    verdicts: Sequence[Verdict], limits: Limits, run: RunRecord, results: Path, invocation: Invocation, display: Display
) -> tuple[list[Verdict], Path] | None:
    """Measure failures of speed again; the new verdicts and the file of the second run, or None without such failures.

    `results` is the file of the run. `invocation` holds what the record does not: the number of processes, the folder
    (by default one beside `results`), and whether others may use the device. Raises UnavailableError, before
    anything is measured, where the device or the software differs from the run's.
    """
    cases, names = cases_behind(verdicts), names_behind(verdicts)
    if not cases:
        return None
    out = invocation.out or _folder_beside(results, invocation.resume)
    path = _measure_again(run, cases, names, invocation.changed(out=out), display)
    return confirmed(verdicts, limits, load(path)), path


def _measure_again(
    run: RunRecord, cases: Sequence[NormCase], names: Sequence[str], invocation: Invocation, display: Display
) -> Path:
    try:
        display.say("starting a worker to see what is here")
        greeting = session.inventory(Invocation(device=run.device.profile))
        _refuse_another(run, greeting)
        with ExitStack() as checked_out:
            chosen = _as_in(run, cases, names, invocation)
            chosen = _of_revisions(chosen, run, checked_out) if run.sides else _of_files(chosen, run, greeting)
            _refuse_other_versions(run, greeting, chosen)
            return session.bench(chosen, display)
    except UnavailableError as error:
        raise UnavailableError(f"cannot confirm: {error}") from error


def _folder_beside(results: Path, resume: bool) -> Path:
    """A new folder, or the latest one to resume."""
    if not resume:
        return results.parent / f"{FOLDER}{datetime.now(UTC):%Y%m%d-%H%M%S}"
    earlier = sorted(results.parent.glob(f"{FOLDER}*/{opening.RESULTS_NAME}"))
    if not earlier:
        raise UsageError(f"--resume: nothing was confirmed beside {results} yet; name the folder with --out")
    return earlier[-1].parent


def _refuse_another(run: RunRecord, greeting: Hello) -> None:
    """Raise UnavailableError where the device or the software differs from the first run's."""
    was, now = (
        (run.device.name, run.device.profile),
        [(facts.name, devices.detect(facts).name) for facts in greeting.available],
    )
    if was not in now:
        present = ", ".join(f"{name} ({profile})" for name, profile in now)
        raise UnavailableError(f"the run was on {was[0]} ({was[1]}), and here is {present}; run it there")
    required = {name for item in run.implementations for name in item.libraries}
    _refuse_versions(run, greeting.libraries, (run.libraries.keys() - required) | greeting.libraries.keys())
    if run.revision != (own := own_revision()):
        raise UnavailableError(f"the run was made by normbwd {run.revision}, and this is {own}; start a new run")


def _refuse_other_versions(run: RunRecord, greeting: Hello, chosen: Invocation) -> None:
    """Raise UnavailableError where a library that an implementation asked for requires is another one here.

    What files of somebody else's require is known only to a worker that loads them.
    """
    asked = {name.partition("@")[0] for name in (chosen.settings.impls or "").split(",")}
    files = chosen.impl_files and not run.sides  # revisions are stated by their commits
    for item in (session.inventory(chosen) if files else greeting).implementations:
        if item.name in asked:
            _refuse_versions(run, item.libraries, item.libraries)


def _refuse_versions(run: RunRecord, here: Mapping[str, str], names: Iterable[str]) -> None:
    for name in names:
        theirs, ours = (libraries.get(name, "absent") for libraries in (run.libraries, here))
        if theirs != ours:
            raise UnavailableError(f"{name} was {theirs} in the run and is {ours} here; run it where the run was made")


def _as_in(run: RunRecord, cases: Sequence[NormCase], names: Sequence[str], invocation: Invocation) -> Invocation:
    """The invocation with the settings of the run and another seed: the same inputs could repeat the same chance.

    The baseline takes part because of its A/A twin: the limits depend on the A/A band.
    """
    settings = run.settings.changed(
        impls=",".join(dict.fromkeys([run.settings.baseline, *names])),
        seed=run.settings.seed + 1,
        processes=invocation.settings.processes,
        cross_check=False,
    )
    chosen = invocation.changed(settings=settings, device=run.device.profile)
    return chosen.for_cases(cases)


def _of_revisions(invocation: Invocation, run: RunRecord, checked_out: ExitStack) -> Invocation:
    """The invocation with both revisions of a comparison checked out once more."""
    base, head = run.sides
    name = run.settings.baseline.removesuffix(f"@{base.word}")
    files = () if base.file is None else (_file(base.file, name),)
    again = compare.revisions_chosen(
        invocation.changed(impls=name, impl_files=files, base=base.commit, head=head.commit)
    )
    try:
        return checked_out.enter_context(again)
    except UsageError as error:  # most often a shallow clone, which lacks the commit
        raise UnavailableError(str(error)) from error


def _of_files(invocation: Invocation, run: RunRecord, greeting: Hello) -> Invocation:
    """The invocation with the files of those implementations that are found only if their file is named."""
    missing = {item.name: item.missing for item in greeting.implementations}
    asked = set((invocation.settings.impls or "").split(","))
    for name in sorted(asked & missing.keys()):
        if missing[name]:
            raise UnavailableError(f"{name} is missing here: {missing[name]}")
    sources = {item.source: item.name for item in run.implementations if item.name in asked - missing.keys()}
    files = [_file(source, name) for source, name in sources.items()]
    tuned_files = tuple(file for file in files if file.suffix == ".json")  # an adapter is a Python file
    return invocation.changed(
        impl_files=tuple(file for file in files if file not in tuned_files), tuned_files=tuned_files
    )


def _file(source: str, name: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise UnavailableError(f"{name} came from {source}, which is not here; run it in the folder of that run")
    return path
