"""Versions of what adapters require: installed, built from source, or on the path; in folders made for the test."""

import importlib
import json
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cases.adapter import Implementation
from harness.worker import libraries
from harness.worker.libraries import versions, versions_for


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path, to install into."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "site").mkdir()
    libraries._packages.cache_clear()
    yield tmp_path / "site"
    libraries._packages.cache_clear()


def install(site: Path, name: str, module: str, version: str = "1.2", came_from: dict | None = None) -> Path:
    """A distribution with one package, or one extension where the name says so."""
    file = site / module if module.endswith(".so") else site / module / "__init__.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x = 1\n")
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{file.relative_to(site)},,\n")
    (info / "top_level.txt").write_text(module.partition("/")[0].partition(".")[0])  # as setuptools writes it
    if came_from is not None:
        (info / "direct_url.json").write_text(json.dumps(came_from))
    importlib.invalidate_caches()
    return file


def versions_of(*requires: str, source: str = "impls/mine.py", name: str = "impls.mine") -> dict[str, str]:
    module = SimpleNamespace(__name__=name, requires=requires)
    return versions_for(Implementation("mine", "mine", source, module))


def test_all_run_with_python_and_torch():
    assert {"python", "torch", "triton"} <= versions().keys()
    assert versions_of("torch", "triton.language") == {}


def test_an_installed_library_has_its_version(site):
    install(site, "liger_kernel", "liger_kernel")
    assert versions_of("liger_kernel", "not_here", "not.here") == {"liger-kernel": "1.2"}


def test_installed_from_a_repository_has_its_commit(site):
    came_from = {"url": "https://x", "vcs_info": {"vcs": "git", "commit_id": "0123456789abcdef0123"}}
    install(site, "fla", "fla", came_from=came_from)
    assert versions_of("fla") == {"fla": "1.2 (0123456789ab)"}


def test_built_from_a_folder_has_a_hash(site):
    binary = install(site, "apex", f"fused{EXTENSION_SUFFIXES[0]}", came_from={"url": "file:///apex", "dir_info": {}})
    first = versions_of("fused")
    assert first["apex"].startswith("1.2 (sha256:")
    binary.write_text("another build")
    assert versions_of("fused") != first
    binary.write_text("x = 1\n")
    assert versions_of("fused") == first


def test_checkout_on_the_path_has_its_commit(site, tmp_path, monkeypatch):
    install(site, "flash-attn", "flash_attn")
    checkout = tmp_path / "checkout"
    (checkout / "flash_attn").mkdir(parents=True)
    (checkout / "flash_attn" / "__init__.py").write_text("")
    git = ["git", "-C", str(checkout), "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.syspath_prepend(checkout)
    importlib.invalidate_caches()
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert versions_of("flash_attn") == {"flash_attn": commit[:12]}
    (checkout / "flash_attn" / "__init__.py").write_text("x = 2")
    assert versions_of("flash_attn") == {"flash_attn": f"{commit[:12]}-dirty"}


def test_foreign_adapter_is_hashed(tmp_path):
    file = tmp_path / "my_norm.py"
    file.write_text("name = 'mine'")
    first = versions_of(source=str(file), name="normbwd_impl_my_norm")
    assert first["my_norm.py"].startswith("sha256:")
    file.write_text("name = 'changed'")
    assert versions_of(source=str(file), name="normbwd_impl_my_norm") != first
    assert versions_of(source="package.module", name="package.module") == {}
