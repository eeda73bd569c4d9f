"""Several runs on GPUs of one model: by how much they differ, and what may be said of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.analysis.comparison import Comparison
from harness.analysis.machines import FEWEST_GPUS, RUN_BAND, OverGpus, claim, largest_usual
from harness.errors import UsageError
from harness.grouping import grouped
from reports import figures
from reports.markdown_writer import escape, paragraphs, table
from reports.parts import conditions
from reports.table import left

ABOUT = (
    "Speedups are over each run's baseline, cold. Over GPUs: random effects (DerSimonian and Laird, with the interval "
    "of Hartung and Knapp), and faster or slower only beyond what two runs differ by."
)
MOST_LISTED = 60


def render(runs: Sequence[Comparison]) -> str:
    """The page as markdown; raises UsageError for runs of other models of GPU, or of revisions that are compared."""
    runs = [run for run in runs if run.timed and not run.run.sides and run.run.device.profile != "cpu"]
    models = dict.fromkeys(run.run.device.name for run in runs)
    if len(models) != 1:
        raise UsageError(f"--format gpus is of timed runs on one model of GPU, not {', '.join(models) or 'none'}")
    over = OverGpus(runs)
    model = escape(next(iter(models)))
    gpus = figures.count(len(over.gpus), "GPU")
    enough = len(over.gpus) >= FEWEST_GPUS
    scope = f"on {model}" if enough else f"on these alone: a claim that names {model} rests on {FEWEST_GPUS} GPUs"
    parts = [conditions.heading("Agreement of GPUs", *(run.run for run in runs)), ABOUT]
    parts.append(f"{figures.count(len(runs), 'run')} on {gpus}: what they say holds {scope}.")
    if differences := over.differences:
        parts.append(
            f"Two runs of a cell differ by {figures.band(float(np.median(differences)))} in half, and by up to "
            f"{figures.band(largest_usual(differences))} in 95 % of {len(differences)} pairs of runs; the floor of a "
            f"claim is {figures.band(RUN_BAND)}."
        )
    return paragraphs([*parts, *(_claims(over) if enough else [])])


def _claims(over: OverGpus) -> list[str]:
    """How often each implementation is faster, the same or slower than the baseline, and its cells."""
    claims = over.claims()
    verdicts = ("faster", "same", "slower")
    by_impl = grouped((impl, said) for (_, impl), (_, said) in claims.items())
    counted = [
        [escape(impl), _mean(over, impl), *(str(said.count(word)) for word in verdicts)]
        for impl, said in by_impl.items()
    ]
    cells = [
        [case, escape(impl), figures.ratio_and_interval(ratio), said] for (case, impl), (ratio, said) in claims.items()
    ]
    heads = left("case", "impl", "speedup over GPUs [95 %]", "verdict")
    return [
        table([*left("impl", "mean speedup over GPUs [95 %]"), *verdicts], counted),
        table(heads, cells[:MOST_LISTED]),
        f"… {len(cells) - MOST_LISTED} more" if len(cells) > MOST_LISTED else "",
    ]


def _mean(over: OverGpus, impl: str) -> str:
    """The geometric mean over the cells that all GPUs have, with the GPUs as what varies."""
    gpus = over.gpus
    cells: list[Mapping[str, Sequence[float]]] = [
        of_cell for (_, name), of_cell in over.by_gpu.items() if name == impl and of_cell.keys() == gpus
    ]
    if not cells:
        return figures.NOTHING
    means = {gpu: [float(np.mean([np.mean(of_cell[gpu]) for of_cell in cells]))] for gpu in gpus}
    return figures.ratio_and_interval(claim(means)[0])
