"""The plan, measured by scripted workers: what is begun, kept, gone on with and published, and what is not."""

import bz2
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from harness.analysis import currency
from harness.cases.tuned import TunedFile
from harness.engine_version import ENGINE_VERSION
from harness.errors import UnavailableError, UsageError
from harness.fleet import spread
from harness.publish import admission, publishing
from harness.publish.publishing import ASSUMED
from harness.records import published_plan
from harness.records.file import load
from harness.records.published_plan import file_of
from harness.records.reasons import Reason
from harness.records.run_records import ImplRecord
from harness.records.schema import VoidBlocks
from harness.run import process, session
from harness.run.invocation import Invocation
from harness.run.opening import claimed
from harness.run.process import WorkerDiedError
from harness.run.progress import Display
from harness.run.session import InterruptedRun
from harness.sanitizer import check as sanitizer
from harness.worker.messages import Hello, Row, Try
from tests.results_factory import results, row
from tests.test_command_line import CPU, GPU, ScriptedProcess, typed

PLAN = """
[runs.large]
about = "two shapes"
bench = { shapes = "64x64,32x64", norm = "rms", impls = "torch-eager,liger" }

[runs.small]
about = "one shape"
bench = { shapes = "16x64", norm = "rms", impls = "torch-eager" }

[runs.checked]
about = "a verification"
verify = { shapes = "8x64", norm = "rms", inputs = "normal", impls = "liger" }

[pages."large.md"]
of = ["large"]
"""
SOURCES = {"torch-eager": "impls/torch_eager.py", "liger": "impls/triton_peers/liger.py"}
VERSIONS = currency.adapter_versions()
HELLO = Hello(
    available=[GPU, CPU],
    implementations=[ImplRecord(name=n, family=n, source=file, version=VERSIONS[n]) for n, file in SOURCES.items()],
    libraries={"torch": "2.11.0"},
)
NAMES = ["large", "small", "checked"]


@pytest.fixture
def workers(monkeypatch):
    """Scripted workers with a clock, which each job moves on.

    `voided` has, for a case, the void blocks of each time that it is measured.
    """

    class Scripted(ScriptedProcess):
        greeting = HELLO
        clock = SimpleNamespace(now_s=0.0, job_s=0.0)

        def _try(self, request):
            super()._try(request)
            self.clock.now_s += self.clock.job_s
            if counts := self.voided[f"{request.case.rows}x{request.case.cols}"]:
                void = [VoidBlocks(cause=Reason("throttled"), blocks=counts.pop(0))]
                self.events = [with_voided(event, void) for event in self.events]

    def with_voided(event, void):
        if not isinstance(event, Row) or event.row.timing is None:
            return event
        timed = event.row.timing.model_copy(update={"voided": void})
        return Row(event.row.model_copy(update={"timing": timed}))

    Scripted.statuses, Scripted.launched, Scripted.voided = {}, [], defaultdict(list)
    monkeypatch.setattr(process, "WorkerProcess", Scripted)
    return Scripted


@pytest.fixture
def folder(tmp_path, monkeypatch, workers):
    """An empty working folder with a plan; the command line reads it too."""
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.chdir(tmp_path)
    look = partial(publishing.survey_plan, plan_file=tmp_path / "plan.toml", published=tmp_path / "results")
    monkeypatch.setattr(publishing, "survey_plan", look)
    return tmp_path


def surveyed(**asked):
    (look,) = publishing.survey_plan(Invocation(device="h200").changed(**asked), Display())
    return look


def publish(workers, **asked):
    """One call; what became of it."""
    return publishing.publish(*surveyed(**asked), Display(), now_s=lambda: workers.clock.now_s)


def states(**asked):
    return {each.name: (each.state, each.reasons) for each in surveyed(**asked)[1]}


def published(folder):
    return sorted(path.name.partition(".")[0] for path in folder.glob("results/h200/*"))


def tried(workers):
    """The cases that workers were asked for, in order, and that they had to try."""
    requests = [request for worker in workers.launched for request in worker.requests if isinstance(request, Try)]
    return [f"{request.case.rows}x{request.case.cols}" for request in requests]


def survey_lines(**asked):
    look, runs = surveyed(**asked)
    return look.lines(runs)


def unfinished(folder, name="large"):
    return folder / "runs/publish-h200" / name / "results.jsonl"


def test_all_is_measured_once_in_order_and_published(folder, workers):
    done = publish(workers)
    assert done == dict.fromkeys(NAMES, "published")
    assert tried(workers) == ["64x64", "32x64", "16x64", "8x64", "8x64"]  # what is studied, in a second process
    assert set(states().values()) == {("current", ())}
    assert (publish(workers), len(tried(workers))) == ({}, 5)


def test_libraries_are_asked_once_a_call(folder, workers):
    publish(workers)
    first, *later = (worker.start.asked for worker in workers.launched)
    assert first
    assert len(later) > len(NAMES) - 1
    assert not any(later)


def test_what_the_device_was_tuned_for_is_measured_beside_the_rest(folder, workers, monkeypatch):
    (folder / "plan.toml").write_text(PLAN.replace('"two shapes"', '"two shapes"\ntuned = true'))
    publish(workers, only="large")
    monkeypatch.setattr(published_plan, "PUBLISHED", folder / "results")
    monkeypatch.setattr(published_plan, "CHECKOUT", folder)
    file = folder / "results/h200/tuned.json"
    file.write_text(TunedFile(device="NVIDIA H200", date="today", cases=[]).model_dump_json())
    found = ImplRecord(name="liger@tuned", family="liger", source=str(file), version=VERSIONS["liger"])
    knowing = replace(HELLO, implementations=[*HELLO.implementations, found])
    workers.greeting = property(lambda worker: knowing if worker.start.tuned_files else HELLO)
    assert states(only="large") == {"large": ("stale", ("without liger@tuned",))}
    assert publish(workers) == dict.fromkeys(NAMES, "published")
    measured = load(file_of("h200", "large", folder / "results")).rows
    assert {row.impl for row in measured} == {"torch-eager", "liger", "liger@tuned"}
    assert states(only="large") == {"large": ("current", ())}


def test_only_what_is_named_is_measured(folder, workers):
    assert publish(workers, only="small,check*") == {"small": "published", "checked": "published"}
    with pytest.raises(UsageError, match="--only smal: the plan has no such run; did you mean small"):
        surveyed(only="smal")


def test_what_is_not_finished_in_time_the_next_call_goes_on_with(folder, workers, capsys):
    workers.clock.job_s = 70.0
    assert publish(workers, minutes=1, only="large") == {"large": "unfinished"}
    assert "large: kept as far as it came, for the next call" in capsys.readouterr().err
    assert published(folder) == []
    assert load(unfinished(folder)).end.interrupted
    (large,) = surveyed(only="large")[1]
    assert (large.state, large.reasons, len(large.jobs)) == ("missing", ("begun: 1 of 2 jobs are left",), 1)
    assert publish(workers, only="large") == {"large": "published"}
    assert tried(workers) == ["64x64", "32x64"]
    whole = load(file_of("h200", "large", folder / "results"))
    assert len([row for row in whole.rows if row.role == "impl"]) == 4
    assert whole.run.command == "normbwd bench --device h200 --shapes 64x64,32x64 --norm rms --impls torch-eager,liger"
    assert not unfinished(folder).exists()


def test_run_that_another_process_measures_or_has_published_is_left_to_it(folder, workers, capsys):
    look, runs = surveyed()
    with claimed(folder / "runs/publish-h200/large.lock"):
        assert publish(workers, only="large") == {}
    assert "large: another process measures it\n" in capsys.readouterr().err
    assert publish(workers, only="large") == {"large": "published"}
    done = publishing.publish(look, runs, Display(), now_s=lambda: workers.clock.now_s)
    assert done == {"small": "published", "checked": "published"}
    assert tried(workers)[:3] == ["64x64", "32x64", "16x64"]
    assert "large: another process has published it\n" in capsys.readouterr().err


@pytest.mark.parametrize("void", [1, 2])
def test_case_with_too_many_void_blocks_is_measured_again_once_a_call(folder, workers, capsys, void):
    workers.voided["64x64"] = [*[50] * void, 0]
    first = publish(workers, only="large")
    assert "large: 1 case left, for void blocks" in capsys.readouterr().err
    if void == 2:
        assert (first, published(folder)) == ({"large": "unfinished"}, [])
        first = publish(workers, only="large")
    assert first == {"large": "published"}
    assert tried(workers) == ["64x64", "32x64", *["64x64"] * void]
    target = file_of("h200", "large", folder / "results")
    assert not [fault for fault in admission.judge(target) if "void" in fault or "process" in fault]
    assert states(only="large") == {"large": ("current", ())}


def test_what_does_not_fit_makes_room_for_what_does(folder, workers):
    """A row of large took ten minutes on another device; what is less important is measured in its place."""
    slow = results(row("liger", 50.0), stages_s={"time": 600.0})
    slow = replace(slow, end=slow.end.model_copy(update={"wall_s": 600.0}))
    path = file_of("b200", "large", folder / "results")
    path.parent.mkdir(parents=True)
    lines = [f"{record.model_dump_json(exclude_none=True)}\n" for record in (slow.run, *slow.rows, slow.end)]
    path.write_bytes(bz2.compress("".join(lines).encode()))
    assert publish(workers, minutes=2, only="large,small") == {"large": "unfinished", "small": "published"}
    assert tried(workers) == ["16x64"]
    assert "about 40 min" in survey_lines(only="large")


@pytest.mark.parametrize(("minutes", "said"), [(0.001, "nothing that is due can be begun"), (0.0, "must be positive")])
def test_time_that_is_too_short_for_anything_is_refused(folder, workers, minutes, said):
    with pytest.raises(UsageError, match=f"--minutes {minutes:g}: {said}"):
        publish(workers, minutes=minutes)
    look, runs = surveyed(minutes=1)
    with pytest.raises(UsageError, match="--minutes 1: nothing that is due can be begun"):
        publishing.publish(look, runs, Display(), begun_s=0.0, now_s=lambda: 60.0)
    assert not (folder / "runs").exists()
    assert tried(workers) == []


def test_less_time_for_a_stage_than_users_give_it_is_refused(folder, workers):
    with pytest.raises(UsageError, match="--time-limit 120: a timeout is published after 300 s at least"):
        publish(workers, time_limit_s=120.0)
    assert tried(workers) == []
    assert publish(workers, time_limit_s=301.0, only="small") == {"small": "published"}


@pytest.mark.parametrize(
    ("faults", "calls"),
    [
        ({"before": [WorkerDiedError("killed")]}, 1),
        ({"after": [WorkerDiedError("killed")]}, 1),
        ({"after": [KeyboardInterrupt()]}, 2),
        ({"after": [KeyboardInterrupt(), WorkerDiedError("killed")]}, 2),
    ],
)
def test_process_is_not_whole_without_both_self_tests(folder, workers, capsys, faults, calls):
    original, left = workers._test, {when: [*several] for when, several in faults.items()}

    def fail(self, request):
        original(self, request)
        if left.get(request.when):
            self.events[-2:] = [left[request.when].pop(0)]

    workers._test = fail
    if calls > 1:
        with pytest.raises(InterruptedRun):
            publish(workers, only="large")
        (large,) = surveyed(only="large")[1]
        assert [(job.case.rows, job.impls) for job in large.jobs] == [(32, ("torch-eager", "liger"))]
    assert publish(workers, only="large") == {"large": "published"}
    again = sum(map(len, faults.values()))
    assert tried(workers) == ["64x64", "32x64", *["32x64"] * again]
    said = "large: 1 case left, for void blocks or a self-test that died"
    assert (said in capsys.readouterr().err) == (again == 2 or calls == 1)
    target = file_of("h200", "large", folder / "results")
    assert not [fault for fault in admission.judge(target) if "self-test" in fault]


def test_interrupted_command_says_how_to_go_on(folder, workers, capsys):
    workers.statuses["liger"] = KeyboardInterrupt()
    assert typed("publish --device h200") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "error: interrupted; what is done is kept, and the same command goes on from it"
    del workers.statuses["liger"]
    assert published(folder) == []
    assert typed("publish --device h200") == 0
    assert published(folder) == sorted(NAMES)
    assert tried(workers).count("32x64") == 1


def test_torn_file_is_gone_on_with_and_an_unreadable_one_set_aside(folder, workers):
    workers.clock.job_s = 70.0
    publish(workers, minutes=1, only="large")
    with unfinished(folder).open("a") as stream:
        stream.write('{"record":"row","case":{"no')
    assert len(surveyed(only="large")[1][0].jobs) == 1
    unfinished(folder).write_text("nonsense\n")
    assert publish(workers, only="large") == {"large": "published"}
    assert tried(workers) == ["64x64", "64x64", "32x64"]
    assert (folder / "runs/publish-h200/large.other-1/results.jsonl").read_text() == "nonsense\n"


@pytest.mark.parametrize("version", ["engine", "liger"])
def test_unfinished_run_of_another_version_is_begun_again(folder, workers, monkeypatch, capsys, version):
    workers.clock.job_s = 70.0
    publish(workers, minutes=1, only="large")
    if version == "engine":
        monkeypatch.setattr(currency, "ENGINE_VERSION", 7)
        monkeypatch.setattr(session, "ENGINE_VERSION", 7)
    else:
        raised = VERSIONS | {"liger": VERSIONS["liger"] + 1}
        impls = [item.model_copy(update={"version": raised[item.name]}) for item in HELLO.implementations]
        workers.greeting = replace(HELLO, implementations=impls)
        monkeypatch.setattr(currency, "adapter_versions", lambda _: raised)
    (large,) = surveyed(only="large")[1]
    assert (large.state, len(large.jobs)) == ("missing", 2)
    assert publish(workers, only="large") == {"large": "published"}
    assert (
        "set aside: --resume: since runs/publish-h200/large/results.jsonl began, version of " in capsys.readouterr().err
    )
    assert tried(workers) == ["64x64", "64x64", "32x64"]
    assert load(folder / "runs/publish-h200/large.other-1/results.jsonl").rows
    assert states(only="large") == {"large": ("current", ())}


def test_changed_library_makes_a_published_file_stale_where_it_was_measured(folder, workers):
    publish(workers, only="large")
    workers.greeting = replace(HELLO, libraries={"torch": "2.12.0"})
    assert states(only="large") == {"large": ("stale", ("torch 2.11.0 where 2.12.0 is here",))}
    workers.greeting = replace(HELLO, available=[CPU], libraries={"torch": "2.12.0"})
    assert states(only="large", dry_run=True) == {"large": ("current", ())}
    workers.greeting = replace(HELLO, libraries={})
    assert states(only="large") == {"large": ("current", ())}


def test_implementation_that_was_missing_makes_a_published_file_stale(folder, workers):
    (folder / "plan.toml").write_text(PLAN.replace(', impls = "torch-eager,liger"', ""))
    liger = next(item for item in HELLO.implementations if item.name == "liger")
    missing = liger.model_copy(update={"missing": Reason("text", {"text": "not here"})})
    workers.greeting = replace(HELLO, implementations=[HELLO.implementations[0], missing])
    publish(workers, only="large")
    assert states(only="large") == {"large": ("current", ())}
    workers.greeting = HELLO
    assert states(only="large") == {"large": ("stale", ("without liger",))}
    workers.greeting = replace(HELLO, available=[CPU])
    assert states(only="large", dry_run=True) == {"large": ("current", ())}


def test_case_that_is_new_in_the_plan_makes_a_published_file_stale(folder, workers):
    publish(workers, only="small")
    (folder / "plan.toml").write_text(PLAN.replace('"16x64"', '"16x64,8x64"'))
    reasons = ("shapes 16x64 where the plan says 16x64,8x64", "without 1 of the cases")
    assert states(only="small") == {"small": ("stale", reasons)}


def test_published_file_that_cannot_be_read_is_stale(folder, workers):
    path = file_of("h200", "small", folder / "results")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"torn")
    ((state, (reason,)),) = states(only="small").values()
    assert (state, reason) == (
        "stale",
        f"cannot read {path}: it is no .bz2 file; if it is plain text, take .bz2 off its name",
    )
    assert publish(workers, only="small") == {"small": "published"}


def test_run_in_which_nothing_passed_is_kept_and_not_published(folder, workers, capsys):
    workers.statuses["torch-eager"] = "wrong"
    for _ in range(2):
        assert typed("publish --device h200 --only small") == 1
    assert published(folder) == []
    assert unfinished(folder, "small").exists()
    assert "nothing passed in: small" in capsys.readouterr().err


def test_without_a_gpu_there_is_one_line(folder, workers, capsys):
    workers.greeting = replace(HELLO, available=[CPU])
    assert typed("publish") == 4
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: torch finds no GPU on this machine, and a CPU's times are not published; ")
    assert typed("publish --device h200") == 4
    assert typed("publish --device h2000 --dry-run") == 2


def test_dry_run_without_a_gpu_is_of_all_that_is_published(folder, workers, monkeypatch, capsys):
    monkeypatch.setattr("harness.run.newer._newest", lambda _name: None)
    workers.greeting = replace(HELLO, available=[CPU])
    assert typed("publish --dry-run") == 2
    assert "nothing is published yet; name the GPU, such as --device h200" in capsys.readouterr().err
    for device in ("h200", "new-gpu"):
        (folder / "results" / device).mkdir(parents=True)
        (folder / "results" / device / "small.jsonl.bz2").touch()
    assert typed("publish --dry-run") in (0, None)
    headings = [line for line in capsys.readouterr().out.splitlines() if line and not line.startswith(" ")]
    assert [line.partition(";")[0] for line in headings] == [
        "h200: 0 current, 1 stale, 2 missing",
        "new-gpu: 0 current, 1 stale, 2 missing",
    ]


def test_dry_run_names_what_is_due_and_why(folder, workers, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(session, "ENGINE_VERSION", 7)
        before.setattr(currency, "ENGINE_VERSION", 7)
        publish(workers, only="small")
    publish(workers, only="checked")
    workers.clock.job_s = 70.0
    publish(workers, minutes=1, only="large")
    workers.greeting = replace(HELLO, available=[CPU])
    assert survey_lines(dry_run=True).splitlines() == [
        "h200: 1 current, 1 stale, 1 missing; about 1 min for all that is due; " + ASSUMED,
        "  large    missing  about 1 min  begun: 1 of 2 jobs are left",
        f"  small    stale    about 1 min  version 7 of the engine where {ENGINE_VERSION} is here",
        "  checked  current",
    ]


def test_fleet_is_asked_for_its_gpus_and_measures_whole_runs(folder, workers, monkeypatch):
    asked = []

    def bench(invocation, display):
        asked.append(invocation)
        return session.bench(invocation.changed(fleet=None, kinds=None), display)

    monkeypatch.setattr(publishing, "connected", lambda address: nullcontext(SimpleNamespace(gpus=lambda: {"h200": 2})))
    monkeypatch.setattr(spread, "bench", bench)
    look, runs = surveyed(fleet="local", device="auto", only="small")
    assert (look.place.profile.name, look.place.gpus, look.place.here) == ("h200", 2, False)
    assert publishing.publish(look, runs, Display()) == {"small": "published"}
    assert [(each.fleet, each.kinds, each.device) for each in asked] == [("local", "h200", "h200")]


H100 = replace(GPU, name="NVIDIA H100 PCIe")


@pytest.mark.parametrize(
    ("named", "here", "device"),
    [
        ("auto", [GPU, CPU], "h100-sxm"),
        ("auto", [H100, CPU], "h100-pcie"),
        ("h100", [H100, CPU], "h100-pcie"),
        ("h100-nvl", [CPU], "h100-nvl"),
    ],
)
def test_a_fleet_calls_several_devices_by_one_name(folder, workers, monkeypatch, named, here, device):
    cluster = SimpleNamespace(gpus=lambda: {"h100": 2})
    monkeypatch.setattr(publishing, "connected", lambda address: nullcontext(cluster))
    workers.greeting = replace(HELLO, available=here)
    look, _ = surveyed(fleet="local", device=named, only="small")
    asked = look.one("small").invocation
    assert (look.place.profile.name, asked.device, asked.kinds) == (device, device, "h100")


def test_fleet_of_two_kinds_has_to_be_told_which(folder, workers, monkeypatch):
    cluster = SimpleNamespace(gpus=lambda: {"h200": 2, "b200": 8})
    monkeypatch.setattr(publishing, "connected", lambda address: nullcontext(cluster))
    with pytest.raises(UsageError, match="this cluster has 2 h200, 8 b200; name one of them with --device"):
        surveyed(fleet="local", device="auto")
    assert surveyed(fleet="local", device="b200")[0].place.profile.name == "b200"


def test_verification_is_not_for_a_fleet(folder, workers, monkeypatch, capsys):
    monkeypatch.setattr(publishing, "connected", lambda address: nullcontext(SimpleNamespace(gpus=lambda: {"h200": 2})))
    monkeypatch.setattr(
        spread, "bench", lambda asked, display: session.bench(asked.changed(fleet=None, kinds=None), display)
    )
    look, runs = surveyed(fleet="local", only="small,checked")
    assert publishing.publish(look, runs, Display()) == {"small": "published", "checked": "unfinished"}
    assert "checked: a fleet verifies nothing; publish it without --fleet" in capsys.readouterr().err
    with pytest.raises(UsageError, match="a fleet verifies nothing"):
        publishing.publish(look, runs[1:], Display())


def test_missing_sanitizer_hinders_its_run_alone(folder, workers, monkeypatch, capsys):
    (folder / "plan.toml").write_text(PLAN.replace("verify =", "sanitizer = true\nverify ="))
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name, path=None: None)
    done = publish(workers, only="checked,small", minutes=10)
    assert done == {"small": "published", "checked": "unfinished"}
    assert "checked: --sanitizer: compute-sanitizer is not here" in capsys.readouterr().err


def test_device_that_others_use_can_be_surveyed_and_is_not_measured(folder, workers):
    workers.greeting = replace(HELLO, available=[replace(GPU, others=(77,)), CPU])
    assert states(only="small") == {"small": ("missing", ())}
    with pytest.raises(UnavailableError, match="other processes use this NVIDIA H200"):
        publish(workers, only="small")


def test_sanitizer_is_left_out_where_it_cannot_run(folder, workers):
    (folder / "plan.toml").write_text(PLAN.replace("verify =", "sanitizer = true\nverify ="))
    workers.greeting = replace(HELLO, available=[replace(GPU, name="AMD Instinct MI355X", architecture="gfx950"), CPU])
    look, _ = surveyed(device="auto", only="checked")
    assert not look.one("checked").invocation.sanitizer
    with pytest.raises(UnavailableError):
        surveyed(device="h200")
