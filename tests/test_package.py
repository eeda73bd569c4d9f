"""The wheel and the sdist hold what they need and no more."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILD = "from setuptools.build_meta import build_sdist, build_wheel; print(build_sdist('..'), build_wheel('..'))"
ABOUT = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.cfg", "PKG-INFO"}


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_packages_alone(tmp_path):
    listed = subprocess.run(["git", "ls-files", "--cached"], cwd=ROOT, capture_output=True, text=True, check=True)
    checkout = tmp_path / "checkout"
    for name in listed.stdout.splitlines():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    subprocess.run([sys.executable, "-c", BUILD], cwd=checkout, check=True, capture_output=True)
    packages = {name for name in listed.stdout.splitlines() if name.startswith(("harness/", "impls/", "reports/"))}
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == packages | {"normbwd.py"}
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in members if not name.startswith("normbwd.egg-info/")} == packages | {"normbwd.py"} | ABOUT
