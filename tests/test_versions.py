"""The check of raised versions, on a small repository with planted changes."""

import pytest

from tests.repositories import git
from tests.versions import ENGINE, main

TIMING, ADAPTER = "harness/timing/engine.py", "impls/dsl_peers/quack.py"
FILES = {
    ENGINE: 'RAISES = (Raise(0, "2026-11-28", "the first"),)\n',
    TIMING: '"""Times."""\n\nfrom harness.clock import now\n\n\ndef time():\n    """Time it."""\n    return now(1)\n',
    ADAPTER: 'name = "quack"\nversion = 0\nBLOCK = 1\n',
    "impls/libraries/parts.py": "PARTS = 1\n",
    "harness/cases/suites.py": "SUITES = 1\n",
}
REASON = "\n\nFigures: unchanged, because it is only faster to import"
RAISE = {ENGINE: 'RAISES = (Raise(0, "2026-11-28", "the first"), Raise(1, "2026-11-29", "t0"))\n'}
SINCE = "2000-01-01T00:00:00+00:00"
NEW_TIMING = {TIMING: FILES[TIMING].replace("now(1)", "now(2)")}


def stage(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")


def commit(folder, files, message="A change"):
    stage(folder, files)
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD").strip()[:12]


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, FILES, "All")
    return tmp_path


def said(folder, capsys, *arguments, since=SINCE):
    code = main([*map(str, arguments)], folder, since)
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "versions"),
    [
        (NEW_TIMING, ENGINE),
        ({"harness/verify/new.py": "RHO = 2\n"}, ENGINE),
        ({ADAPTER: FILES[ADAPTER].replace("BLOCK = 1", "BLOCK = 2")}, ADAPTER),
        ({"impls/libraries/parts.py": "PARTS = 2\n"}, ADAPTER),
    ],
)
def test_change_without_a_raise_is_named(repository, capsys, files, versions):
    name = commit(repository, files)
    code, text = said(repository, capsys)
    assert code == 1
    assert text == (
        f"{name} changes {next(iter(files))}: raise the version in {versions}, or write in a later message "
        f"`Figures: {name} unchanged, because ...`\n"
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (NEW_TIMING | RAISE, "A change"),
        (NEW_TIMING, f"A change{REASON}"),
        ({ADAPTER: 'name = "quack"\nversion = 1\nBLOCK = 2\n'}, "A change"),
        ({TIMING: FILES[TIMING].replace("Time it.", "Time it well.  # now")}, "Another docstring"),
        ({TIMING: FILES[TIMING].replace("harness.clock", "harness.timing.clock")}, "A module has moved"),
        ({"harness/cases/suites.py": "SUITES = 2\n", "README.md": "a\n"}, "What decides no figure"),
        ({"impls/dsl_peers/new.py": 'name = "new"\nversion = 0\n'}, "A new adapter"),
    ],
)
def test_raise_or_a_reason_or_no_change_passes(repository, capsys, files, message):
    commit(repository, files, message)
    assert said(repository, capsys)[0] == 0


def test_moved_module_passes_and_its_history_counts(repository, capsys):
    name = commit(repository, {ADAPTER: FILES[ADAPTER].replace("BLOCK = 1", "BLOCK = 2")})
    for old, new in ((ADAPTER, "impls/cuda_peers/quack.py"), (TIMING, "harness/timing/blocks.py")):
        (repository / new).parent.mkdir(exist_ok=True)
        git(repository, "mv", old, new)
    commit(repository, {})
    code, text = said(repository, capsys)
    assert (code, text.splitlines()) == (1, [line for line in text.splitlines() if line.startswith(name)])
    assert "raise the version in impls/cuda_peers/quack.py" in text


def test_later_raise_or_reason_stands_for_a_change(repository, capsys):
    commit(repository, NEW_TIMING)
    commit(repository, RAISE)
    assert said(repository, capsys)[0] == 0
    name = commit(repository, {TIMING: FILES[TIMING].replace("now(1)", "now(3)")})
    assert said(repository, capsys)[0] == 1
    commit(repository, {"README.md": "b\n"}, f"Say why\n\nFigures: {name} unchanged, because both are the same clock")
    assert said(repository, capsys)[0] == 0


def test_raise_of_the_engine_is_none_of_an_adapter(repository, capsys):
    commit(repository, RAISE | {ADAPTER: FILES[ADAPTER].replace("BLOCK = 1", "BLOCK = 2")})
    code, text = said(repository, capsys)
    assert code == 1
    assert ENGINE not in text


@pytest.mark.parametrize(("message", "code"), [("A change", 1), (f"A change{REASON}", 0)])
def test_what_is_staged_is_asked_before_it_is_committed(repository, tmp_path_factory, capsys, message, code):
    path = tmp_path_factory.mktemp("message") / "COMMIT_EDITMSG"
    path.write_text(message)
    stage(repository, NEW_TIMING)
    assert said(repository, capsys, "--staged", path)[0] == code
    stage(repository, RAISE)
    assert said(repository, capsys, "--staged", path)[0] == 0


def test_commits_of_before_and_those_that_a_shallow_clone_lacks_are_not_asked(repository, tmp_path_factory, capsys):
    commit(repository, NEW_TIMING)
    assert said(repository, capsys, since="2090-01-01T00:00:00+00:00")[0] == 0
    shallow = tmp_path_factory.mktemp("clone") / "shallow"
    git(repository, "clone", "-q", "--depth", "1", f"file://{repository}", str(shallow))
    assert said(shallow, capsys)[0] == 0
    commit(shallow, {TIMING: FILES[TIMING].replace("now(1)", "now(4)")})
    assert said(shallow, capsys)[0] == 1
