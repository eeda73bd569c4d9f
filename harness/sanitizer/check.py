"""Runs the tools of compute-sanitizer on small cases of each implementation, each run in a process of its own.

The program first runs without a tool. That run shows which shape is supported and whether a failure is the program's
own, and it fills the caches of compilers and tuners: a tool slows every kernel down.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.cases import Norm, NormCase
from harness.cases.suites import Shape
from harness.devices.facts import DeviceFacts
from harness.errors import UnavailableError
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.records.schema import TOOLS, SanitizerRecord, Tool
from harness.sanitizer.log import Finding, read_log
from harness.sanitizer.target import UNSUPPORTED_EXIT, case_of

# Few rows, many rows, and wide rows, because kernels differ for them; the first shape of each that an implementation
# supports is run. None fills its last tile of rows. 1032 and 12296 columns do not fill a tile, and 16-byte loads stay
# aligned; the second shape of each is for kernels that are compiled for a list of widths.
SIZES: tuple[tuple[Shape, ...], ...] = (
    ((33, 1032), (33, 1024)),
    ((1031, 1032), (1031, 1024)),  # more than two for each multiprocessor of any device
    ((131, 12296), (131, 12288)),
)
CUDA_BIN = "/usr/local/cuda/bin"
ERRORS_EXIT = 86  # of the tool, where the program itself ended well
PRINTED = 20
PADDING_BYTES = 1 << 16  # allocations lie back to back, where an overrun would end in a neighbour and not be seen

Program = Callable[[str, Norm, Sequence[Shape], Sequence[Path]], list[str]]


@dataclass(frozen=True)
class Result:
    """The exit code of a process, None where it was stopped at the time limit, and what it printed."""

    code: int | None
    output: str

    @property
    def last_words(self) -> str:
        return (self.output.strip().splitlines() or ["it printed nothing"])[-1]


def find() -> Path:
    """Where compute-sanitizer is; raises UnavailableError where it is not."""
    path = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=CUDA_BIN)
    if path is None:
        raise UnavailableError("--sanitizer: compute-sanitizer is not here; it comes with the CUDA toolkit")
    return Path(path)


def refuse_other_devices(facts: DeviceFacts) -> None:
    """Raise UnavailableError for a device that compute-sanitizer does not know."""
    if not facts.architecture.startswith("sm_"):
        raise UnavailableError(
            f"--sanitizer: compute-sanitizer checks NVIDIA GPUs alone, and this is {facts.name}; leave it out here"
        )


def target_command(impl: str, norm: Norm, shapes: Sequence[Shape], impl_files: Sequence[Path]) -> list[str]:
    """The command that calls an implementation by itself."""
    listed = ",".join(f"{rows}x{cols}" for rows, cols in shapes)
    files = [part for path in impl_files for part in ("--impl-file", str(path))]
    program = [sys.executable, "-P", "-m", "harness.sanitizer.target"]
    return [*program, "--impl", impl, "--norm", norm, "--shapes", listed, *files]


def under(sanitizer: Path, tool: Tool, log: Path, program: Sequence[str]) -> list[str]:
    """The command that runs a program under a tool, which writes to `log`."""
    options = ["--print-limit", str(PRINTED), "--error-exitcode", str(ERRORS_EXIT), "--log-file", str(log)]
    options += ["--target-processes", "application-only"]  # compilers are started too
    options += ["--launch-timeout", "0"]  # importing torch may take longer than the 10 s that it waits for CUDA
    if tool == "memcheck":
        # Libraries ask for functions that a driver may not have, which is no fault of a kernel.
        options += ["--leak-check", "no", "--report-api-errors", "no", "--padding", str(PADDING_BYTES)]
    return [str(sanitizer), "--tool", tool, *options, "--", *program]


@dataclass(frozen=True)
class Sanitizer:
    """Runs implementations under the tools; the logs of runs that were not clean stay in the folder `logs`.

    `step` is called before each run, `say` with the outcome of each. A process may take `time_limit_s`.
    """

    path: Path
    logs: Path
    time_limit_s: float
    say: Callable[[str], None]
    step: Callable[[str | None, str], None]
    impl_files: Sequence[Path] = ()
    program: Program = target_command

    def check(
        self, impl: str, norm: Norm, done: Collection[tuple[Shape, Tool]] = (), sizes: Sequence[Sequence[Shape]] = SIZES
    ) -> Generator[SanitizerRecord]:
        """A record from each tool at each size that is not `done` yet; none at a size with no supported shape."""
        for shapes in sizes:
            tools: list[Tool] = [tool for tool in TOOLS if not any((shape, tool) in done for shape in shapes)]
            if tools:
                yield from self._check(impl, norm, shapes, tools)

    def _check(
        self, impl: str, norm: Norm, shapes: Sequence[Shape], tools: Sequence[Tool]
    ) -> Generator[SanitizerRecord]:
        """A record from each of the tools at the first shape that is supported."""
        first = case_of(norm, shapes[0])
        self.step(impl, f"{first.key} without a tool")
        result = self._run(self.program(impl, norm, shapes, self.impl_files))
        case = case_of(norm, shape) if (shape := _shape_run(result)) else first
        if result.code == UNSUPPORTED_EXIT:
            self.say(f"{case.key} {impl}: not run under compute-sanitizer: {result.last_words}")
            return
        if failed := self._failure(result, "without a tool"):
            self._keep(f"{impl}-{case.key}", result.output)
        for tool in tools:
            self.step(impl, f"{case.key} {tool}")
            finding = failed or self._watch(impl, case, tool)
            self.say(f"{case.key} {impl}: {tool}: {_in_words(finding)}")
            yield SanitizerRecord(case=case, impl=impl, tool=tool, errors=finding.errors, detail=finding.detail)

    def _watch(self, impl: str, case: NormCase, tool: Tool) -> Finding:
        """Run the program under one tool and read the tool's log."""
        with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
            log = Path(folder) / "log"
            program = self.program(impl, case.norm, [(case.rows, case.cols)], self.impl_files)
            result = self._run(under(self.path, tool, log, program))
            text = log.read_text(errors="replace") if log.exists() else ""
        finding = read_log(text)
        if finding is None or finding.errors == 0:  # a run that was cut short has not shown that there are no errors
            finding = self._failure(result, f"under {tool}") or finding or Finding(None, Reason("log_without_summary"))
        if finding.errors != 0:
            self._keep(f"{impl}-{case.key}-{tool}", f"{text}\n{result.output}")
        return finding

    def _failure(self, result: Result, where: str) -> Finding | None:
        if result.code is None:
            return Finding(None, Reason("tool_stopped", {"where": where, "seconds": self.time_limit_s}))
        if result.code not in (0, ERRORS_EXIT):
            fields = {"where": where, "code": result.code, "output": result.last_words[:300]}
            return Finding(None, Reason("tool_failed", fields))
        return None

    def _run(self, command: Sequence[str]) -> Result:
        with tempfile.TemporaryFile() as output:
            code = _exit_code(command, output, self.time_limit_s)
            output.seek(0)
            return Result(code, output.read().decode(errors="replace"))

    def _keep(self, name: str, text: str) -> None:
        self.logs.mkdir(exist_ok=True)
        (self.logs / f"{re.sub(r'[^A-Za-z0-9_.@-]', '_', name)}.log").write_text(text)


def _exit_code(command: Sequence[str], output: IO[bytes], limit_s: float) -> int | None:
    """Run a command to its end or to the limit; at the limit, and after Ctrl-C, kill all that it started."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},  # so that it imports the same modules
        start_new_session=True,  # so that the tool, the program and its compilers are killed together
    )
    try:
        return process.wait(limit_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise


def _shape_run(result: Result) -> Shape | None:
    shapes = re.findall(r"^ran (\d+)x(\d+)$", result.output, re.MULTILINE)
    return (int(shapes[-1][0]), int(shapes[-1][1])) if shapes else None


def _in_words(finding: Finding) -> str:
    why = f": {sentence(finding.detail)}" if finding.detail else ""
    if finding.errors is None:
        return f"could not tell{why}"
    number = {0: "no errors", 1: "1 error"}.get(finding.errors, f"{finding.errors} errors")
    return f"{number}{why}"
