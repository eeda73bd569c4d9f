"""Measures failures of speed again on this device: the same cases, implementations and settings, with new inputs.

It makes an invocation from the run's record, like the one that started the run; `bench` does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from harness.analysis.verdicts import Verdict
from harness.cases import NormCase
from harness.devices import profiles
from harness.errors import UnavailableError, UsageError
from harness.gate.failures import cases_behind, confirmed, names_behind
from harness.gate.limits import Limits
from harness.records.file import load
from harness.records.reason_texts import sentence
from harness.records.run_records import RunRecord
from harness.run import compare, opening, session
from harness.run.invocation import Invocation
from harness.run.progress import Display
from harness.run.provenance import own_revision
from harness.run.resolve import check
from harness.worker.messages import Hello

FOLDER = "confirm-"  # and the time; the folder lies beside the results that are confirmed


def confirm(
    verdicts: Sequence[Verdict], limits: Limits, run: RunRecord, results: Path, invocation: Invocation, display: Display
) -> tuple[list[Verdict], Path] | None:
    """Measure failures of speed again; the new verdicts and the file of the second run, or None without such failures.

    `results` is the file of the run. `invocation` holds what the record does not: the number of processes, the folder
    (by default one beside `results`), the files of adapters, and whether others may use the device. Before anything is
    measured it raises UnavailableError where the device or the software differs from the run's, and UsageError where
    a file is needed that the command line does not name.
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
    compared = run.sides[0] if run.sides else None
    if compared and compared.file is not None and not invocation.impl_files:
        raise _not_named(run.settings.baseline, compared.file)
    check(invocation)
    try:
        display.say("starting a worker to see what is here")
        hello = session.inventory(Invocation(device=run.device.profile))
        _refuse_another(run, hello)
        confirming = _with_settings_of(run, cases, names, invocation)
        with ExitStack() as checked_out:
            if compared:
                confirming = _with_revisions(confirming, run, checked_out)
            else:
                _refuse_other_implementations(run, hello, confirming)
            return session.bench(confirming, display)
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


def _refuse_another(run: RunRecord, hello: Hello) -> None:
    """Raise UnavailableError where the device or the software differs from the first run's."""
    device = f"{run.device.name} ({run.device.profile})"
    present = [f"{facts.name} ({profiles.detect(facts).name})" for facts in hello.available]
    if device not in present:
        raise UnavailableError(f"the run was on {device}, and here is {', '.join(present)}; run it there")
    required = {name for item in run.implementations for name in item.libraries}
    _refuse_versions(run, hello.libraries, (run.libraries.keys() - required) | hello.libraries.keys())
    if run.revision != (own := own_revision()):
        raise UnavailableError(f"the run was made by normbwd {run.revision}, and this is {own}; start a new run")


def _refuse_other_implementations(run: RunRecord, hello: Hello, confirming: Invocation) -> None:
    """Raise where an implementation is missing, was not named, or requires a library that has another version here.

    A results file may come from anybody: the files that it names are not loaded, only those of the command line.
    """
    if confirming.impl_files or confirming.tuned_files:
        hello = session.inventory(confirming)
    here = {item.name: item for item in hello.implementations}
    sources = {item.name: item.source for item in run.implementations}
    for name in (confirming.settings.impls or "").split(","):
        if name not in here:
            raise _not_named(name, sources.get(name, ""))
        if why := here[name].missing:
            raise UnavailableError(f"{name} is missing here: {sentence(why)}")
        _refuse_versions(run, here[name].libraries, here[name].libraries)


def _not_named(name: str, source: str) -> UsageError:
    option = "--tuned" if source.endswith(".json") else "--impl"
    shown = name.partition("@")[0]
    return UsageError(
        f"--confirm: {shown} came from {source!r}; what a results file names is not run: type {option} and the file"
    )


def _refuse_versions(run: RunRecord, here: Mapping[str, str], names: Iterable[str]) -> None:
    for name in names:
        was, now = (libraries.get(name, "absent") for libraries in (run.libraries, here))
        if was != now:
            raise UnavailableError(f"{name} was {was} in the run and is {now} here; run it where the run was made")


def _with_settings_of(
    run: RunRecord, cases: Sequence[NormCase], names: Sequence[str], invocation: Invocation
) -> Invocation:
    """The invocation with the settings of the run and another seed, so that chance is not repeated with the inputs.

    The baseline takes part because of its A/A twin: the limits depend on the A/A band.
    """
    settings = run.settings.changed(
        impls=",".join(dict.fromkeys([run.settings.baseline, *names])),
        seed=run.settings.seed + 1,
        processes=invocation.settings.processes,
        cross_check=False,
    )
    return invocation.changed(settings=settings, device=run.device.profile).for_cases(cases)


def _with_revisions(invocation: Invocation, run: RunRecord, checked_out: ExitStack) -> Invocation:
    """The invocation with both revisions of a comparison checked out again."""
    base, head = run.sides
    name = run.settings.baseline.removesuffix(f"@{base.word}")
    both_checked_out = compare.revisions_chosen(invocation.changed(impls=name, base=base.commit, head=head.commit))
    try:
        return checked_out.enter_context(both_checked_out)
    except UsageError as error:  # most often a shallow clone, which lacks the commit
        raise UnavailableError(str(error)) from error
