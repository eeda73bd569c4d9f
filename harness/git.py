"""Calls git, and passes on in its own words why it refuses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# As git sets them for a hook: they would have it look into another repository than the folder's.
OF_ANOTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")


class GitError(Exception):
    """git is not installed, or refuses: the message is what it wrote, on one line; empty where it wrote nothing."""


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder, without blanks around it; raises GitError."""
    own = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER}
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, env=own, capture_output=True, text=True, check=True)
    except OSError as error:
        raise GitError(f"git cannot be run ({error.strerror}); install it") from error
    except subprocess.CalledProcessError as error:
        raise GitError(" ".join(error.stderr.split())) from error
    return done.stdout.strip()
