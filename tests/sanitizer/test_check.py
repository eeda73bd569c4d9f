"""A script that writes canned logs stands in for compute-sanitizer, and programs that only say their shape."""

import sys
import time
from dataclasses import replace

import psutil
import pytest

from harness.records.file import load
from harness.records.reasons import Reason
from harness.records.schema import TOOLS
from harness.run import process
from harness.sanitizer import check
from harness.sanitizer.check import SIZES, Sanitizer
from harness.sanitizer.target import case_of
from tests.sanitizer.test_log import CLEAN, DIVERGED, INVALID_WRITE, NO_RACES, RACES, UNINITIALISED
from tests.test_command_line import GPU, HELLO, ScriptedProcess, typed
from tests.wording import worded

LAYER, RMS = case_of("layer", (33, 1032)), case_of("rms", (33, 1032))
WROTE = "Invalid __global__ write of size 2 bytes at backward_rows+0x1d20 in kernels.py:143"

# Runs the program as the real one does; a file named after the tool beside it holds the log, or says `hang`.
FAKE = """\
#!{python} -SE
import pathlib, subprocess, sys, time
options, program = sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
tool = options[options.index("--tool") + 1]
with pathlib.Path(__file__).with_name("calls").open("a") as calls:
    calls.write(" ".join(options) + chr(10))
canned = pathlib.Path(__file__).with_name(tool).read_text()
if canned == "hang":
    sleeper = subprocess.Popen([sys.executable, "-SE", "-c", "import time; time.sleep(3600)"])
    pathlib.Path(__file__).with_name("sleeper").write_text(str(sleeper.pid))
    time.sleep(3600)
pathlib.Path(options[options.index("--log-file") + 1]).write_text(canned)
sys.exit(subprocess.call(program) or ("(256 errors" in canned or "Invalid" in canned) * 86)
"""


class FakeTool:
    """A folder to be on PATH, with a compute-sanitizer in it whose tools find nothing until a test says otherwise."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.path = folder / "compute-sanitizer"
        self.path.write_text(FAKE.format(python=sys.executable))
        self.path.chmod(0o755)
        self.finds(memcheck=CLEAN, initcheck=CLEAN, racecheck=NO_RACES, synccheck=CLEAN)

    def finds(self, **logs):
        for tool, log in logs.items():
            (self.folder / tool).write_text(log)

    def calls(self):
        calls = self.folder / "calls"
        return [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []


def saying(code):
    """A program that runs a line of Python in place of an implementation."""

    def program(impl, norm, shapes, impl_files):
        return [sys.executable, "-SE", "-c", f"impl, norm, shapes = {impl!r}, {norm!r}, {list(shapes)!r}\n{code}"]

    return program


RUNS = saying("print('ran %dx%d' % shapes[0])")


@pytest.fixture
def tool(tmp_path):
    return FakeTool(tmp_path / "bin")


@pytest.fixture
def checked(tool, tmp_path):
    """Checks an implementation with the fake tool; the records, and in `said` what was said."""

    def check(norm="layer", tools=TOOLS, program=RUNS, time_limit_s=900.0, impl="mine", sizes=SIZES[:1]):
        made = Sanitizer(
            path=tool.path,
            logs=tmp_path / "kept",
            time_limit_s=time_limit_s,
            say=check.said.append,
            step=lambda impl, stage: check.said.append(f"{impl} {stage} ..."),
            program=program,
        )
        said = {(shape, tool) for shapes in sizes for shape in shapes[:1] for tool in TOOLS if tool not in tools}
        return list(made.check(impl, norm, said, sizes))

    check.said = []
    return check


def outcomes(records):
    return [(record.tool, record.errors, worded(record.detail) or "") for record in records]


def test_every_tool_has_a_record(checked, tool, tmp_path):
    records = checked()
    assert outcomes(records) == [(tool, 0, "") for tool in ("memcheck", "initcheck", "racecheck", "synccheck")]
    assert {(record.impl, record.case) for record in records} == {("mine", LAYER)}
    key = "layer-33x1032-bf16"
    said = [f"mine {key} without a tool ..."]
    for name in ("memcheck", "initcheck", "racecheck", "synccheck"):
        said += [f"mine {key} {name} ...", f"{key} mine: {name}: no errors"]
    assert checked.said == said
    assert len(tool.calls()) == 4
    assert not (tmp_path / "kept").exists()


def test_errors_are_recorded_and_their_logs_kept(checked, tool, tmp_path):
    tool.finds(memcheck=INVALID_WRITE, initcheck=UNINITIALISED, racecheck=RACES, synccheck=DIVERGED)
    records = checked("rms")
    assert [record.case for record in records] == [RMS] * 4
    assert [(record.tool, record.errors) for record in records] == [
        ("memcheck", 2064),
        ("initcheck", 257),
        ("racecheck", 256),
        ("synccheck", 32),
    ]
    assert worded(records[0].detail) == WROTE
    assert f"rms-33x1032-bf16 mine: memcheck: 2064 errors: {WROTE}" in checked.said
    kept = {path.name: path.read_text() for path in (tmp_path / "kept").iterdir()}
    assert set(kept) == {f"mine-rms-33x1032-bf16-{tool}.log" for tool in TOOLS}
    assert kept["mine-rms-33x1032-bf16-memcheck.log"] == f"{INVALID_WRITE}\nran 33x1032\n"


def test_record_has_the_shape_that_ran(checked):
    program = saying("print('768 or 1024 alone'); print('ran %dx%d' % shapes[-1])")
    assert {record.case for record in checked(program=program)} == {case_of("layer", (33, 1024))}


def test_unsupported_everywhere_has_no_record(checked, tool):
    assert checked(program=saying("print('a GPU alone'); raise SystemExit(3)")) == []
    assert checked.said[-1] == "layer-33x1032-bf16 mine: not run under compute-sanitizer: a GPU alone"
    assert tool.calls() == []


def test_failing_program_is_not_run_under_a_tool(checked, tool, tmp_path):
    records = checked(program=saying("raise OSError('no libcudart')"))
    failed = "failed without a tool with exit code 1: OSError: no libcudart"
    assert outcomes(records) == [(tool, None, failed) for tool in TOOLS]
    assert tool.calls() == []
    assert "Traceback" in (tmp_path / "kept" / "mine-layer-33x1032-bf16.log").read_text()
    assert checked.said[-1] == f"layer-33x1032-bf16 mine: synccheck: could not tell: {failed}"


@pytest.mark.slow
def test_hanging_tool_is_stopped_with_children(checked, tool):
    tool.finds(initcheck="hang")
    records = checked(time_limit_s=30.0)
    assert outcomes(records) == [
        ("memcheck", 0, ""),
        ("initcheck", None, "stopped under initcheck after 30 s"),
        ("racecheck", 0, ""),
        ("synccheck", 0, ""),
    ]
    sleeper = int((tool.folder / "sleeper").read_text())
    while psutil.pid_exists(sleeper) and psutil.Process(sleeper).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.1)  # it ends, or the test does not


def test_a_program_that_hangs_by_itself(checked):
    records = checked(tools=["memcheck"], program=saying("import time; time.sleep(3600)"), time_limit_s=0.5)
    assert outcomes(records) == [("memcheck", None, "stopped without a tool after 0.5 s")]


@pytest.mark.slow
def test_the_real_program_calls_an_implementation(checked):
    def on_a_cpu(*what):
        return [*check.target_command(*what), "--device", "cpu"]

    records = checked("rms", ["memcheck"], on_a_cpu, time_limit_s=900, impl="torch-eager")
    assert [(record.case, record.tool, record.errors, record.detail) for record in records] == [
        (RMS, "memcheck", 0, None)
    ]


# From the command line.


@pytest.fixture
def workers(tmp_path, monkeypatch):
    """Scripted workers on a GPU, where quack is missing, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    eager, quack, liger = HELLO.implementations
    missing = quack.model_copy(update={"missing": Reason("missing", {"text": "not installed: quack"})})
    greeting = replace(HELLO, available=[GPU], implementations=[eager, missing, liger])
    scripted = type("Scripted", (ScriptedProcess,), {"statuses": {}, "launched": [], "greeting": greeting})
    monkeypatch.setattr(process, "WorkerProcess", scripted)
    return scripted


@pytest.fixture
def here(tool, monkeypatch):
    """The fake tool on PATH, and programs that only say their shape."""
    monkeypatch.setenv("PATH", str(tool.folder))
    monkeypatch.setattr(Sanitizer, "__init__", _with_program(Sanitizer.__init__))
    return tool


def _with_program(initialise):
    def stand_in(self, **fields):
        initialise(self, **fields | {"program": RUNS})

    return stand_in


LINE = "verify --shapes 4x8 --out run --sanitizer"


def test_records_follow_the_rows_of_what_is_here(workers, here, tmp_path, capsys):
    assert typed(LINE) == 0
    lines = (tmp_path / "run" / "results.jsonl").read_text().splitlines()
    kinds = [line.partition('"record":"')[2].partition('"')[0] for line in lines]
    assert kinds == ["run", *["row"] * kinds.count("row"), *["sanitizer"] * 48, "end"]
    results = load(tmp_path / "run" / "results.jsonl")
    assert [(record.case, record.impl, record.tool, record.errors) for record in results.sanitized] == [
        (case_of(norm, shapes[0]), impl, tool, 0)
        for norm in ("rms", "layer")
        for impl in ("torch-eager", "liger")
        for shapes in SIZES
        for tool in TOOLS
    ]
    assert "sanitizer" in results.end.stages_s
    assert "layer-33x1032-bf16 liger: racecheck: no errors\n" in capsys.readouterr().err


def test_errors_make_the_exit_code_1(workers, here, tmp_path):
    here.finds(racecheck=RACES)
    assert typed(f"{LINE} --norm rms --impls liger") == 1
    results = load(tmp_path / "run" / "results.jsonl")
    assert {row.status for row in results.rows} == {"ok"}
    assert [record.errors for record in results.sanitized] == [0, 0, 256, 0] * len(SIZES)
    assert (tmp_path / "run" / "sanitizer" / "liger-rms-33x1032-bf16-racecheck.log").exists()


def test_resume_skips_what_is_recorded(workers, here, tmp_path):
    line = f"{LINE} --norm rms --impls liger"
    typed(line)
    path = tmp_path / "run" / "results.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-6]))  # without the last size, synccheck of the one before, and the end
    (here.folder / "calls").unlink()
    assert typed(f"{line} --resume") == 0
    assert [call[1] for call in here.calls()] == ["synccheck", *TOOLS]
    assert [record.tool for record in load(path).sanitized] == [*TOOLS] * len(SIZES)
    assert [record.case.rows for record in load(path).sanitized] == [33] * 4 + [1031] * 4 + [131] * 4


def test_absent_tool_is_one_line(workers, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(check, "CUDA_BIN", str(tmp_path))
    assert typed(LINE) == 4
    message = "error: --sanitizer: compute-sanitizer is not here; it comes with the CUDA toolkit\n"
    assert capsys.readouterr() == ("", message)
    assert workers.launched == []
    assert not (tmp_path / "run").exists()


def test_cpu_is_refused(workers, here, tmp_path, capsys):
    workers.greeting = HELLO
    assert typed(LINE) == 4
    assert capsys.readouterr().err.splitlines()[-1:] == [
        "error: --sanitizer: compute-sanitizer checks NVIDIA GPUs alone, and this is Some CPU; leave it out here"
    ]
    assert not (tmp_path / "run").exists()
