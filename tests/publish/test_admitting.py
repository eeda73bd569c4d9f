from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.publish import admitting, packing
from harness.publish.packing import pack
from harness.records.file import load
from tests.published_runs.test_admission import device, published, run
from tests.test_command_line import typed


def test_each_file_has_a_line_and_each_reason_another(tmp_path):
    published(tmp_path, run(), "fp16")
    published(tmp_path, run(revision=None), "fp32")
    published(tmp_path, run(**device(profile="mi355x")), "fp16")
    assert admitting.lines(admitting.judge_published(None, published=tmp_path)) == (
        "h200/fp16: may be published\n"
        "h200/fp32: may not be published\n"
        "  no revision; measure it from a git checkout, or state it in NORMBWD_REVISION\n"
        "mi355x/fp16: may be published\n"
        "2 may be published; 1 may not be published\n"
    )
    assert [each.path.parent.name for each in admitting.judge_published("fp16,*2", published=tmp_path)] == [
        "h200"
    ] * 2 + ["mi355x"]


def test_no_such_file_is_said(tmp_path):
    with pytest.raises(UsageError, match="nothing in"):
        admitting.judge_published(None, published=tmp_path)
    published(tmp_path, run())
    with pytest.raises(UsageError, match="--only fp99: no file"):
        admitting.judge_published("fp99", published=tmp_path)


def test_command_ends_with_the_worst_verdict(monkeypatch, capsys):
    assert typed("publish --check --only compare-planted") == 0
    assert "h200/compare-planted: " in capsys.readouterr().out
    (refused,) = (replace(each, faults=("no",)) for each in admitting.judge_published("compare-planted"))
    monkeypatch.setattr(admitting, "judge_published", lambda only: [refused])
    assert typed("publish --check") == 1
    assert "h200/compare-planted: may not be published\n  no\n" in capsys.readouterr().out


def test_check_measures_nothing_that_could_be_tried_dry(capsys):
    assert typed("publish --check --dry-run") == 2
    assert capsys.readouterr().err == "error: --check and --dry-run do not go together; give one of them\n"


def test_packed_run_may_be_published(tmp_path):
    """Whatever its folder, its user and its host were called."""
    found = run(command="normbwd bench --impl /home/ann/mine.py --out /home/ann/run")
    raw = published(tmp_path / "unfinished", found, packed=False)
    target = tmp_path / "h200/fp16.jsonl.bz2"
    pack(raw, target)
    (judged,) = admitting.judge_published(None, published=tmp_path)
    assert judged.faults == ()
    assert load(target).run.command == "normbwd bench --impl mine.py"


def test_file_that_is_being_packed_is_not_taken_for_published(tmp_path, monkeypatch):
    """A sitting on another GPU looks meanwhile, or the packing was killed."""

    def look_and_read(path):
        assert path.parent.name == "h200"
        assert not [*tmp_path.glob("*/*.jsonl*")]
        return load(path)

    monkeypatch.setattr(packing, "load", look_and_read)
    pack(published(tmp_path / "unfinished", run(), packed=False), tmp_path / "h200/fp16.jsonl.bz2")
    assert [path.name for path in tmp_path.glob("h200/*")] == ["fp16.jsonl.bz2"]
