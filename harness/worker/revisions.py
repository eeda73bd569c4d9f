"""Two revisions of one adapter, each checked out on its own, for measuring them side by side in one process.

Base is loaded once more, as the A/A twin. Merely being another copy has a price: its code lies at other addresses, and
loaded code that stands in the blocks twice is run twice as often, and found warmer in caches that no flush empties.
Base's second copy pays it as head does: head is to base what the twin is to base, and the change besides. Mytkowicz et
al., Producing wrong data without doing anything obviously wrong, ASPLOS (2009); Curtsinger and Berger, Stabilizer,
ASPLOS (2013).
"""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UsageError

AGAIN = "again"  # the word that the twin's name ends in


@dataclass(frozen=True)
class Side:
    """One of the revisions compared: the adapter's file as it stands there, and the word that its names end in.

    `named` is that file as `--impl` named it, None where it is this project's own.
    """

    word: str  # base, head or again
    file: str
    commit: str = ""
    named: str | None = None


@contextmanager
def two_sides(file: Path, base: str, head: str) -> Generator[tuple[Side, Side]]:
    """Check out both revisions of the repository that holds `file`, for as long as the context lasts.

    Raises UsageError where the file is in no git repository, a revision does not exist or does not hold the file, or
    where uncommitted changes would be left out of a comparison with HEAD without anybody noticing.
    """
    file = file.resolve()
    top = Path(_git(file.parent, "rev-parse", "--show-toplevel", why=f"{file} is in no git repository").strip())
    inside = file.relative_to(top)
    if head == "HEAD" and _git(top, "status", "--porcelain", "--untracked-files=no").strip():
        raise UsageError(f"{top} has uncommitted changes; commit or stash them, or name what to compare with --head")
    with ExitStack() as stack:
        commits = [_commit(top, revision) for revision in (base, head)]
        trees = [stack.enter_context(_worktree(top, commit)) for commit in commits]
        words = ("base", "head")
        sides = [Side(word, str(tree / inside), of) for word, tree, of in zip(words, trees, commits, strict=True)]
        for side, revision in zip(sides, (base, head), strict=True):
            if not Path(side.file).is_file():
                raise UsageError(f"revision {revision} has no {inside}; name revisions that both hold it")
        yield sides[0], sides[1]


def copies(sides: Sequence[Side], seed: int, process: int) -> tuple[Side, ...]:
    """What a process loads to compare two sides, base and head, in the order in which it does.

    The order is drawn for each process: what being loaded later costs is then noise between processes, and no bias. The
    same seed draws the same.
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
    why = f"there is no revision {revision} in {top}"
    return _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", why=why).strip()


@contextmanager
def _worktree(top: Path, commit: str) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="normbwd-") as folder:
        tree = Path(folder) / commit[:12]
        _git(top, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            _git(top, "worktree", "remove", "--force", str(tree))


def _git(where: Path, *arguments: str, why: str | None = None) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise UsageError("comparing revisions needs git; install it") from error
    except subprocess.CalledProcessError as error:
        stderr = " ".join((error.stderr or "").split())
        raise UsageError(f"{why or stderr}; name a file and revisions of a git repository") from error
    return done.stdout
