import sys

import pytest

from harness.devices.profiles import GIB, MIB, detect
from harness.run.provenance import device_record, own_revision
from tests.devices.test_devices import H200, HOST, gpu
from tests.fake_nvml import FakeNvml
from tests.repositories import commit, git


def test_record_states_profile_facts_and_nvml(monkeypatch):
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    written = device_record(detect(H200), H200)
    assert written.model_dump() == {
        "profile": "h200",
        "name": "NVIDIA H200",
        "architecture": "sm_90",
        "datasheet_gbps": 4800,
        "l2_bytes": 60 * MIB,
        "last_level_bytes": 60 * MIB,
        "sm_count": 132,
        "memory_bytes": 140 * GIB,
        "driver": "580.1",
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "power_limit_w": 700.0,
        "gpu": "03ac674216f3",
    }


def test_record_does_not_take_another_cards_clocks(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(uuid="GPU-other"))
    written = device_record(detect(H200), H200)
    assert (written.driver, written.sm_clock_mhz, written.power_limit_w) == ("580.1", None, None)


@pytest.mark.parametrize("facts", [H200, HOST, gpu("AMD Instinct MI300X", "gfx942")], ids=lambda facts: facts.name)
def test_record_without_nvml(monkeypatch, facts):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    written = device_record(detect(facts), facts)
    assert written.name == facts.name
    assert written.driver is None


def test_revision_is_marked_where_code_has_changed(tmp_path, monkeypatch):
    monkeypatch.delenv("NORMBWD_REVISION", raising=False)
    assert own_revision(checkout=tmp_path) is None
    git(tmp_path, "init", "-q")
    commit(tmp_path, {"impls/mine.py": "a = 1", "results/h200/fast-llm.md": "1", "README.md": "1", "noxfile.py": ""})
    clean = git(tmp_path, "rev-parse", "HEAD").strip()[:12]
    (tmp_path / "results/h200/fast-llm.md").write_text("2")
    (tmp_path / "README.md").write_text("2")
    assert own_revision(checkout=tmp_path) == clean  # a second run is measured by the same code as the first
    (tmp_path / "impls/mine.py").write_text("a = 2")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "results"))  # as in a hook of another repository
    assert own_revision(checkout=tmp_path) == f"{clean}-dirty"
    monkeypatch.setenv("NORMBWD_REVISION", "abc1234")
    assert own_revision(checkout=tmp_path) == "abc1234"


def test_why_git_tells_no_revision_is_said_in_its_words(tmp_path, monkeypatch):
    """A container job whose checkout belongs to another user."""
    monkeypatch.delenv("NORMBWD_REVISION", raising=False)
    said = []
    git(tmp_path, "init", "-q")
    commit(tmp_path, {"a.py": ""})
    assert own_revision(said.append, tmp_path)
    assert said == []
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert own_revision(said.append, tmp_path) is None
    assert f"git config --global --add safe.directory {tmp_path}" in said[0]
    monkeypatch.setenv("PATH", "")
    assert own_revision(said.append, tmp_path) is None
    assert said[1] == "no revision of normbwd is recorded: git cannot be run (No such file or directory); install it"
