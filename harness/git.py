"""Calls git, and passes on in its own words why it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path


class GitError(Exception):
    """git is not installed, or refuses: the message is what it wrote, on one line; empty where it wrote nothing."""


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder, without blanks around it; raises GitError."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except OSError as error:
        raise GitError(f"git cannot be run ({error.strerror}); install it") from error
    except subprocess.CalledProcessError as error:
        raise GitError(" ".join(error.stderr.split())) from error
    return done.stdout.strip()
