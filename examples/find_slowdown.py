"""Finds the commit that made a kernel slower or broke it, in at most log2(n) + 1 comparisons of n commits.

    python examples/find_slowdown.py v1.2..main --impl my_kernel.py --impls my-kernel --shapes 8192x4096

What follows the range are options of `normbwd compare`, which measures each commit against the first in the same
blocks. The last commit is compared first: slow are the cases on which it fails or is called slower (on a CPU, which
gives no verdict, takes a tenth longer). Another commit is slow where it is nearer to the last than to the first there.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAILED = math.log(1e-3)  # in place of a speedup, where head does not pass
PASSED = ("ok", "nondeterministic")
CPU_LOSS = math.log(0.9)


@dataclass(frozen=True)
class Side:
    """Head on one case: the log of its speedup over base, and whether it has lost."""

    log: float
    lost: bool


def first_slow(commits: Sequence[str], measure: Callable[[str], dict[str, Side]]) -> str | None:
    """The first slow commit, where all before it are fast and the last is slow; None where the last is not."""
    lost = {case: side.log for case, side in measure(commits[-1]).items() if side.lost}
    if not lost:
        return None
    fast, slow = -1, len(commits) - 1
    while slow - fast > 1:
        middle = (fast + slow) // 2
        sides = measure(commits[middle])
        logs = [sides[case].log for case in lost if case in sides]
        is_slow = sum(logs) < len(logs) * sum(lost.values()) / len(lost) / 2  # of the first one's code there are none
        fast, slow = (fast, middle) if is_slow else (middle, slow)
    return commits[slow]


def compared(good: str, commit: str, options: Sequence[str]) -> dict[str, Side]:
    """Head on each case that base passes; exits as `normbwd compare` does where it measures nothing."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        ended = _normbwd("compare", "--base", good, "--head", commit, *options, "--out", out)
        if ended.returncode > 1:
            sys.exit(ended.stderr)
        cases = json.loads(_normbwd("report", f"{out}/results.jsonl", "--format", "json").stdout)["cases"]
    sides = {}
    for case in cases:
        base, head = sorted(case["entries"], key=lambda entry: entry["impl"])  # NAME@base, NAME@head
        if base["median_us"] and base["status"] in PASSED:
            sides[case["key"]] = _side(base, head)
    print(commit[:12], *(f"{case} {math.exp(side.log):.3f}" for case, side in sides.items()), sep="  ", flush=True)
    return sides


def _side(base: dict[str, Any], head: dict[str, Any]) -> Side:
    if head["status"] not in PASSED or not head["median_us"]:
        return Side(FAILED, True)
    log = math.log(base["median_us"] / head["median_us"])
    return Side(log, head["verdict"] == "slower" if head["verdict"] else log < CPU_LOSS)


def _normbwd(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "harness", *words], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    if len(sys.argv) < 3 or ".." not in sys.argv[1]:
        sys.exit(__doc__)
    good, _, bad = sys.argv[1].partition("..")
    top = Path(sys.argv[sys.argv.index("--impl") + 1]).parent if "--impl" in sys.argv else Path.cwd()
    log = ["git", "-C", str(top), "log", "--first-parent", "--reverse", "--format=%H", f"{good}..{bad or 'HEAD'}"]
    listed = subprocess.run(log, capture_output=True, text=True, check=False)
    if listed.returncode:
        sys.exit(listed.stderr)
    commits = listed.stdout.split()
    found = first_slow(commits, lambda commit: compared(good, commit, sys.argv[2:])) if commits else None
    print(f"the first slow commit is {found}" if found else f"{bad or 'HEAD'} is not slower than {good}")
    sys.exit(found is None)
