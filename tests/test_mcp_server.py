"""`normbwd serve`, asked over its standard input and output by a client of the same SDK."""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from harness.__main__ import main
from harness.records.file import ResultsFile
from tests.exploits.corpus import file_of
from tests.results_factory import mixed

ROOT = Path(__file__).parents[1]


@pytest.fixture
def root(tmp_path):
    """A folder with a results file, a file that says so when it is run, and a way out of it."""
    folder = tmp_path / "root"
    folder.mkdir()
    made, file = mixed(), ResultsFile(folder / "results.jsonl")
    for record in (made.run, *made.rows, made.end):
        file.append(record)
    file.close()
    (tmp_path / "outside.jsonl").write_bytes((folder / "results.jsonl").read_bytes())
    (folder / "run").mkdir()
    for link in ("link.jsonl", "run/results.jsonl"):
        (folder / link).symlink_to(tmp_path / "outside.jsonl")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')\n")
    (folder / "harness").mkdir()  # on the path of a Python that looks into its working folder
    (folder / "harness" / "__init__.py").write_text((folder / "evil.py").read_text())
    return folder


def ask(root, *calls):
    """The answers of a server to calls of (tool, arguments): an error as text; and the tools that it has."""

    async def session():
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        arguments = ["-P", "-m", "harness", "serve", "--root", str(root)]
        server = StdioServerParameters(command=sys.executable, args=arguments, env=environment, cwd=root)
        answers, told = [], []

        async def progress(_done, _total, message):
            told.append(message)

        async with Client(server) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            for name, given in calls:
                result = await client.call_tool(name, given, progress_callback=progress)
                text = "".join(part.text for part in result.content)
                answers.append(text if result.is_error else json.loads(text))
        return tools, answers, told

    return anyio.run(session)


def test_a_client_lists_tools_and_reads_rows(root):
    tools, (suites, rows, wrong), _ = ask(
        root,
        ("list", {"subject": "suites"}),
        ("explain", {"results": "results.jsonl"}),
        ("explain", {"results": "results.jsonl", "impl": "nobody"}),
    )
    assert tools == {"list", "judge", "bench", "compare", "explain"}
    assert "fast-llm" in [suite["name"] for suite in suites["suites"]]
    by_status = {row["status"]: row for row in rows["rows"]}
    assert by_status["wrong"]["reason"]["text"]
    assert (by_status["wrong"]["may_claim"], by_status["wrong"]["why_no_claim"]) == (None, "is_failed")
    claimed = [row for row in rows["rows"] if row["may_claim"]]
    assert claimed
    assert all(row["speedup"]["low"] <= row["speedup"]["value"] <= row["speedup"]["high"] for row in claimed)
    assert wrong.startswith("no such row; there are: ") or "no such row; there are: " in wrong


CALL = {"impls": ["torch-eager"], "shapes": "8x8", "device": "cpu"}
HOSTILE = [
    ("bench", CALL | {"impls": ["--impl=evil.py"]}, "no implementation of this project"),
    ("bench", CALL | {"impls": ["torch-eager,--impl=evil.py"]}, "no implementation of this project"),
    ("bench", CALL | {"impls": ["*"]}, "no implementation of this project"),
    ("bench", CALL | {"shapes": "8x8 --impl=evil.py"}, "shapes"),
    ("bench", CALL | {"shapes": "99999999x99999999"}, "elements"),
    ("bench", CALL | {"device": "--impl=evil.py"}, "device"),
    ("bench", CALL | {"device": "h999"}, "exit code 2: error: --device h999: no such device"),
    ("bench", CALL | {"limit_s": 1e9}, "limit_s"),
    ("judge", {"file": "../outside.py"}, "is not below"),
    ("judge", {"file": "/etc/passwd"}, "is not below"),
    ("judge", {"file": "--peers=evil.py", "device": "cpu"}, "exit code 2: error: "),
    ("judge", {"file": "a\x00b"}, "is no path"),
    ("explain", {"results": "link.jsonl"}, "is not below"),
    ("explain", {"results": "evil.py"}, "exit code 2: error: "),
    ("explain", {"results": "run"}, "is not below"),
    ("compare", {"impl": "quack", "base": "--output=x", "shapes": "8x8"}, "base"),
    ("compare", {"impl": "quack", "base": "nonsense", "shapes": "8x8"}, "is not in the history of"),
    ("list", {"subject": "impls --impl=evil.py"}, "subject"),
    ("nothing", {}, "nothing"),
]


def test_hostile_arguments_are_refused_and_nothing_of_theirs_is_run(root):
    _, answers, _ = ask(root, *((name, given) for name, given, _ in HOSTILE))
    for (name, given, said), answer in zip(HOSTILE, answers, strict=True):
        assert isinstance(answer, str), (name, given, answer)
        assert said in answer, (name, given, answer)
    assert not (root.parent / "was-run").exists()
    assert not (root / "runs").exists()


@pytest.mark.slow
def test_kernels_are_measured_and_judged(root):
    file_of(root, "honest")
    _, (measured, again, verdict, ended), told = ask(
        root,
        ("bench", CALL),
        ("explain", {"results": "nothing"}),
        ("judge", {"file": "honest.py", "shapes": "32x64", "norm": "rms", "device": "cpu"}),
        ("judge", {"file": "honest.py", "device": "cpu", "limit_s": 1}),
    )
    assert {row["why_no_claim"] for row in measured["rows"]} == {"is_baseline"}
    assert (root / measured["results"]).is_file()
    assert "starting a worker" in told
    assert "cannot read" in again
    assert (verdict["schema_version"], verdict["name"]) == (1, "suspect")
    assert "ended after 1 s" in ended


def test_without_the_package_a_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "harness.mcp_server", raising=False)
    for name in ("mcp", "mcp.server", "mcp.server.mcpserver"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit) as ended:
        main(["serve"])
    assert ended.value.code == 4
    assert capsys.readouterr().err == "error: serve needs the package mcp: pip install 'mcp>=2.3'\n"
