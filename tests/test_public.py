"""The public module: its names, its benchmark, and that an installed wheel has it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import normbwd

ROOT = Path(__file__).parents[1]


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, **options).stdout


def test_every_public_name_can_be_imported():
    assert [getattr(normbwd, name).__name__ for name in normbwd.__all__ if name != "__version__"]


def test_import_needs_no_torch():
    assert run("-c", "import normbwd, sys; print('torch' in sys.modules)", cwd=ROOT).strip() == "False"


def test_bench_takes_the_options_of_the_command(monkeypatch, tmp_path):
    invocations = []
    monkeypatch.setattr("harness.run.session.bench", lambda invocation, display: invocations.append(invocation))
    (tmp_path / "my.py").touch()
    normbwd.bench(shapes="64x64", impl=[tmp_path / "my.py"], time_limit=9, quick=True, seed=None)
    (invocation,) = invocations
    assert (invocation.settings.shapes, invocation.settings.quick, invocation.time_limit_s) == ("64x64", True, 9)
    assert invocation.impl_files == (tmp_path / "my.py",)
    assert "seed" not in invocation.settings.model_fields_set


@pytest.mark.parametrize(("options", "message"), [({"shape": "8x8"}, "no option shape"), ({"shapes": "8"}, "--shapes")])
def test_wrong_option_is_a_value_error(options, message):
    with pytest.raises(ValueError, match=message):
        normbwd.bench(**options)


@pytest.mark.slow
def test_an_installed_wheel_has_the_public_module(tmp_path):
    sources = tmp_path / "sources"  # building leaves files where it builds
    for name in ("harness", "impls", "reports"):
        shutil.copytree(ROOT / name, sources / name)
    for name in ("normbwd.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    run("-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(sources))
    (wheel,) = tmp_path.glob("normbwd-*.whl")
    target = tmp_path / "installed"
    run("-m", "pip", "install", "-q", "--no-deps", "--target", str(target), str(wheel))
    path = f"import sys; sys.path.insert(0, {str(target)!r})"
    use = "import normbwd; [getattr(normbwd, name) for name in dir(normbwd)]; print(normbwd.__file__)"
    assert run("-I", "-c", f"{path}; {use}", cwd=tmp_path).strip() == f"{target}/normbwd.py"
