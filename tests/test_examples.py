"""The examples run as they are written."""

import dataclasses
import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import reports
from harness.cases import NormCase, make_inputs
from harness.cases.input_kinds import INPUT_KINDS
from harness.verify import precision
from harness.worker.discovery import discover
from tests.repositories import commit, git
from tests.results_factory import CASE, LAYER, results, row, twin

EXAMPLES = Path(__file__).parent.parent / "examples"
NORM = NormCase("rms", 8, 64, dtype="fp32", weight_dtype="fp32", device="cpu")


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


ROOT = EXAMPLES.parent
ACTION, COMMENT = ROOT / "action.yml", ROOT / "comment" / "action.yml"
OWN_WORKFLOWS = [EXAMPLES / "github-actions.yml", EXAMPLES / "github-comment.yml"]
WORKFLOWS = [*OWN_WORKFLOWS, *sorted((ROOT / ".github/workflows").glob("*.yml")), ACTION, COMMENT]
OWN = {"OWNER/normbwd@v1", "OWNER/normbwd/comment@v1"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: "/".join(path.parts[-2:]))
def test_actions_are_pinned_by_hash(path):
    used = set(re.findall(r"uses: (\S+)", path.read_text("utf-8")))
    assert used
    assert [action for action in used - OWN if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.parametrize("path", OWN_WORKFLOWS, ids=lambda path: path.name)
def test_a_user_writes_15_lines(path):
    assert sum(not line.startswith("#") for line in path.read_text("utf-8").splitlines()) <= 15


def test_code_of_a_pull_request_never_runs_beside_a_token():
    """What it writes into GITHUB_ENV or onto the path is read by the later steps of its job."""
    measure, comment = (yaml.safe_load(path.read_text("utf-8")) for path in OWN_WORKFLOWS)
    assert measure["permissions"] == {"contents": "read"}
    assert comment["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert measure["jobs"]["gate"]["steps"][0]["with"]["persist-credentials"] is False
    assert comment[True]["workflow_run"]["workflows"] == [measure["name"]]  # YAML reads `on` as true
    assert not re.search(r"token|secrets|\bgh |pull_request_target", OWN_WORKFLOWS[0].read_text() + ACTION.read_text())
    runs = COMMENT.read_text("utf-8").partition("\nruns:")[2]
    assert not re.search(r"checkout|python|pip|found/(?!comment\.md)", runs)
    assert "github.event.workflow_run.head_sha" in runs


STEPS, COMMENT_STEPS = (yaml.safe_load(path.read_text("utf-8"))["runs"]["steps"] for path in (ACTION, COMMENT))


def test_no_input_of_the_action_is_part_of_a_script():
    """A name with a quote in it would else be run."""
    assert [step["name"] for step in STEPS + COMMENT_STEPS if "${{" in step.get("run", "")] == []


def run_step(step, where, env):
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
    return subprocess.run(command, cwd=where, env=os.environ | env, check=False).returncode


HOSTILE_BRANCH = 'b";touch${IFS}RUN;$(touch${IFS}RUN)`touch${IFS}RUN`'
HOSTILE_NAME = HOSTILE_BRANCH + "'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "says", "branch", "name"),
    [
        ("", 0, "my-norm: head's code is base's", "base", "my-norm"),
        ("1.0 * ", 3, "right on 1 of 1", "base", "my-norm"),
        ("1.01 * ", 1, "wrong on 1 of 1", HOSTILE_BRANCH, HOSTILE_NAME),
        ("", 2, "measured nothing.**\n\n    error: there is no revision", "$(touch RUN)", "my-norm"),
    ],
)
def test_the_action_leaves_a_comment_and_a_code(tmp_path, fault, code, says, branch, name):
    """Its scripts run as a runner runs them, but for the installation; on a CPU no time is ranked."""
    where = tmp_path / "repository"
    where.mkdir()
    text = (EXAMPLES / "my_norm.py").read_text("utf-8").replace('name = "my-norm"', f"name = {name!r}")
    git(where, "init", "-q")
    commit(where, {"my_norm.py": text})
    if " " not in branch:
        git(where, "branch", branch)
    commit(where, {"my_norm.py": text.replace("dx = rstd", f"dx = {fault}rstd") + "\n# head\n"})
    given = {"adapter": "my_norm.py", "impls": name, "shapes": "16x64", "base": branch, "gate": "", "strict": "true"}
    given |= {"options": "--norm rms --device cpu --quick", "launcher": "env LAUNCHED=1", "name": "mine"}
    output, codes = tmp_path / "output", []
    (tmp_path / "normbwd").symlink_to(Path(sys.executable).parent.parent)
    runner = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": os.devnull}
    runner["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    for step in STEPS[1:]:
        if "run" in step:
            env = dict(runner)
            for variable, value in step["env"].items():
                asked = re.search(r"inputs\.(\w+)", value)
                output_code = output.read_text().strip().removeprefix("code=") if "outputs." in value else value
                env[variable] = given[asked[1]] if asked else output_code
            codes.append(run_step(step, where, env))
    assert codes == [0, code]
    assert says in (tmp_path / "normbwd-mine/comment.md").read_text("utf-8")[:100]
    assert not list(tmp_path.rglob("RUN"))


@pytest.mark.parametrize("earlier", ["", "17"])
def test_a_comment_pings_nobody_and_is_edited_in_place(tmp_path, earlier):
    """The text is a stranger's: tables and folded parts stay, tags, links, pictures and mentions do not work."""
    text = "**right** | a@b |\n<details><summary>x</summary>\n@you <img src=x> ![p](https://e.x) [r]: www.e.x #12\n"
    text += "&commat;you gh-1\n</details>\n" + "@" * 60000
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "comment.md").write_text(text)
    fake = tmp_path / "gh"
    fake.write_text(
        '#!/bin/bash\necho "$@" >> calls\ncase "$*" in pr\\ list*) echo 5;; *--paginate*) echo -n "$EARLIER";; esac\n'
    )
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "EARLIER": earlier, "GH_REPO": "o/r", "COMMIT": "c" * 40}
    env["NAME"] = "mine"
    assert run_step(COMMENT_STEPS[1], tmp_path, env) == 0
    posted = (tmp_path / "comment.md").read_text("utf-8")
    assert len(posted) < 65536  # GitHub takes no more
    assert posted.startswith("<!-- normbwd mine -->\n**right** | a")
    assert posted.count("<details><summary>x</summary>") == posted.count("</details>") == 1
    assert not re.search(r"@\w|<img|\]\(|\]:|://|www\.|#\d|&\w|gh-\d", posted)
    assert text.startswith(posted.partition("\n")[2].replace("\u200b", ""))
    last = (tmp_path / "calls").read_text().splitlines()[-1]
    in_place = "api -X PATCH repos/o/r/issues/comments/17 -F body=@comment.md"
    assert last == (in_place if earlier else "pr comment 5 --body-file comment.md")


@pytest.mark.parametrize("kind", [kind.name for kind in INPUT_KINDS.values() if kind.only in ("any", "weight")])
def test_example_adapter_is_right_on_inputs_of_every_kind(kind):
    mine = {item.name: item for item in discover([EXAMPLES / "my_norm.py"])}["my-norm"]
    for change in ({}, {"zero_centred": True}, {"dtype": "bf16"}):
        inputs = make_inputs(dataclasses.replace(NORM, inputs=kind, **change), seed=2)
        assert (mine.missing(), mine.unsupported(inputs.case)) == (None, None)
        grads = mine.prepare(inputs)()
        assert precision.malformed(inputs, grads) is None
        assert precision.fault(precision.check(inputs, grads)) is None


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.slow
def test_model_trains_alike_with_either_norm(norm, capsys):
    load("training_step").main(
        ["--device", "cpu", "--norm", norm, "--cols", "32", "--tokens", "16", "--layers", "1", "--steps", "3"]
    )
    steps = re.findall(r"^ +(\d) +([\d.]+) +([\d.]+) +([+-][\d.]+)$", capsys.readouterr().out, re.MULTILINE)
    assert [int(step) for step, *_ in steps] == [0, 1, 2]
    theirs, ours = ([float(step[column]) for step in steps] for column in (1, 2))
    assert theirs == pytest.approx(ours, abs=2e-5)
    assert theirs[2] < theirs[0]  # it learns, so that a gradient that is 0 would be seen


SMALL = ["--device", "cpu", "--cols", "32", "--tokens", "16", "--layers", "1", "--steps", "1"]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--beside", "8"], "--beside holds multiprocessors of a GPU; leave it out on a CPU"),
        (["--layers", "0"], "--layers 0: must be at least 1"),
        (["--tokens", "0"], "--tokens 0: must be at least 1"),
        (["--tokens", "1000"], "--tokens 1000: does not divide into sequences; give a multiple of 512, or fewer"),
        (["--cols", "385"], "--cols 385: does not divide into heads; give a multiple of 128"),
        (["--device", "toaster"], "--device toaster: not here; give one of cpu"),
        (["--device", "cuda"], "--device cuda: not here; give one of cpu"),
    ],
)
def test_what_cannot_be_trained_is_said_at_once(monkeypatch, capsys, more, error):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(SystemExit) as stopped:
        load("training_step").main([*SMALL, *more])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.endswith(f": error: {error}\n")


def test_a_cpu_needs_the_interpreter(monkeypatch, capsys):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(SystemExit):
        load("training_step").main(SMALL)
    assert "set TRITON_INTERPRET=1, and train a small model: --cols 64" in capsys.readouterr().err


@pytest.mark.parametrize("beside", [-1, 132])
def test_one_multiprocessor_at_least_is_left_free(monkeypatch, capsys, beside):
    example = load("training_step")
    monkeypatch.setattr(example.torch.cuda, "device_count", lambda: 1)
    there = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(example.torch.cuda, "get_device_properties", lambda device: there)
    with pytest.raises(SystemExit):
        example.main(["--device", "cuda", "--beside", str(beside)])
    assert f"--beside {beside}: must leave one of 132 multiprocessors free" in capsys.readouterr().err


def test_other_kernel_begins_with_the_backward(monkeypatch):
    """By events of a clock that goes on by a millisecond at every record, and a backward that tells when it is."""
    example = load("training_step")
    happened = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            happened.append("mark")
            self.at_ms = len(happened)

        def elapsed_time(self, end):
            return end.at_ms - self.at_ms

    class Step(example.Step):
        def __init__(self):
            """Nothing to train."""

        def __call__(self, mark):
            for action in ("forward", "backward", "optimizer"):
                mark()
                happened.append(action)
            mark()

    monkeypatch.setattr(example.torch.cuda, "Event", Event)
    monkeypatch.setattr(example.torch.cuda, "synchronize", lambda: happened.append("wait"))
    assert Step().timed_us(lambda: happened.append("hold")) == (7000.0, 2000.0)
    assert happened == ["mark", "forward", "hold", "mark", "backward", "mark", "optimizer", "mark", "wait"]


class ScriptedStep:
    """A step that takes given times."""

    def __init__(self, name, step_us, happened):
        self.name, self.step_us, self.happened = name, step_us, happened

    def timed_us(self, beside):
        beside()
        self.happened.append(self.name)
        return self.step_us, self.step_us / 2


def test_steps_of_both_models_are_taken_in_turn(capsys):
    example, happened = load("training_step"), []
    steps = {"torch": ScriptedStep("torch", 1000.0, happened), "in-house": ScriptedStep("in-house", 800.0, happened)}
    times = example.time_steps(steps)
    rounds = [tuple(happened[at : at + 2]) for at in range(0, len(happened), 2)]
    assert len(rounds) == example.TIMED_STEPS
    assert set(rounds) == {("torch", "in-house"), ("in-house", "torch")}
    assert times["torch"].backward_us == [500.0] * example.TIMED_STEPS
    example.print_steps("alone", times)
    assert capsys.readouterr().out.splitlines() == [
        "torch, alone: a step takes 1000 us, half of them 1000 to 1000",
        "in-house, alone: a step takes 800 us, half of them 800 to 800",
        "alone: with torch's norms a step takes 1.250 times as long",
    ]


def test_a_step_beside_nothing_does_not_count(capsys):
    example, happened = load("training_step"), []
    other = SimpleNamespace(begin=lambda: happened.append("hold"), held=lambda: happened[-1] != "in-house")
    steps = {"torch": ScriptedStep("torch", 1000.0, happened), "in-house": ScriptedStep("in-house", 800.0, happened)}
    times = example.time_steps(steps, other)
    assert happened[::2] == ["hold"] * 2 * example.TIMED_STEPS
    assert (times["torch"].void, times["in-house"].void) == (0, example.TIMED_STEPS)
    example.print_steps("beside a kernel", times)
    assert capsys.readouterr().out.splitlines() == [
        "torch, beside a kernel: a step takes 1000 us, half of them 1000 to 1000",
        "in-house, beside a kernel: no time (20 of 20 steps do not count: the other kernel did not hold)",
    ]


@pytest.mark.parametrize("planted", range(16))
def test_the_first_slow_of_16_commits_is_found_in_5_comparisons(planted):
    example, measured = load("find_slowdown"), []

    def measure(commit):
        measured.append(commit)
        slow = int(commit) >= planted
        noise = 0.004 * (-1) ** int(commit)
        return {"a": example.Side(noise - 0.03 * slow, slow), "b": example.Side(-noise, False)}

    assert example.first_slow([str(number) for number in range(16)], measure) == str(planted)
    assert len(measured) <= 5


def test_commits_without_a_slowdown_take_one_comparison():
    example = load("find_slowdown")
    assert example.first_slow(["1", "2", "3"], lambda _: {"a": example.Side(-0.2, False)}) is None


def test_a_comparison_is_read_from_the_report(monkeypatch):
    example = load("find_slowdown")
    rows = [row("m@base", 50.0), row("m@head", 52.0), row("m@base", 50.0, LAYER), row("m@head", None, LAYER, "wrong")]
    again = [twin("m@base", 50.0), twin("m@base", 50.0, LAYER)]
    text = reports.render(results(*rows, *again, names=("m@base", "m@head"), baseline="m@base"), "json")
    monkeypatch.setattr(example, "_normbwd", lambda *_: SimpleNamespace(returncode=0, stdout=text))
    found = example.compared("good", "bad", [])
    assert {case: side.lost for case, side in found.items()} == {CASE.key: True, LAYER.key: True}
    assert math.exp(found[CASE.key].log) == pytest.approx(50 / 52, rel=0.01)
