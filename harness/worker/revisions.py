"""Checks out two revisions of one adapter, to measure them in the same blocks of one process.

Base is loaded a second time, as the A/A twin. A second copy of the same code may differ in speed: it lies at other
addresses, and code that stands in the blocks twice runs twice as often and is warmer in caches that no flush empties.
The twin has that cost as head does, so head differs from base by what the twin differs, and by the change. Mytkowicz et
al., Producing wrong data without doing anything obviously wrong, ASPLOS (2009); Curtsinger and Berger, Stabilizer,
ASPLOS (2013).
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from harness.errors import UsageError
from harness.git import GitError, git

AGAIN = "again"  # the word that the twin's name ends in


@dataclass(frozen=True)
class Side:
    """One of the compared revisions: the adapter's file in its checkout, and the `word` that its names end in.

    `named` is the file as `--impl` named it, None for an adapter of this project.
    """

    word: str  # base, head or again
    file: str
    commit: str = ""
    named: str | None = None


def packages(file: Path) -> list[Path]:
    """The folders of the packages that a file stands in, the innermost first; or its folder, as if it were one."""
    return list(takewhile(lambda folder: (folder / "__init__.py").is_file(), file.parents)) or [file.parent]


@contextmanager
def two_sides(file: Path, base: str, head: str) -> Generator[tuple[Side, Side]]:
    """Check out both revisions of the repository that holds `file`, until the context ends.

    Raises UsageError where git refuses, as outside of a repository or in somebody else's; where a revision does not
    exist or lacks the file; and where `head` is HEAD and there are uncommitted changes, which a comparison with HEAD
    would silently leave out.
    """
    file = file.resolve()
    top = Path(_git(file.parent, "rev-parse", "--show-toplevel", why=f"cannot compare revisions of {file}"))
    inside = file.relative_to(top)
    if head == "HEAD" and _git(top, "status", "--porcelain", "--untracked-files=no"):
        raise UsageError(f"{top} has uncommitted changes; commit or stash them, or name what to compare with --head")
    with ExitStack() as stack:
        commits = [_commit(top, revision) for revision in (base, head)]
        trees = [stack.enter_context(_worktree(top, commit)) for commit in commits]
        words = ("base", "head")
        sides = [
            Side(word, str(tree / inside), commit) for word, tree, commit in zip(words, trees, commits, strict=True)
        ]
        for side, revision in zip(sides, (base, head), strict=True):
            if not Path(side.file).is_file():
                raise UsageError(f"revision {revision} has no {inside}; name revisions that both hold it")
        yield sides[0], sides[1]


def copies(sides: Sequence[Side], seed: int, process: int) -> tuple[Side, ...]:
    """The copies that a process loads to compare base and head: both and base's twin, in random order.

    The order is drawn for each process from the seed, so that the cost of being loaded later is noise between processes
    and not a bias.
    """
    if not sides:
        return ()
    loaded = [*sides, replace(sides[0], word=AGAIN)]
    random.Random(f"{seed}/{process}").shuffle(loaded)
    return tuple(loaded)


def twin_of(base: str) -> str:
    """The name of base's second copy, given that of base."""
    return f"{base.rpartition('@')[0]}@{AGAIN}"


def _commit(top: Path, revision: str) -> str:
    shallow = git(top, "rev-parse", "--is-shallow-repository") == "true"
    why = f"there is no revision {revision} in {top}{', a shallow clone: git fetch --unshallow' if shallow else ''}"
    return _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", why=why)


@contextmanager
def _worktree(top: Path, commit: str) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        tree = Path(folder) / commit[:12]
        _git(top, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            _git(top, "worktree", "remove", "--force", str(tree))


def _git(where: Path, *arguments: str, why: str = "git refuses") -> str:
    try:
        return git(where, *arguments)
    except GitError as error:
        raise UsageError(f"{why}: {error}" if str(error) else f"{why}; name another") from error
