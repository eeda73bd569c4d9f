"""A checkout of a few lines, in which code can be changed and a run can have been measured."""

import os
from pathlib import Path

from harness.analysis.sources import NO_FIGURE, OF_THE_PARENT, sources_of

FILES = {
    **{f"{room}/deciding.py": "def decide():\n    return 1\n" for room in NO_FIGURE},
    f"{OF_THE_PARENT}/runner.py": "ORDER = 1\n",
    f"{OF_THE_PARENT}/listing.py": "SHOWN = 1\n",
    "harness/cases/suites.py": "SUITES = ()\n",
    "impls/__init__.py": "",
    "impls/triton_inhouse.py": (
        '"""Ours."""\n\nfrom impls.inhouse.launch import launch  # the package beside\n\nname = "triton-inhouse"\n'
    ),
    "impls/inhouse/__init__.py": "",
    "impls/inhouse/launch.py": (
        '"""Launches."""\n\nfrom . import limits\n\ndef launch(x):\n    """Launch it."""\n    return x + limits.MOST\n'
    ),
    "impls/inhouse/limits.py": "MOST = 3\n",
    "impls/quack.py": "def prepare():\n    import torch\n\n    return torch\n",
}
ADAPTERS = ("impls/triton_inhouse.py", "impls/quack.py")


def write(folder: Path) -> Path:
    """Write the checkout into a folder."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def change(folder: Path, name: str, was: str, now: str) -> None:
    """Change a file of it, as later as a clock can tell."""
    path = folder / name
    text, then = path.read_text(), path.stat().st_mtime_ns
    assert was in text
    path.write_text(text.replace(was, now))
    os.utime(path, ns=(then + 1, then + 1))


def measured(folder: Path, timed: bool = True) -> dict[str, str]:
    """What a run of both adapters records there."""
    return sources_of(ADAPTERS, timed, folder)
