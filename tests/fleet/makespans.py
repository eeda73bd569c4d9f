"""How far more GPUs help, by playing published durations.

    python -m tests.fleet.makespans

prints the table of docs/fleet.md.
"""

from functools import cache

from harness.fleet.estimate import makespan_s, published
from harness.records.file import load
from harness.records.published_plan import PUBLISHED
from harness.run.plan import Job

PROCESSES = 5
GPUS = (1, 2, 8, 64)


@cache
def whole():
    """What is published of an H200, the jobs of all of it, and those of the suite fast-llm alone."""
    took = published("h200")
    impls = {}
    for case, impl in took.of_row_s:
        impls.setdefault(case, []).append(impl)
    suite = {row.case for row in load(PUBLISHED / "h200/fast-llm.jsonl.bz2").rows}
    jobs = [Job(case, tuple(impls[case]), process) for process in range(PROCESSES) for case in impls]
    return took, jobs, [job for job in jobs if job.case in suite]


@cache
def compiled():
    """The implementations of published runs that are compiled ahead."""
    run = load(PUBLISHED / "h200/fast-llm.jsonl.bz2").run
    return {impl.name for impl in run.implementations if impl.compiles_ahead}


def share(took, jobs, gpus, **more):
    """The ideal time on so many GPUs, a share of that on one, over the time that it takes."""
    one, several = (makespan_s(jobs, lanes, took, compiled=compiled(), **more) for lanes in (1, gpus))
    return one / gpus / several


def lines():
    """The table: a line for each number of GPUs."""
    took, jobs, suite = whole()
    heads = ["GPUs", "all published cases", "the same, no case known", "hosts of one GPU", "fast-llm alone"]
    rows = [
        [str(gpus)]
        + [
            f"{share(took, of, gpus, **more):.2f}"
            for of, more in [(jobs, {}), (jobs, {"estimate_s": took.about}), (jobs, {"lanes_a_host": 1}), (suite, {})]
        ]
        for gpus in GPUS
    ]
    return [f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *rows]]


if __name__ == "__main__":
    print("\n".join(lines()))
