"""Finds the in-house kernel's best launches on the device here: a sweep, and the winners once more in fresh processes.

Both are runs of `bench`, so that every launch is verified, and timed in the same blocks as the default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from harness import devices
from harness.errors import UnavailableError, UsageError
from harness.results.file import Results, load
from harness.run import opening, session
from harness.run.invocation import Invocation
from harness.run.progress import Display
from harness.run.resolve import check
from harness.tune import candidates
from harness.tune.winners import DEFAULT, Best, best_launches, confirmed, launch_file
from impls.inhouse.problem import LAUNCHES

FOLDER = "-tune"  # what the folder of a tuning ends in, after its time
FILE_NAME = "launches.json"
ADAPTER = Path(candidates.__file__)


def tune(invocation: Invocation, display: Display) -> tuple[Results, list[Best], Path]:
    """Sweep the cases chosen; return the sweep, what was found, and the file of launches.

    Its processes are those of the run that confirms the winners. Raises UsageError for options that are not of this
    command, UnavailableError where there is no GPU, both before anything is written.
    """
    _refuse(invocation)
    check(invocation)
    display.say("starting a worker to see what is here")
    profile, facts = devices.choose(
        invocation.device, session.inventory(Invocation(device=invocation.device)).available
    )
    if facts.kind == "cpu":
        raise UnavailableError("tune needs a GPU, and this is a CPU, where the in-house kernel is never timed")
    folder = invocation.out or _folder(invocation.resume, profile.name)
    chosen = invocation.changed(baseline=DEFAULT, impl_files=(ADAPTER,))
    swept = load(_measure(chosen, f"{DEFAULT},launch-*", folder / "sweep", 1, display))
    best = best_launches(swept)
    winners = {each.case: each.impl for each in best if each.impl}
    if winners:
        names = ",".join([DEFAULT, *sorted(set(winners.values()))])
        display.say(f"cases with a faster launch: {len(winners)} of {len(best)}; measuring the winners again")
        again = chosen.of_cases(list(winners))
        best = confirmed(best, load(_measure(again, names, folder / "confirm", invocation.settings.processes, display)))
    return swept, best, _write(folder / FILE_NAME, swept, best)


def _refuse(invocation: Invocation) -> None:
    if invocation.settings.impls is not None or invocation.impl_files:
        raise UsageError(f"tune measures {DEFAULT} alone; --impls and --impl are of other commands")
    if os.environ.get(LAUNCHES):
        raise UsageError(f"tune compares with the launches chosen without a file; unset {LAUNCHES}")


def _folder(resume: bool, profile: str) -> Path:
    """A new folder, or the latest, to go on with."""
    if not resume:
        return opening.RUNS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{profile}{FOLDER}"
    earlier = sorted(opening.RUNS.glob(f"*{FOLDER}"))
    if not earlier:
        raise UsageError("--resume: nothing was tuned in runs/ yet; name the folder with --out")
    return earlier[-1]


def _measure(invocation: Invocation, impls: str, out: Path, processes: int, display: Display) -> Path:
    """One run; an earlier one of this folder is gone on with where that was asked for."""
    resume = invocation.resume and (out / opening.RESULTS_NAME).exists()
    return session.bench(invocation.changed(impls=impls, processes=processes, out=out, resume=resume), display)


def _write(path: Path, swept: Results, best: list[Best]) -> Path:
    try:
        path.write_text(launch_file(swept, best).model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; give a writable folder with --out") from error
    return path
