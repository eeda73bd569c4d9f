"""`normbwd serve`: tools for agents, by the Model Context Protocol over standard input and output.

Each call runs a command in a process of its own, with options that are made here: a name, a shape or a path is checked
before, so that none can be an option, leave the root folder or be a file of Python that is run. Only `judge` runs code
of a stranger.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from anyio.abc import ByteReceiveStream
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from harness import __version__
from harness.git import GitError, git
from harness.records.file import RESULTS_NAME, in_folder
from harness.records.published_plan import CHECKOUT
from harness.worker import discovery

MOST_ELEMENTS = 1 << 30  # of a shape
LIST_LIMIT_S, ENDING_S = 300.0, 15.0  # a command that is ended closes its file and ends its workers
SIZE = r"[1-9][0-9]{0,7}x[1-9][0-9]{0,7}"
Shapes = Annotated[str, Field(pattern=rf"^{SIZE}(,{SIZE}){{0,7}}$", description="ROWSxCOLS,... at most eight")]
Revision = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._/~^-]{0,99}$")]
Device = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,30}$", description="auto, cpu, or a GPU such as h200")]
Norm = Literal["rms", "layer", "both"]
Dtype = Literal["bf16", "fp16", "fp32"]
Limit = Annotated[float, Field(ge=1, le=7200, description="seconds after which the call is ended")]
File = Annotated[str, Field(min_length=1, max_length=500, description="a path in the root folder")]
# Of an entry of a report.
SHOWN = ("impl", "status", "standing", "reason", "median_us", "spread", "speedup", "verdict", "processes", "notes")
INSTRUCTIONS = (
    "Which LayerNorm or RMSNorm backward is right, deterministic and fastest here. `judge` is for a file of yours or "
    "of a stranger; `bench` takes names that `list` gives. Claim no speedup that `may_claim` does not allow."
)


def serve(root: Path) -> None:
    """Serve tools on files below `root` until the client leaves."""
    try:
        make_server(root).run("stdio")
    except* BrokenPipeError:
        pass  # it left before its answer came


def make_server(root: Path) -> MCPServer:
    """The server with its tools; one command runs at a time, because two would disturb each other's figures."""
    root, turn = root.resolve(), anyio.Lock()
    server = MCPServer("normbwd", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")

    async def ask(context: Context, limit_s: float, *words: str) -> dict[str, Any]:
        async with turn:
            return await _run(context, limit_s, words)

    async def measure(context: Context, limit_s: float, command: str, *words: str) -> dict[str, Any]:
        out = _inside(root, f"runs/serve-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
        report = await ask(context, limit_s, command, *words, f"--out={out}")
        results, same = str(out.relative_to(root) / RESULTS_NAME), report.get("record") == "same_code"
        return {"results": results, "rows": list(_rows(report)), "same_code": same}

    @server.tool(name="list")
    async def list_(
        context: Context, subject: Literal["impls", "suites", "variants", "contexts", "devices"]
    ) -> dict[str, Any]:
        """What is known and here: implementations, suites of shapes, variants, contexts or devices."""
        return await ask(context, LIST_LIMIT_S, "list", subject)

    @server.tool()
    async def judge(
        context: Context,
        file: File,
        shapes: Shapes | None = None,
        norm: Norm | None = None,
        dtype: Dtype | None = None,
        device: Literal["auto", "cpu", "gpu"] = "auto",
        limit_s: Limit = 1800,
    ) -> dict[str, Any]:
        """Judge the file of an adapter that nobody trusts: right or wrong, deterministic, how fast."""
        options = _options(shapes=_small(shapes), norm=norm, dtype=dtype, device=device)
        return await ask(context, limit_s, "judge", *options, str(_inside(root, file)))

    @server.tool()
    async def bench(
        context: Context,
        impls: Annotated[list[str], Field(min_length=1, max_length=8)],
        shapes: Shapes,
        norm: Norm = "both",
        dtype: Dtype | None = None,
        device: Device = "auto",
        quick: bool = True,
        limit_s: Limit = 1800,
    ) -> dict[str, Any]:
        """Verify and time this project's implementations on shapes; `quick` is for a look and no claim."""
        options = _options(impls=_own(impls), shapes=_small(shapes), norm=norm, dtype=dtype, device=device)
        return await measure(context, limit_s, "bench", *options, *(["--quick"] if quick else []))

    @server.tool()
    async def compare(
        context: Context,
        impl: str,
        base: Revision,
        shapes: Shapes,
        head: Revision = "HEAD",
        norm: Norm = "both",
        device: Device = "auto",
        limit_s: Limit = 1800,
    ) -> dict[str, Any]:
        """Measure two revisions of an implementation of this project; both are in the history of its checkout."""
        sides = {"base": _trusted(base), "head": _trusted(head)}
        options = _options(impls=_own([impl]), **sides, shapes=_small(shapes), norm=norm, device=device)
        return await measure(context, limit_s, "compare", *options)

    @server.tool()
    async def explain(
        context: Context, results: File, impl: str | None = None, case: str | None = None
    ) -> dict[str, Any]:
        """Rows of a results file or a run's folder: status, reason, figure with interval, what may be claimed of it."""
        file = _inside(root, str(in_folder(_inside(root, results))))  # which may be a link to elsewhere
        report = await ask(context, LIST_LIMIT_S, "report", str(file))
        rows = [row for row in _rows(report) if impl in (None, row["impl"]) and case in (None, row["case"])]
        if not rows:
            known = dict.fromkeys(f"{row['impl']} on {row['case']}" for row in _rows(report))
            raise ToolError(f"no such row; there are: {', '.join(list(known)[:40])}")
        return {"rows": rows}

    return server


async def _run(context: Context, limit_s: float, words: Sequence[str]) -> dict[str, Any]:
    """The JSON that a command prints, each line of its progress told to the client; raises ToolError with its error."""
    command = [sys.executable, "-P", "-m", "harness", *words[:1], "--format=json", *words[1:]]
    said: list[str] = []
    printed = ""
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with anyio.fail_after(limit_s):
                async with anyio.create_task_group() as group:
                    group.start_soon(_tell, context, process.stderr, said)
                    printed = "".join([text async for text in TextReceiveStream(process.stdout)])
                await process.wait()
        except TimeoutError as error:
            raise ToolError(f"ended after {limit_s:g} s; give fewer shapes, or a larger limit_s") from error
        finally:
            with anyio.move_on_after(ENDING_S, shield=True):
                if process.returncode is None:
                    process.terminate()  # a run closes its file and ends its workers
                    await process.wait()
    if not printed:
        raise ToolError(f"exit code {process.returncode}: {said[-1] if said else 'nothing was printed'}")
    return json.loads(printed) | {"exit_code": process.returncode}


async def _tell(context: Context, stream: ByteReceiveStream, said: list[str]) -> None:
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            said.append(line)
            await context.report_progress(len(said), message=line)


def _options(**values: str | None) -> list[str]:
    """Each as one word, so that no value can be an option of its own."""
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def _own(names: Sequence[str]) -> str:
    """Names of this project's implementations alone: no pattern, file or entry point."""
    known = [item.name for item in discovery.own()]
    if unknown := [name for name in names if name not in known]:
        raise ToolError(f"no implementation of this project: {', '.join(unknown)}; there are {', '.join(known)}")
    return ",".join(names)


def _trusted(revision: str) -> str:
    """The commit; raises ToolError for one that the checkout did not come from, which anybody may have written."""
    try:
        commit = git(CHECKOUT, "rev-parse", "--verify", f"{revision}^{{commit}}")
        git(CHECKOUT, "merge-base", "--is-ancestor", commit, "HEAD")
    except GitError as error:
        raise ToolError(f"{revision} is not in the history of {CHECKOUT}, so its code is not run") from error
    return commit


def _small(shapes: str | None) -> str | None:
    for rows, cols in re.findall(r"(\d+)x(\d+)", shapes or ""):
        if int(rows) * int(cols) > MOST_ELEMENTS:
            raise ToolError(f"{rows}x{cols} has more than {MOST_ELEMENTS} elements, the most for a tool")
    return shapes


def _inside(root: Path, file: str) -> Path:
    """The path, with links followed; raises ToolError where it is not below the root folder."""
    try:
        path = (root / file).resolve()
    except (OSError, ValueError) as error:
        raise ToolError(f"{file!r} is no path") from error
    if not path.is_relative_to(root):
        raise ToolError(f"{file} is not below {root}, the folder that this server was started for")
    return path


def _rows(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each implementation on each case, with what may be claimed of it."""
    for case in report["cases"]:
        for entry in case["entries"]:
            why_not = _why_no_claim(report, entry)
            yield {
                "case": case["key"],
                "baseline": report["baseline"],
                "aa_band": case["aa_band"],
                "may_claim": entry["verdict"] if why_not is None else None,
                "why_no_claim": why_not,
                **{name: entry[name] for name in SHOWN},
            }


def _why_no_claim(report: dict[str, Any], entry: dict[str, Any]) -> str | None:
    """The first code of why nothing may be said of an entry's speed over the baseline; None where it may."""
    reasons = {
        "is_baseline": entry["impl"] == report["baseline"],
        f"is_{entry['standing']}": entry["standing"] != "ranked",
        "unfinished": report["unfinished"] is not None,
        "quick": report["run"]["settings"]["quick"],
        "no_verdict": entry["verdict"] is None,
    }
    return next((code for code, holds in reasons.items() if holds), None)
