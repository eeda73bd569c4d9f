import bz2
from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.publish import admission, packing
from harness.publish.admission import faults, is_unknown, judge, too_large
from harness.publish.packing import pack
from harness.records.file import load
from harness.records.run_records import GpuRecord, ResumedRecord
from harness.records.schema import ConditionsRecord, ContextRecord
from tests.repositories import git, two_revisions
from tests.results_factory import CASE, GROUP, results, row, selftest, timing
from tests.test_command_line import typed

COLD = ConditionsRecord(case=CASE, group=GROUP, sm_clock_mhz=[1980] * 40)
TESTED = (selftest(), selftest(when="after"))


def run(*rows, selftests=TESTED, states=(COLD,), ended=True, interrupted=False, **changed):
    """A run that nothing speaks against, but for what is changed of its first line."""
    made = results(
        *(rows or [row("quack", 50.0, timed=timing(50.0))]),
        selftests=selftests,
        states=states,
        ended=ended,
        interrupted=interrupted,
    )
    impls = [impl.model_copy(update={"source": f"impls/{impl.name}.py"}) for impl in made.run.implementations]
    facts = {
        "started_at": "2026-11-23T08:00:00+00:00",
        "revision": "2428dea3e3f4",
        "implementations": impls,
        "libraries": {"python": "3.12.3", "torch": "2.11.0", "cuda": "13.0"},
        "settings": made.run.settings.changed(**changed.pop("settings", {})),
    }
    return replace(made, run=made.run.model_copy(update=facts | changed))


def device(**changed):
    return {"device": run().run.device.model_copy(update=changed)}


def implementations(**changed):
    return {"implementations": [impl.model_copy(update=changed) for impl in run().run.implementations]}


def test_whole_run_may_be_published():
    assert not faults(run())


VOID = row("quack", 50.0, timed=timing(50.0, voided={"throttled (heat)": 5}))
VOID_IN_CONTEXT = row(
    "quack",
    50.0,
    timed=timing(50.0),
    contexts={"beside:8": ContextRecord(status="ok", timing=timing(50.0, voided={"throttled (heat)": 40}))},
)
FAILED = selftest(selftest().checks[0].model_copy(update={"passed": False}))
SHARED = COLD.model_copy(update={"other_processes": 2})


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (run(ended=False), "not finished"),
        (run(interrupted=True), "not finished"),
        (run(row("quack", status="crashed")), "nothing in it passed"),
        (run(**device(profile="cpu")), "measured on a CPU"),
        (run(settings={"quick": True}), "a look and no claim"),
        (run(revision=None), "no revision"),
        (run(revision="2428dea3e3f4-dirty"), "uncommitted changes (2428dea3e3f4-dirty)"),
        (run(revision="my-copy"), "my-copy is no commit"),
        (run(libraries={"python": "3.12.3"}), "no version of torch, cuda or rocm"),
        (run(**device(driver=None)), "no version of driver (install nvidia-ml-py)"),
        (run(**implementations(source="mine.py")), "no hash of mine.py"),
        (run(settings={"processes": 2}), "not all of the 2 processes measured"),
        (run(selftests=()), "no self-test before the cases of process 0"),
        (run(selftests=(selftest(),)), "no self-test after the cases of process 0"),
        (replace(run(), selftests_behind=(0, 0)), "no self-test after the cases of process 0"),
        (run(selftests=(FAILED, selftest(when="after"))), "the self-test failed (t0)"),
        (run(states=(SHARED,)), "others used the device as well (2 at a time)"),
        (run(states=(COLD.model_copy(update={"sm_clock_mhz": []}),)), "no clocks were read"),
        (run(VOID), "up to 11 % of the blocks of rms-8192x4096-bf16 are void, of at most 10 %"),
        (run(VOID_IN_CONTEXT), "up to 50 % of the blocks of rms-8192x4096-bf16 beside:8 are void"),
    ],
)
def test_what_speaks_against_a_run_is_said(planted, said):
    assert any(said in fault for fault in faults(planted)), faults(planted)
    assert not any("\n" in fault for fault in faults(planted))


@pytest.mark.parametrize(
    "fine",
    [
        run(row("quack", 50.0, timed=timing(50.0)), row("liger", status="wrong"), row("cudnn", status="crashed")),
        run(row("quack", 50.0, timed=timing(50.0, voided={"throttled (heat)": 4}))),
        run(**implementations(source="mine.py", libraries={"mine.py": "sha256:0123456789ab"})),
        run(**implementations(source="a_package.adapters")),
        run(settings={"timed": False}, selftests=(), states=()),
        # An AMD GPU: nothing reads its clocks, and it has no driver's version.
        run(
            libraries={"python": "3.12.3", "torch": "2.11.0", "rocm": "7.2"},
            **device(driver=None),
            states=(COLD.model_copy(update={"sm_clock_mhz": []}),),
        ),
    ],
)
def test_what_an_implementation_does_speaks_against_nothing(fine):
    assert not faults(fine)


def published(folder, found, name="fp16", packed=True):
    """A run at its place in a folder of results."""
    path = folder / found.run.device.profile / f"{name}.jsonl{'.bz2' if packed else ''}"
    path.parent.mkdir(parents=True, exist_ok=True)
    records = (found.run, *found.gpus, *found.rows, *found.conditions, *found.selftests, found.end)
    content = "".join(f"{record.model_dump_json(exclude_none=True)}\n" for record in records).encode()
    path.write_bytes(bz2.compress(content) if packed else content)
    return path


def said_of(path):
    return " | ".join(judge(path))


def test_place_and_packing_are_judged_too(tmp_path):
    assert said_of(published(tmp_path, run())) == ""
    assert "not packed" in said_of(published(tmp_path, run(), packed=False))
    elsewhere = tmp_path / "b200/fp16.jsonl.bz2"
    elsewhere.parent.mkdir()
    published(tmp_path, run()).rename(elsewhere)
    assert "not in the folder of its device, h200" in said_of(elsewhere)
    elsewhere.write_bytes(bz2.compress(b'{"record":"run","schema_version":2}\n'))
    assert "line 1 is not a results record" in said_of(elsewhere)


def test_traces_of_a_machine_are_said(tmp_path):
    found = run(command="normbwd bench --impl /home/ann/mine.py --out /scratch/ann/run")
    said = said_of(published(tmp_path, found))
    assert "the path /home/ann/mine.py tells of the machine or of its user" in said
    assert "the path /scratch/ann/run" in said
    gpus = (GpuRecord(number=0, host="ann-desktop", uuid="GPU-1234"),)
    said = said_of(published(tmp_path, replace(run(), gpus=gpus)))
    assert "the host ann-desktop" in said
    assert "the serial GPU-1234" in said


def test_revision_at_which_a_run_was_resumed_is_held_to_the_same(tmp_path):
    record = ResumedRecord(at="2026-11-25T08:00:00+00:00", revision="2428dea3e3f4-dirty")
    (fault,) = faults(replace(run(), resumed=[record]))
    assert "uncommitted changes (2428dea3e3f4-dirty)" in fault


def test_revision_has_to_be_a_commit_of_the_repository(tmp_path):
    checkout = two_revisions(tmp_path)
    assert not is_unknown(git(checkout, "rev-parse", "HEAD").strip()[:12], checkout)
    assert is_unknown("0" * 12, checkout)
    assert not is_unknown("0" * 12, tmp_path / "no-checkout")


def test_folder_of_a_device_has_a_limit(tmp_path, monkeypatch):
    path = published(tmp_path, run())
    path.with_name("page.md").write_bytes(b"-" * admission.MOST_BYTES)  # is written from the file
    assert not too_large(path.parent)
    monkeypatch.setattr(admission, "MOST_BYTES", path.stat().st_size - 1)
    assert "delete what is stale" in too_large(path.parent)[0]


def test_each_file_has_a_line_and_each_reason_another(tmp_path):
    published(tmp_path, run(), "fp16")
    published(tmp_path, run(revision=None), "fp32")
    published(tmp_path, run(**device(profile="mi355x")), "fp16")
    assert admission.lines(admission.judge_published(None, published=tmp_path)) == (
        "h200/fp16: may be published\n"
        "h200/fp32: may not be published\n"
        "  no revision; measure it from a git checkout, or state it in NORMBWD_REVISION\n"
        "mi355x/fp16: may be published\n"
        "2 may be published; 1 may not be published\n"
    )
    assert [path.parent.name for path in admission.judge_published("fp16,*2", published=tmp_path)] == ["h200"] * 2 + [
        "mi355x"
    ]


def test_no_such_file_is_said(tmp_path):
    with pytest.raises(UsageError, match="nothing in"):
        admission.judge_published(None, published=tmp_path)
    published(tmp_path, run())
    with pytest.raises(UsageError, match="--only fp99: no file"):
        admission.judge_published("fp99", published=tmp_path)


def test_command_ends_with_the_worst_verdict(monkeypatch, capsys):
    assert typed("publish --check --only default") == 0
    assert "h200/default: " in capsys.readouterr().out
    refused = {path: ["no"] for path in admission.judge_published("default")}
    monkeypatch.setattr(admission, "judge_published", lambda only: refused)
    assert typed("publish --check") == 1
    assert "h200/default: may not be published\n  no\n" in capsys.readouterr().out


def test_check_measures_nothing_that_could_be_tried_dry(capsys):
    assert typed("publish --check --dry-run") == 2
    assert capsys.readouterr().err == "error: --check and --dry-run do not go together; give one of them\n"


def test_packed_run_may_be_published(tmp_path):
    """Whatever its folder, its user and its host were called."""
    found = run(command="normbwd bench --impl /home/ann/mine.py --out /home/ann/run")
    raw = published(tmp_path / "unfinished", found, packed=False)
    target = tmp_path / "h200/fp16.jsonl.bz2"
    pack(raw, target)
    assert admission.judge_published(None, published=tmp_path) == {target: []}
    assert load(target).run.command == "normbwd bench --impl mine.py"


def test_file_that_is_being_packed_is_not_taken_for_published(tmp_path, monkeypatch):
    """Another process reads meanwhile, or the packing was killed."""

    def look_and_read(path):
        assert not [*tmp_path.glob("*/*.jsonl*")]
        return load(path)

    monkeypatch.setattr(packing, "load", look_and_read)
    pack(published(tmp_path / "unfinished", run(), packed=False), tmp_path / "h200/fp16.jsonl.bz2")
    assert [path.name for path in tmp_path.glob("h200/*")] == ["fp16.jsonl.bz2"]
