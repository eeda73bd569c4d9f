"""What is measured again, where, and in which order; what becomes of the verdicts then is tests/test_failures.py's."""

import math
import re
import shlex
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.cases import NormCase
from harness.devices.facts import DeviceFacts
from harness.gate import confirm, judge
from harness.records.file import ResultsFile, load
from harness.records.reasons import Reason
from harness.records.run_records import ImplRecord, SideRecord
from harness.run import compare, opening, session
from harness.worker.messages import Hello
from tests.repositories import DOUBLED, HONEST, commit, git, two_revisions
from tests.results_factory import gateable, in_processes, row, timing, twin
from tests.test_command_line import typed

H200 = DeviceFacts("cuda", "NVIDIA H200", "sm_90", memory_bytes=141 << 30, l2_bytes=60 << 20, sm_count=132)
CPU = DeviceFacts("cpu", "Some CPU", "x86_64", l2_bytes=1 << 20)
LIBRARIES = {"torch": "2.11.0", "triton": "3.6.0"}
HERE = Hello(
    available=[H200, CPU],
    implementations=[
        ImplRecord(name=name, family=name, source=f"impls/{name}.py") for name in ("torch-eager", "quack")
    ],
    libraries=LIBRARIES,
)
REVISION = "abc1234"
FIVE = (1.0, 1.01, 0.99, 1.005, 0.995)
# Everything that may differ from the usual case, so that what gets lost shows.
CASES = [
    NormCase("layer", 1024 * 2**power, 4096, "fp16", "fp32", bias=True, zero_centred=True, eps=1e-6)
    for power in range(3)
]
REGRESSION = "[[regression]]\nhead = 'quack'\nbase = 'liger'\n"


def write(path, found):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    file = ResultsFile(path)
    for record in (found.run, *found.selftests, *found.rows, found.end):
        file.append(record)
    file.close()
    return path


def measured(losses, run=None, **settings):
    """A run of torch-eager, liger and quack, in which quack is slower than the others, by a log ratio a case."""
    rows = []
    for case, slower in losses.items():
        rows += [row(name, 50.0, case) for name in ("torch-eager", "liger")]
        rows += [row("quack", 50.0 * math.exp(slower), case), twin("torch-eager", 50.0, case, shift=0)]
    found = gateable(
        *in_processes(*rows, scales=FIVE), processes=5, names=("torch-eager", "liger", "quack"), **settings
    )
    files = {"liger": "my_liger.py", "quack": "impls/quack.py"}
    known = [each.model_copy(update={"source": files.get(each.name, "impls")}) for each in found.run.implementations]
    return replace(found, run=found.run.model_copy(update={"implementations": known, **(run or {})}))


class Machine:
    """Stands in for the device: remembers what happened in which order, and measures what it is told to."""

    def __init__(self, capsys):
        self.events = []
        self.chosen = []
        self.here = HERE
        self.revision = REVISION
        self.slower = 0.05
        self._capsys = capsys

    def inventory(self, invocation):
        files = "".join(f" with {path}" for path in invocation.impl_files)
        self.events += [*self._printed(), f"look at {invocation.device}{files}"]
        known = {each.name for each in self.here.implementations}
        mine = [ImplRecord(name="liger", family="liger", source=str(path)) for path in invocation.impl_files]
        loaded = mine if "liger" not in known else []
        return replace(self.here, implementations=[*self.here.implementations, *loaded])

    def bench(self, invocation, display):
        self.events += [*self._printed(), "measure"]
        self.chosen.append(invocation)
        if isinstance(self.slower, BaseException):
            raise self.slower
        return write(invocation.out / opening.RESULTS_NAME, measured(dict.fromkeys(invocation.cases, self.slower)))

    def finish(self):
        self.events += self._printed()
        return self.events

    def _printed(self):
        self.out = self._capsys.readouterr().out
        return ["print"] * ("adjusted p" in self.out)


@pytest.fixture
def machine(tmp_path, monkeypatch, capsys):
    """A machine like the one of the results, in an empty working folder with gates and an adapter of the reader's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gate.toml").write_text(REGRESSION)
    (tmp_path / "my_liger.py").write_text("")
    found = Machine(capsys)

    def told(name, function):
        def call(*arguments):
            found.events.append(name)
            return function(*arguments)

        return call

    monkeypatch.setattr(session, "inventory", found.inventory)
    monkeypatch.setattr(session, "bench", found.bench)
    monkeypatch.setattr(confirm, "own_revision", lambda: found.revision)
    monkeypatch.setattr(judge, "judge", told("judge", judge.judge))
    monkeypatch.setattr(confirm, "confirmed", told("judge again", confirm.confirmed))
    return found


def gated(*more, files=("--impl", "my_liger.py")):
    """The exit code of the gate on runs/pr/results.jsonl."""
    with pytest.raises(SystemExit) as ended:
        main(["gate", "runs/pr/results.jsonl", "--confirm", *files, *more])
    return ended.value.code


PR = Path("runs/pr/results.jsonl")
ONE_LOST = dict(zip(CASES, (0.0, 0.05, 0.0), strict=True))


def test_what_both_runs_show_has_regressed(machine):
    write(PR, measured(ONE_LOST))
    assert gated() == 1
    looked = ["look at h200", "look at h200 with my_liger.py"]
    assert machine.finish() == ["judge", "print", *looked, "measure", "judge again", "print"]
    (folder,) = PR.parent.glob("confirm-*")
    assert machine.out.startswith(f"\nMeasured again: {folder}/results.jsonl\n\n")
    assert "slower by more than delta; confirmed: 0.951" in machine.out


def test_second_run_changes_only_cases_and_seed(machine, monkeypatch):
    """Only the failing cases are measured again, with the settings of the first run but another seed."""
    monkeypatch.setattr(sys, "argv", ["normbwd", "gate", "--confirm"])
    settings = {"quick": True, "twice": True, "seeds": 3, "repeats": 7, "suite": "llm"}
    write(PR, measured(ONE_LOST, **settings))
    gated()
    (invocation,) = machine.chosen
    asked = invocation.settings
    assert invocation.cases == (CASES[1],)
    assert (asked.suite, asked.shapes) == (None, "2048x4096")
    assert asked.impls == "torch-eager,quack,liger"  # the baseline for its twin, then those that the limit names
    assert asked.baseline == "torch-eager"
    assert (asked.quick, asked.twice, asked.seeds, asked.repeats) == (True, True, 3, 7)
    assert (asked.seed, invocation.device, asked.processes, asked.timed) == (8, "h200", 5, True)
    assert (invocation.resume, invocation.allow_others, asked.cross_check) == (False, False, False)
    assert invocation.impl_files == (Path("my_liger.py"),)  # quack is found without being named
    assert invocation.command == "normbwd gate --confirm"


def test_geomean_is_measured_again_on_all_its_cases(machine):
    write(PR, measured(dict.fromkeys(CASES, 0.008)))
    machine.slower = 0.008
    assert gated("--processes", "3", "--out", "again", "--allow-others") == 1
    (invocation,) = machine.chosen
    assert invocation.cases == tuple(CASES)
    assert (invocation.settings.processes, invocation.out, invocation.allow_others) == (3, Path("again"), True)


def test_only_the_limits_that_failed_say_what_is_measured(machine):
    Path("gate.toml").write_text(
        "[[claim]]\nimpl = 'liger'\nover = 'torch-eager'\nat_least = 0.9\n"
        "[[claim]]\nimpl = 'quack'\nover = 'torch-eager'\nat_least = 0.99\n"
    )
    write(PR, measured(ONE_LOST))
    assert gated(files=()) == 1
    (invocation,) = machine.chosen
    assert (invocation.settings.impls, invocation.impl_files, invocation.cases) == (
        "torch-eager,quack",
        (),
        (CASES[1],),
    )


def test_where_nothing_failed_on_speed_nothing_is_looked_at(machine):
    write(PR, measured(dict.fromkeys(CASES, 0.0)))
    assert gated() == 0
    assert machine.finish() == ["judge", "print"]


def test_without_being_asked_nothing_is_confirmed(machine):
    write(PR, measured(ONE_LOST))
    with pytest.raises(SystemExit) as ended:
        main(["gate", str(PR)])
    assert ended.value.code == 1
    assert machine.finish() == ["judge", "print"]


WAS = "the run was on NVIDIA H200 (h200)"
OTHER = replace(HERE, available=[replace(H200, name="NVIDIA H100 80GB HBM3"), CPU])
SLICE = replace(HERE, available=[replace(H200, architecture="sm_90a"), CPU])
GONE = Reason("missing", {"text": "not installed: quack"})
ABSENT = [HERE.implementations[0], HERE.implementations[1].model_copy(update={"missing": GONE})]


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (OTHER, f"{WAS}, and here is NVIDIA H100 80GB HBM3 (h100-sxm), Some CPU (cpu); run it there"),
        (SLICE, f"{WAS}, and here is NVIDIA H200 (nvidia-h200), Some CPU (cpu); run it there"),
        (replace(HERE, available=[CPU]), f"{WAS}, and here is Some CPU (cpu); run it there"),
        (
            replace(HERE, libraries={**LIBRARIES, "triton": "3.7.1"}),
            "triton was 3.6.0 in the run and is 3.7.1 here; run it where the run was made",
        ),
        (
            replace(HERE, libraries={"torch": "2.11.0"}),
            "triton was 3.6.0 in the run and is absent here; run it where the run was made",
        ),
        (replace(HERE, implementations=ABSENT), "quack is missing here: not installed: quack"),
    ],
)
def test_elsewhere_nothing_is_confirmed_and_nothing_is_lost(machine, capsys, here, why):
    write(PR, measured(ONE_LOST))
    machine.here = here
    assert gated() == 4
    assert machine.events[:3] == ["judge", "print", "look at h200"]
    assert "measure" not in machine.events
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == f"error: cannot confirm: {why}"
    assert [path.name for path in PR.parent.iterdir()] == ["results.jsonl"]


@pytest.mark.parametrize(("name", "path"), [("liger", "my_liger.py"), ("quack", "quack-kernels")])
def test_what_an_adapter_requires_has_to_be_what_it_was(machine, capsys, name, path):
    files = {"liger": "my_liger.py", "quack": "impls/quack.py"}

    def having(version):
        return [
            each.model_copy(
                update={
                    "libraries": {path: version} if each.name == name else {},
                    "source": files.get(each.name, "impls"),
                }
            )
            for each in measured(ONE_LOST).run.implementations
        ]

    write(PR, measured(ONE_LOST, {"libraries": {**LIBRARIES, path: "1"}, "implementations": having("1")}))
    machine.here = replace(HERE, implementations=having("1"))
    assert gated() == 1
    machine.here = replace(HERE, implementations=having("2"))
    assert gated() == 4
    assert f"{path} was 1 in the run and is 2 here" in capsys.readouterr().err


MARKING = "from pathlib import Path\nPath({marker!r}).write_text('run')\n"


def refused(capsys, *files):
    assert gated(files=files) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_path_that_the_file_names_is_not_loaded(machine, capsys, tmp_path, monkeypatch):
    """With the real worker, which would import it, and write the marker."""
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(confirm, "_refuse_another", lambda run, hello: None)
    marker = tmp_path / "marker"
    Path("my_liger.py").write_text(MARKING.format(marker=str(marker)))
    found = measured(ONE_LOST)
    run = found.run.model_copy(update={"device": found.run.device.model_copy(update={"profile": "cpu"})})
    text = write(PR, replace(found, run=run)).read_text()
    PR.write_text(text.replace('"liger"', '"mine"'))
    Path("gate.toml").write_text("[[claim]]\nimpl = 'mine'\nover = 'torch-eager'\nat_least = 2\n")
    assert refused(capsys) == (
        "error: --confirm: mine came from 'my_liger.py'; what a results file names is not run: type --impl and the file"
    )
    assert not marker.exists()


def test_a_checkout_that_the_file_names_is_not_entered(machine, capsys, tmp_path):
    """A configuration of git runs programs, so that its folder is as untrusted as a path to import."""
    repository = two_revisions(tmp_path)
    marker = tmp_path / "marker"
    git(repository, "config", "core.fsmonitor", f"touch {marker};")
    write(PR, compared(str(repository / "my_norm.py")))
    assert "type --impl and the file" in refused(capsys)
    assert machine.events == ["judge"]
    assert not marker.exists()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (("--tuned", "absent.json"), "--tuned cannot read absent.json: No such file"),
        (("--impl", "absent.py"), "--impl absent.py: no such file"),
    ],
)
def test_the_files_typed_have_to_hold_what_failed(machine, capsys, files, why):
    write(PR, measured(ONE_LOST))
    assert why in refused(capsys, *files)
    assert "measure" not in machine.events


def test_interrupted_confirmation_is_resumed(machine, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["normbwd", "gate", str(PR), "--confirm", "--impl", "my_liger.py"])
    write(PR, measured(ONE_LOST))
    machine.slower = session.InterruptedRun(Path("runs/pr/confirm-1/results.jsonl"))
    assert gated() == 130
    assert capsys.readouterr().err.splitlines()[-2:] == [
        f"go on:   normbwd gate {PR} --confirm --impl my_liger.py --resume --out runs/pr/confirm-1 "
        "(what is done is kept)",
        "error: interrupted",
    ]
    assert machine.finish() == ["judge", "print", "look at h200", "look at h200 with my_liger.py", "measure"]
    (cut,) = machine.chosen
    write(cut.out / "results.jsonl", measured({CASES[1]: 0.05}))
    machine.slower = 0.05
    assert gated("--resume") == 1
    assert (machine.chosen[1].resume, machine.chosen[1].out) == (True, cut.out)


def test_there_must_be_something_to_resume(machine, capsys):
    write(PR, measured(ONE_LOST))
    assert gated("--resume") == 2
    complaint = "error: --resume: nothing was confirmed beside runs/pr/results.jsonl yet; name the folder with --out\n"
    assert capsys.readouterr().err == complaint


@pytest.mark.parametrize(
    "option", ["--processes 3", "--out again", "--resume", "--allow-others", "--impl my_liger.py", "--tuned a.json"]
)
def test_options_of_a_confirmation_are_refused_without_one(machine, capsys, option):
    write(PR, measured(ONE_LOST))
    with pytest.raises(SystemExit) as ended:
        main(["gate", str(PR), *option.split()])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("are of the run that confirms; add --confirm\n")
    assert machine.events == []


# Two revisions.

COMMITS = ["1" * 40, "2" * 40]
SIDED = {"quack": "norm@head", "liger": "norm@base", "torch-eager": "norm@base"}


def compared(file):
    """A comparison of two revisions of the implementation `norm`, the head slower on the second case."""
    found = measured(ONE_LOST, {"sides": sides(file)}, baseline="norm@base")
    rows = [each.model_copy(update={"impl": SIDED[each.impl]}) for each in found.rows if each.impl != "torch-eager"]
    twins = [each.model_copy(update={"impl": SIDED[each.impl]}) for each in found.rows if each.role == "again"]
    Path("gate.toml").write_text("[[regression]]\nhead = 'norm@head'\nbase = 'norm@base'\n")
    return replace(found, rows=rows + twins)


def sides(file):
    return [SideRecord(word=word, commit=of, file=file) for word, of in zip(("base", "head"), COMMITS, strict=True)]


@pytest.mark.parametrize(("file", "files"), [("norm.py", (Path("norm.py"),)), (None, ())])
def test_confirmation_checks_out_both_revisions(machine, monkeypatch, file, files):
    @contextmanager
    def revisions(invocation):
        assert (invocation.settings.impls, invocation.impl_files) == ("norm", files)
        assert [invocation.base, invocation.head] == COMMITS
        machine.events.append("check out")
        yield invocation.changed(impls="norm@base,norm@head", baseline="norm@base")
        machine.events.append("remove")

    monkeypatch.setattr(compare, "revisions_chosen", revisions)
    Path("norm.py").write_text("")
    write(PR, compared(file))
    assert gated(files=[part for path in files for part in ("--impl", str(path))]) in (1, 3)
    assert machine.events[:6] == ["judge", "print", "look at h200", "check out", "measure", "remove"]
    (invocation,) = machine.chosen
    asked = invocation.settings
    assert (asked.impls, asked.baseline, invocation.cases) == ("norm@base,norm@head", "norm@base", (CASES[1],))


def test_a_commit_that_is_not_here_confirms_nothing(machine, tmp_path, capsys):
    repository = two_revisions(tmp_path)
    file = str(repository / "my_norm.py")
    write(PR, compared(file))
    assert gated(files=("--impl", file)) == 4
    why = f"error: cannot confirm: there is no revision {COMMITS[0]} in {repository}; name another"
    assert why in capsys.readouterr().err
    assert "measure" not in machine.events


def planted(path, impl):
    """Put other times into a results file, in which this implementation is slow: what was read here is noise."""
    found = load(path)
    rows = [
        each.model_copy(update={"timing": timing(100.0 if each.impl == impl else 50.0), "untimed": None})
        for each in found.rows
    ]
    write(path, replace(found, rows=rows))


@pytest.mark.slow
@pytest.mark.usefixtures("ranked_on_a_cpu")
@pytest.mark.slow
def test_two_revisions_are_measured_again(tmp_path, monkeypatch, capsys):
    """With real workers on a CPU: the file follows its commits, not what the branch has become since."""
    repository = two_revisions(tmp_path)
    monkeypatch.chdir(repository)
    commit(repository, {"my_norm.py": HONEST + "\n# another\n"})
    compared = ["--base", "HEAD~2", "--impl", "my_norm.py", "--impls", "my-norm", "--device", "cpu", "--norm", "rms"]
    compared += ["--shapes", "16x64", "--quick", "--even-if-same", "--out", str(tmp_path / "pr")]
    assert typed(shlex.join(["compare", *compared])) == 0
    path = tmp_path / "pr" / "results.jsonl"
    first = load(path)
    run, rows = first.run, {(row.impl, row.role): row for row in first.rows}
    assert [item.name for item in run.implementations] == ["my-norm@base", "my-norm@head"]
    assert len(first.rows) == 4
    twin = rows["my-norm@base", "again"]
    assert twin.verification is not None  # prepared and verified as a copy of its own
    assert twin.timing.group == rows["my-norm@base", "impl"].timing.group
    assert "my-norm@again" not in capsys.readouterr().out
    commits = git(repository, "rev-parse", "HEAD~2", "HEAD").split()
    assert [(side.word, side.commit, side.file) for side in run.sides] == [
        (word, of, "my_norm.py") for word, of in zip(("base", "head"), commits, strict=True)
    ]
    commit(repository, {"my_norm.py": DOUBLED})

    planted(path, "my-norm@head")
    limits = tmp_path / "gate.toml"
    limits.write_text("[[regression]]\nhead = 'my-norm@head'\nbase = 'my-norm@base'\n")
    arguments = ["gate", str(path), "--config", str(limits), "--confirm", "--processes", "1"]
    arguments += ["--impl", "my_norm.py", "--out", str(tmp_path / "again")]
    assert typed(shlex.join(arguments)) in (1, 3)  # what the second run reads is not ours to say
    shown = capsys.readouterr().out
    assert "REGRESSED  rms-16x64-fp32  0.500 [" in shown
    assert re.search("; confirmed: |not confirmed: ", shown)
    again = load(tmp_path / "again" / "results.jsonl")
    assert [(row.case, row.impl, row.status) for row in again.rows if row.role == "impl"] == [
        (NormCase("rms", 16, 64, "fp32", "fp32", device="cpu"), f"my-norm@{word}", "ok") for word in ("base", "head")
    ]
    assert again.run.sides == run.sides
    assert again.run.settings == run.settings.model_copy(update={"seed": 1})
    assert len(git(repository, "worktree", "list").splitlines()) == 1
