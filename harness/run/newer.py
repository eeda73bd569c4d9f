"""Which installed libraries have a newer release on the Python Package Index; nothing where it cannot be asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.request import urlopen

INDEX = "https://pypi.org/pypi/{}/json"
TIMEOUT_S = 3.0
LIBRARY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")  # a distribution's name, and no file
RELEASE = re.compile(r"\d+(\.\d+)*")


def newer(versions: Mapping[str, str], ask: Callable[[str], str | None] | None = None) -> dict[str, str]:
    """The newest release of each library that has a newer one than is installed; `ask` gives the newest of a name."""
    asked = [name for name, version in versions.items() if LIBRARY.fullmatch(name) and RELEASE.match(version)]
    with ThreadPoolExecutor(8) as pool:
        newest = dict(zip(asked, pool.map(ask or _newest, asked), strict=True))
    return {name: latest for name, latest in newest.items() if latest and _release(latest) > _release(versions[name])}


def newer_text(versions: Mapping[str, str]) -> str:
    """A line that names them; empty where there are none."""
    found = ", ".join(f"{name} {latest} (here {versions[name].split()[0]})" for name, latest in newer(versions).items())
    return f"newer on PyPI: {found}" if found else ""


def _newest(name: str) -> str | None:
    with suppress(OSError, ValueError, KeyError), urlopen(INDEX.format(name), timeout=TIMEOUT_S) as answer:
        return json.load(answer)["info"]["version"]
    return None


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a release, without what stands for a build of it."""
    match = RELEASE.match(version)
    return tuple(map(int, match[0].split("."))) if match else ()
