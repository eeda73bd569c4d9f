"""Every job of the project, each a session: `nox -s bench -- --device b200` passes what follows `--` through.

All sessions share one environment, .nox/normbwd, as torch may be gigabytes; each adds what it needs.
`nox --no-venv -s bench` runs in the current environment (a GPU image that already holds torch and apex) and installs
nothing.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests"]

ROOT = Path(__file__).parent
SHARED = ROOT / ".nox" / "normbwd"
PROJECT = nox.project.load_toml("pyproject.toml")["project"]
# Reports and gates need neither torch nor triton, which take longer to install than a report takes to write.
LIGHT = [each for each in PROJECT["dependencies"] if not each.startswith(("torch", "triton"))]
EDITABLE = ("--no-deps", "-e", ".")

# The environment that nox makes for a session stays empty: it only shows whether `--no-venv` was given.
session = nox.session(venv_params=["--without-pip"])


def _python(session: nox.Session) -> str:
    """The interpreter that a session's programs run in; makes the shared environment where it is not there yet."""
    if not session.virtualenv.is_sandboxed:
        return "python"
    python = SHARED / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not python.exists():
        session.run(sys.executable, "-m", "venv", str(SHARED), external=True)
    return str(python)


def _install(session: nox.Session, *arguments: str) -> None:
    """Install into the shared environment, unless that was done before for the same pyproject and constraints."""
    if not session.virtualenv.is_sandboxed:
        return
    python, stamp = _python(session), SHARED / "installed.json"
    asked = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + (ROOT / "constraints.txt").read_bytes()).hexdigest()
    done = json.loads(stamp.read_text()) if stamp.exists() else {}
    if done.get(" ".join(arguments)) == asked:
        return
    # Few of torch's thousands of files are imported; those are compiled at their first import.
    pip = (python, "-m", "pip", "install", "-q", "--no-compile", "-c", "constraints.txt")
    session.run(*pip, *arguments, external=True)
    stamp.write_text(json.dumps(done | {" ".join(arguments): asked}, indent=1))


def _install_light(session: nox.Session, *more: str) -> None:
    _install(session, *LIGHT, *more)
    _install(session, *EDITABLE)


def _run_module(
    session: nox.Session, module: str, *arguments: str, env: dict[str, str] | None = None, **options: Any
) -> None:
    """Run a module, which may write bytecode: torch is installed without any, and compiling it takes seconds."""
    env = {**(env or {}), "PYTHONDONTWRITEBYTECODE": ""}
    session.run(_python(session), "-m", module, *arguments, external=True, env=env, **options)


def _normbwd(session: nox.Session, command: str, light: bool = False) -> None:
    if light:
        _install_light(session)
    else:
        _install(session, "-e", ".")
    if not session.virtualenv.is_sandboxed:
        session.run(_python(session), "-c", HAS_DEPENDENCIES, external=True, silent=False)
    # After Ctrl-C the command ends its file and reports what it has; nox would kill it after a third of a second.
    _run_module(session, "harness", command, *session.posargs, interrupt_timeout=60)
    if session.virtualenv.is_sandboxed:
        session.log(f"the command itself is {os.path.relpath(Path(_python(session)).with_name('normbwd'))}")


# With --no-venv nothing is installed: name the absent packages before an import fails.
HAS_DEPENDENCIES = f"""
import re, sys
from importlib.metadata import PackageNotFoundError, version
absent = []
for name in {[each for each in PROJECT["dependencies"] if "sys_platform" not in each]!r}:
    name = re.match("[A-Za-z0-9_.-]+", name)[0]
    try:
        version(name)
    except PackageNotFoundError:
        absent.append(name)
if absent:
    sys.exit("this environment lacks " + ", ".join(absent) + "; python -m pip install " + " ".join(absent))
"""


@session
def bench(session: nox.Session) -> None:
    """Verify and time implementations, and print the comparison."""
    _normbwd(session, "bench")


@session
def verify(session: nox.Session) -> None:
    """Verify implementations without timing them."""
    _normbwd(session, "verify")


@session
def compare(session: nox.Session) -> None:
    """Measure two revisions of one implementation against each other."""
    _normbwd(session, "compare")


@session
def tune(session: nox.Session) -> None:
    """Find an implementation's fastest configurations on this GPU."""
    _normbwd(session, "tune")


@session
def publish(session: nox.Session) -> None:
    """Measure what of the published results is missing or stale."""
    _normbwd(session, "publish")


@session
def gate(session: nox.Session) -> None:
    """Judge a results file against limits."""
    _normbwd(session, "gate", light="--confirm" not in session.posargs)


@session
def selftest(session: nox.Session) -> None:
    """Test the engine on work of which the time is known."""
    _normbwd(session, "selftest")


@session
def judge(session: nox.Session) -> None:
    """Judge a kernel that nobody trusts."""
    _normbwd(session, "judge")


@session
def report(session: nox.Session) -> None:
    """Write a results file as a table for a console, a page or a pull request."""
    _normbwd(session, "report", light=True)


@nox.session(name="list", venv_params=["--without-pip"])
def list_(session: nox.Session) -> None:
    """Say which implementations, suites, variants and devices are known."""
    _normbwd(session, "list")


@session
def documents(session: nox.Session) -> None:
    """Write every document of published results, and the page; `-- --check` only names what would change."""
    _normbwd(session, "documents", light=True)


QUICK = "not gpu and not browser and not peers and not slow"
PARALLEL = ("-n", "auto", "--dist", "loadgroup")  # tests that share a cluster of processes stay in one process


def _run_tests(session: nox.Session, selection: str) -> None:
    _install(session, "-e", ".[dev]")
    selected = () if "-m" in session.posargs else ("-m", selection, *PARALLEL)  # one process for a GPU
    _run_module(session, "pytest", *selected, *session.posargs)


@session
def tests(session: nox.Session) -> None:
    """Run the quick tests, which need neither a GPU nor a browser; `-- -m gpu` runs those that need a GPU."""
    _run_tests(session, QUICK)


@session
def slow(session: nox.Session) -> None:
    """Run the slow tests: commands from end to end, and the in-house kernels compiled for every target."""
    _run_tests(session, "slow")


@session
def coverage(session: nox.Session) -> None:
    """Measure which lines of the project the quick tests run, worker processes included."""
    _install(session, "-e", ".[dev]")
    _run_module(session, "coverage", "erase")
    _run_module(session, "coverage", "run", "-m", "pytest", "-m", QUICK, *PARALLEL, *session.posargs)
    _run_module(session, "coverage", "combine", "-q")
    _run_module(session, "coverage", "report")


@session
def versions(session: nox.Session) -> None:
    """Ask of each commit that changes the engine or an adapter for a raised version, or for why no figure changes."""
    _run_module(session, "tests.versions", *session.posargs)


@session
def weight(session: nox.Session) -> None:
    """Count lines of source and tests and words of documents, against the budgets in pyproject.toml."""
    session.run(_python(session), "tests/weight.py", external=True)


def _install_apart(session: nox.Session, folder: str, *wanted: str) -> str:
    """Install wheels without their dependencies into a folder outside of the environment; return the folder."""
    target = ROOT / ".nox" / folder
    if not target.exists():
        options = ("--no-deps", "--no-compile", "--only-binary", ":all:", "--target", str(target))
        _run_module(session, "pip", "install", "-q", *options, *wanted)
    return str(target)


def _compile_with(session: nox.Session, triton: str, *tests: str) -> None:
    """Compile with another Triton than the environment's, which torch requires by an exact version."""
    _install(session, "-e", ".[dev]")
    paths = [str(ROOT)]
    if session.virtualenv.is_sandboxed:
        paths.insert(0, _install_apart(session, f"triton-{triton}", f"triton=={triton}"))
    env = {"PYTHONPATH": ":".join(paths)}
    tests = ("tests/impls/test_inhouse_compiles.py", *tests)
    _run_module(session, "pytest", "-n", "auto", *tests, *session.posargs, env=env)


@session
def oldest(session: nox.Session) -> None:
    """Compile the in-house kernels for every target with the oldest Triton that is promised."""
    _compile_with(session, "3.6.0")


@session
def newest(session: nox.Session) -> None:
    """Compile them with the newest, and run what is compiled for an H200 on a CPU.

    Planted faults are left to `slow` and `tests`, as another Triton changes nothing in how they are detected.
    """
    _compile_with(session, "3.9.0", "tests/impls/test_compiled.py", "-k", "not fault and not an_overwritten")


# Libraries whose wheels hold their sources.
PEERS = (
    "liger-kernel",
    "quack-kernels",
    "nvidia-cudnn-frontend",
    "fla-core",
    "flag-gems",
    "helion",
    "tilegym",
    "transformer-engine",
)


def pinned_peers() -> list[str]:
    """Their versions in constraints.txt, which docs/peers.md describes."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [pin for pin in pins if pin.partition("==")[0] in PEERS]


@session
def peers(session: nox.Session) -> None:
    """Check what adapters and docs/peers.md state about other libraries against their sources; needs no GPU."""
    _install(session, "-e", ".[dev]")
    pins = pinned_peers()
    sources = _install_apart(session, f"peers-{hashlib.sha256(' '.join(pins).encode()).hexdigest()[:8]}", *pins)
    tests = ("-m", "peers", "tests/impls/test_peer_sources.py")
    _run_module(session, "pytest", *tests, *session.posargs, env={"NORMBWD_PEERS": sources})


@session
def browser(session: nox.Session) -> None:
    """Test the pages of the HTML report and of the site in a headless Chromium, the system's own."""
    extras = PROJECT["optional-dependencies"]
    _install_light(session, *extras["dev"], *extras["browser"])
    _run_module(session, "pytest", "-m", "browser", "tests/reports", *session.posargs)


@session
def lint(session: nox.Session) -> None:
    """Check style, formatting, which package imports which, and what workflows and actions let a stranger do."""
    _install(session, "ruff", "import-linter", "zizmor")
    _run_module(session, "ruff", "check", ".")
    _run_module(session, "ruff", "format", "--check", ".")
    linter = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    session.run(_python(session), "-c", linter, external=True, env={"PYTHONPATH": str(ROOT)})
    examples = [str(path) for path in sorted((ROOT / "examples").glob("github-*.yml"))]  # `.` has the actions
    session.run(str(Path(_python(session)).with_name("zizmor")), "--offline", "-q", ".", *examples, external=True)


@session
def types(session: nox.Session) -> None:
    """Check types."""
    _install(session, "-e", ".[dev]")
    _run_module(session, "pyright", "--pythonpath", _python(session))
