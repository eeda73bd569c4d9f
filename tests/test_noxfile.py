"""What the sessions of noxfile.py leave to the commands that they call."""

from pathlib import Path
from types import SimpleNamespace

import nox.registry
import pytest
import typer.main

import noxfile
from harness.__main__ import app
from noxfile import ROOT


def fake_session(calls, sandboxed=False):
    return SimpleNamespace(
        posargs=["--quick"],
        virtualenv=SimpleNamespace(is_sandboxed=sandboxed),
        run=lambda *command, **options: calls.append((command, options)),
        log=lambda text: None,
    )


def test_each_command_has_a_session():
    by_program = {"serve"}  # a client reads its standard output, on which nox prints too
    assert set(typer.main.get_command(app).commands) - by_program <= set(nox.registry.get())


def test_interrupted_command_has_time_to_end_its_file():
    """By default nox kills what it started half a second after Ctrl-C, and a run then has no end and no report."""
    calls = []
    noxfile._normbwd(fake_session(calls), "bench")
    command, options = calls[-1]
    assert command[1:] == ("-m", "harness", "bench", "--quick")
    assert options["interrupt_timeout"] >= 60


def test_no_venv_installs_nothing():
    calls = []
    noxfile._normbwd(fake_session(calls), "bench")
    assert not [command for command, _ in calls if "pip" in command]


def test_no_venv_names_what_is_absent():
    calls = []
    noxfile._normbwd(fake_session(calls), "bench")
    (_, _, program), _ = calls[0]
    program = program.replace("'typer", "'no-such-package")
    with pytest.raises(SystemExit, match="lacks no-such-package"):
        exec(compile(program, "check", "exec"), {})


def test_sessions_share_what_they_install(tmp_path, monkeypatch):
    monkeypatch.setattr(noxfile, "SHARED", tmp_path)
    calls = []
    for _ in range(2):
        noxfile._normbwd(fake_session(calls, sandboxed=True), "bench")
    installed = [command for command, _ in calls if "pip" in command]
    assert len(installed) == 1


def test_changed_pins_are_installed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(noxfile, "SHARED", tmp_path)
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text("a")
    calls = []
    for pins in ("torch==1", "torch==2"):
        (tmp_path / "constraints.txt").write_text(pins)
        noxfile._install(fake_session(calls, sandboxed=True), "-e", ".")
    assert len([command for command, _ in calls if "pip" in command]) == 2


def test_sources_of_peers_are_downloaded_once_for_their_pins(tmp_path, monkeypatch):
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    monkeypatch.setattr(noxfile, "SHARED", tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    calls = []
    for pin in ("quack-kernels==1", "quack-kernels==1", "quack-kernels==2"):
        (tmp_path / "constraints.txt").write_text(f"numpy==1\n{pin}\n")
        noxfile.peers.func(fake_session(calls, sandboxed=True))
        Path(calls[-1][1]["env"]["NORMBWD_PEERS"]).mkdir(parents=True, exist_ok=True)
    downloads = [command for command, _ in calls if "--target" in command]
    assert [command[-1] for command in downloads] == ["quack-kernels==1", "quack-kernels==2"]


def test_pre_commit_has_the_ruff_of_the_constraints():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (pin,) = [pin.partition("==")[2] for pin in pins if pin.startswith("ruff==")]
    assert f"rev: v{pin}\n" in (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
