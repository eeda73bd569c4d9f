"""Finds the in-house kernel's best launches on the device here: a sweep, and the winners once more in fresh processes.

Both are runs of `bench`, so that every launch is verified, and timed in the same blocks as the default.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness import devices
from harness.errors import UnavailableError, UsageError
from harness.results.file import Results, load
from harness.run import session
from harness.run.progress import Display
from harness.run.settings import Choice
from harness.tune import candidates
from harness.tune.winners import DEFAULT, Best, best_launches, confirmed, launch_file
from impls.inhouse.problem import LAUNCHES

FOLDER = "-tune"  # what the folder of a tuning ends in, after its time
FILE_NAME = "launches.json"
ADAPTER = Path(candidates.__file__)


def tune(choice: Choice, display: Display) -> tuple[Results, list[Best], Path]:
    """Sweep the cases chosen; return the sweep, what was found, and the file of launches.

    `choice.processes` is of the run that confirms the winners. Raises UsageError for options that are not of this
    command, UnavailableError where there is no GPU, both before anything is written.
    """
    _refuse(choice)
    choice.check()
    display.say("starting a worker to see what is here")
    profile, facts = devices.choose(choice.device, session.inventory(Choice(device=choice.device)).available)
    if facts.kind == "cpu":
        raise UnavailableError("tune needs a GPU, and this is a CPU, where the in-house kernel is never timed")
    folder = choice.out or _folder(choice.resume, profile.name)
    asked = replace(choice, baseline=DEFAULT, impl_files=(ADAPTER,))
    swept = load(_measure(asked, f"{DEFAULT},launch-*", folder / "sweep", 1, display))
    best = best_launches(swept)
    winners = {each.case: each.impl for each in best if each.impl}
    if winners:
        names = ",".join([DEFAULT, *sorted(set(winners.values()))])
        display.say(f"cases with a faster launch: {len(winners)} of {len(best)}; measuring the winners again")
        exactly = replace(asked, exactly=tuple(winners))
        best = confirmed(best, load(_measure(exactly, names, folder / "confirm", choice.processes, display)))
    return swept, best, _write(folder / FILE_NAME, swept, best)


def _refuse(choice: Choice) -> None:
    if choice.impls is not None or choice.impl_files:
        raise UsageError(f"tune measures {DEFAULT} alone; --impls and --impl are of other commands")
    if os.environ.get(LAUNCHES):
        raise UsageError(f"tune compares with the launches chosen without a file; unset {LAUNCHES}")


def _folder(resume: bool, profile: str) -> Path:
    """A new folder, or the latest, to go on with."""
    if not resume:
        return session.RUNS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{profile}{FOLDER}"
    earlier = sorted(session.RUNS.glob(f"*{FOLDER}"))
    if not earlier:
        raise UsageError("--resume: nothing was tuned in runs/ yet; name the folder with --out")
    return earlier[-1]


def _measure(choice: Choice, impls: str, out: Path, processes: int, display: Display) -> Path:
    """One run; an earlier one of this folder is gone on with where that was asked for."""
    resume = choice.resume and (out / session.RESULTS_NAME).exists()
    return session.bench(replace(choice, impls=impls, out=out, processes=processes, resume=resume), display)


def _write(path: Path, swept: Results, best: list[Best]) -> Path:
    try:
        path.write_text(launch_file(swept, best).model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; give a writable folder with --out") from error
    return path
