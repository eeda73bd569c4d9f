import importlib
import shlex
import sys
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.errors import UsageError
from harness.run import compare
from harness.run.invocation import Invocation
from harness.worker.discovery import discover
from harness.worker.revisions import Side, two_sides
from tests.repositories import DOUBLED, HONEST, commit, git, two_revisions


@pytest.fixture
def repository(tmp_path):
    return two_revisions(tmp_path)


def complaint(file, base, head="HEAD"):
    with pytest.raises(UsageError) as caught, two_sides(file, base, head):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_revisions_are_checked_out_and_removed(repository):
    with two_sides(repository / "my_norm.py", "HEAD~1", "HEAD") as (base, head):
        assert Path(base.file).read_text(encoding="utf-8") == HONEST
        assert Path(head.file).read_text(encoding="utf-8") == DOUBLED
        assert (base.word, head.word) == ("base", "head")
    assert not Path(base.file).exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_uncommitted_changes_need_a_named_head(repository):
    file = repository / "my_norm.py"
    file.write_text(HONEST + "\n# not committed\n")
    assert "has uncommitted changes" in complaint(file, "HEAD~1")
    with two_sides(file, "HEAD~1", "HEAD~0") as (_, head):
        assert Path(head.file).read_text(encoding="utf-8") == DOUBLED


def test_git_says_in_its_words_why_it_refuses(repository, tmp_path, monkeypatch):
    file = repository / "my_norm.py"
    assert complaint(file, "nosuch") == f"there is no revision nosuch in {repository}; name another"
    commit(repository, {"new.py": ""})
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")
    assert "HEAD~1 in " in (said := complaint(tmp_path / "shallow" / "new.py", "HEAD~1"))
    assert said.endswith(", a shallow clone: git fetch --unshallow; name another")
    said = "revision HEAD~1 has no new.py; name revisions that both hold it"
    assert complaint(repository / "new.py", "HEAD~1") == said
    alone = tmp_path / "alone.py"
    alone.touch()
    assert complaint(alone, "HEAD").startswith(f"cannot compare revisions of {alone}: fatal: not a git repository")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # as in a container job of another user
    assert complaint(file, "HEAD~1").endswith(f"git config --global --add safe.directory {repository}")


def test_each_side_of_a_package_has_its_own_neighbours(repository):
    adapter = HONEST.replace('name = "my-norm"', 'from .factor import FACTOR\n\nname = "packed"')
    package = {"pack/__init__.py": "raise RuntimeError('not the adapter')", "pack/adapter.py": adapter}
    commit(repository, {**package, "pack/factor.py": "FACTOR = 1"})
    commit(repository, {"pack/factor.py": "FACTOR = 2"})
    with two_sides(repository / "pack" / "adapter.py", "HEAD~1", "HEAD") as sides:
        found = {item.name: item for item in discover(sides=sides)}
        assert [found[name].module.FACTOR for name in ("packed@base", "packed@head")] == [1, 2]
    for name in [name for name in sys.modules if name.startswith(("normbwd_base", "normbwd_head"))]:
        del sys.modules[name]


def test_a_side_that_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("def (")
    with pytest.raises(UsageError, match=r"^head \(mine\.py abc\): line 1: "):
        discover(sides=[Side("head", str(tmp_path / "mine.py"), "abc", "mine.py")])


@pytest.mark.parametrize("at_fault", ["pack/adapter.py", "pack/deeper/kernels.py"])
def test_a_package_that_imports_itself_by_name_is_refused(repository, at_fault):
    files = {"pack/__init__.py": "", "pack/adapter.py": HONEST, "pack/deeper/kernels.py": ""}
    commit(repository, files | {at_fault: HONEST + "\n    from pack.factor import FACTOR\n"})
    sides = two_sides(repository / "pack" / "adapter.py", "HEAD", "HEAD~0")
    with sides as chosen, pytest.raises(UsageError, match="use relative imports"):
        discover(sides=chosen)


ONE_NAME = "compare takes one implementation: --impls NAME"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--impls quack", "compare needs --base, the revision to compare with"),
        ("--base HEAD --impls ''", ONE_NAME),
        ("--base HEAD --impls quack,", ONE_NAME),
        ("--base HEAD --impls 'torch-*'", ONE_NAME),
        (
            "--base HEAD --impls quack --impl a.py --impl a.py",
            "compare takes one --impl file: the adapter whose revisions are compared",
        ),
    ],
)
def test_a_comparison_is_of_one_implementation_with_a_base(tmp_path, monkeypatch, capsys, arguments, error):
    monkeypatch.chdir(tmp_path)
    Path("a.py").touch()
    with pytest.raises(SystemExit) as ended:
        main(["compare", *shlex.split(arguments)])
    assert (ended.value.code, capsys.readouterr().err) == (2, f"error: {error}\n")


def test_what_an_entry_point_brings_has_no_revisions_here():
    with pytest.raises(UsageError, match=r"^mine is in no checkout of normbwd; give its file with --impl$"):
        compare._adapter_file(Invocation(), "mine")


def test_each_revision_of_own_kernel_has_own_modules():
    own = Path(__file__).parents[2] / "impls" / "triton_inhouse.py"
    names = {item.name for item in discover(sides=[Side("base", str(own)), Side("head", str(own))])}
    assert {"triton-inhouse@base", "triton-inhouse@head"} <= names
    for word in ("base", "head"):
        backward = importlib.import_module(f"normbwd_{word}.inhouse.backward")
        assert backward.choose.__module__ == f"normbwd_{word}.inhouse.regimes.choice"
        kernel = importlib.import_module(f"normbwd_{word}.inhouse.regimes.one_pass_kernel")
        assert kernel.backward_rows.fn.__module__ == f"normbwd_{word}.inhouse.regimes.one_pass_kernel"
        assert kernel.next_piece.fn.__module__ == f"normbwd_{word}.inhouse.arrivals"
    for name in [name for name in sys.modules if name.startswith(("normbwd_base", "normbwd_head"))]:
        del sys.modules[name]
