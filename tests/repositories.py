"""Git repositories that hold an adapter."""

import subprocess
from pathlib import Path

HONEST = (Path(__file__).parent.parent / "examples" / "my_norm.py").read_text(encoding="utf-8")
# Twice the gradient, so that nobody can take one revision for the other.
DOUBLED = HONEST.replace("return Grads(dx.to(x.dtype)", "return Grads((2 * dx).to(x.dtype)")


def git(where, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *arguments], cwd=where, check=True, capture_output=True, text=True).stdout


def commit(where, files):
    for name, text in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text, encoding="utf-8")
    git(where, "add", "-A")
    git(where, "commit", "-qm", "next")


def two_revisions(tmp_path):
    """A repository whose first revision is honest and whose second is wrong."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, {"my_norm.py": HONEST})
    commit(folder, {"my_norm.py": DOUBLED})
    return folder
