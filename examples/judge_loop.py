"""Ask for a verdict on a kernel each time its file changes, and print what to mend.

    python examples/judge_loop.py mine.py --shapes 8192x4096

A program that writes kernels reads the same JSON: `status`, the reason's code, and how far it is from the best peer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ADVICE = {
    "off": "the gradients are off: start at the element that is named, follow new x and dy, and accumulate in fp32",
    "no_gradient": "return all gradients of the case, or name it in unsupported",
    "other_dtype": "return dx in x's dtype and the others in the weight's, or fp32",
    "other_shape": "return dx (rows, cols), and dweight and dbias (cols)",
    "impossible": "faster than its inputs can be read: it leaves out work",
    "saves_of_x": "compute from x, mean and rstd: what else was saved of x cannot be timed",
    "died": "it ended its process: an illegal access, or memory",
    "short_stretch": "too short for a verdict on speed: give a larger shape",
    "runs_differ": "the same inputs gave other bits: replace atomics by a fixed order of summation",
    "shared_answers": "allocate the gradients in each call: the caller keeps them",
    "changed_input": "do not write to inputs, or declare in_place for dy",
    "raised": "it raised",
    "no_answer": "it hangs, or compiles for too long",
    "wide_interval": "right, but the machine is too busy for a verdict on speed: try again",
    "peers_slower": "right, but the machine is too busy for a verdict on speed: try again",
}


def advise(case: dict[str, Any]) -> str:
    """What to change about one case of a verdict."""
    speed = case["speed"]
    if reason := case["reason"]:
        advice = ADVICE.get(reason["code"])
        return f"{advice} ({case['text']})" if advice else case["text"]
    peer = speed["best_peer"]
    ratio = speed["speedups"][peer]
    if ratio["low"] > 1:
        return f"right, and {ratio['value']:.2f} times as fast as {peer}; at {speed['score']:.0%} of the memory's rate"
    return (
        f"right, but {peer} takes {ratio['value']:.2f} times its {speed['us']['value']:.0f} us: fewer bytes, one pass"
    )


def verdict(file: Path, options: list[str]) -> dict[str, Any]:
    """The verdict as the command gives it; raises SystemExit where there is none."""
    command = [sys.executable, "-m", "harness", "judge", str(file), "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(done.stderr or done.stdout)
    return json.loads(done.stdout)


def main(arguments: list[str] | None = None) -> None:
    """Judge the file now, and with --rounds again after each change."""
    parser = argparse.ArgumentParser(description="Judge a kernel in a loop and print what to change.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=1, help="verdicts to ask for, each after the file has changed")
    asked, options = parser.parse_known_args(arguments)
    for number in range(asked.rounds):
        judged_ns = asked.file.stat().st_mtime_ns
        for case in verdict(asked.file, options)["cases"]:
            sys.stdout.write(f"{case['key']}: {case['status']}: {advise(case)}\n")
        while number + 1 < asked.rounds and asked.file.stat().st_mtime_ns == judged_ns:
            time.sleep(1.0)


if __name__ == "__main__":
    main()
