"""Every job of the project, each a session: `nox -s bench -- --device b200` passes what follows `--` through.

`nox --no-venv -s bench` runs in the current environment (a GPU image that already holds torch and apex) and installs
nothing.
"""

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests"]


def _compile_with(session: nox.Session, triton: str, *tests: str) -> None:
    _install(session, "dev")
    if session.virtualenv.is_sandboxed:
        # torch asks for its own Triton by an exact version, and needs none for what runs here.
        session.install("--no-deps", f"triton=={triton}")
    session.run("python", "-m", "pytest", "tests/impls/test_inhouse_compiles.py", *tests, *session.posargs)


def _install(session: nox.Session, *extras: str) -> None:
    if session.virtualenv.is_sandboxed:
        target = f".[{','.join(extras)}]" if extras else "."
        session.install("-c", "constraints.txt", "-e", target)


def _normbwd(session: nox.Session, command: str) -> None:
    _install(session)
    # After Ctrl-C the command ends its file and reports what it has; nox would kill it after a third of a second.
    session.run("python", "-m", "harness", command, *session.posargs, interrupt_timeout=60)


@nox.session
def bench(session: nox.Session) -> None:
    """Verify and time implementations, and print the comparison."""
    _normbwd(session, "bench")


@nox.session
def verify(session: nox.Session) -> None:
    """Verify implementations without timing them."""
    _normbwd(session, "verify")


@nox.session
def compare(session: nox.Session) -> None:
    """Measure two revisions of one implementation against each other."""
    _normbwd(session, "compare")


@nox.session
def tune(session: nox.Session) -> None:
    """Find the in-house kernel's fastest launches on this GPU."""
    _normbwd(session, "tune")


@nox.session
def gate(session: nox.Session) -> None:
    """Judge a results file against limits."""
    _normbwd(session, "gate")


@nox.session
def selftest(session: nox.Session) -> None:
    """Test the engine on work of which the time is known."""
    _normbwd(session, "selftest")


@nox.session
def report(session: nox.Session) -> None:
    """Write a results file as a table for a console, a page or a pull request."""
    _normbwd(session, "report")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that need neither a GPU nor a browser; `-- -m gpu` runs those that need a GPU."""
    _install(session, "dev")
    selection = () if "-m" in session.posargs else ("-m", "not gpu and not browser")
    session.run("python", "-m", "pytest", *selection, *session.posargs)


@nox.session
def oldest(session: nox.Session) -> None:
    """Compile the in-house kernels for every target with the oldest Triton that is promised."""
    _compile_with(session, "3.6.0")


@nox.session
def newest(session: nox.Session) -> None:
    """Compile them with the newest, and run what is compiled for an H200 on a CPU."""
    _compile_with(session, "3.9.0", "tests/impls/test_compiled.py")


@nox.session
def browser(session: nox.Session) -> None:
    """Test the pages of the HTML report in a headless Chromium, the system's own."""
    if session.virtualenv.is_sandboxed:
        project = nox.project.load_toml("pyproject.toml")["project"]
        extras = project["optional-dependencies"]
        # Reports need neither torch nor triton, which would take longer to install than these tests take.
        light = [each for each in project["dependencies"] if not each.startswith(("torch", "triton"))]
        session.install("-c", "constraints.txt", *light, *extras["dev"], *extras["browser"])
    session.run("python", "-m", "pytest", "-m", "browser", "tests/reports/test_page_in_browser.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    if session.virtualenv.is_sandboxed:
        session.install("-c", "constraints.txt", "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    _install(session, "dev")
    session.run("pyright")
