"""Asks of each commit that changes the engine or an adapter for a raised version, or for why no figure changes.

    python -m tests.versions                    # all commits since COUNTED_SINCE in harness/engine_version.py
    python -m tests.versions --staged MESSAGE   # what is staged, with the message in this file: for a commit-msg hook

A message gives the reason in a line `Figures: unchanged, because ...`. A later one may give it for a commit of before,
in a line `Figures: COMMIT unchanged, because ...`. A raise stands for all changes of before it. Moved files, comments,
docstrings and the modules that names are imported from are no change.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.engine_version import COUNTED_SINCE

ROOT = Path(__file__).parents[1]
ENGINE = "harness/engine_version.py"
ENGINE_CODE = re.compile(r"harness/(timing|verify|worker|cases|devices)/.+\.py|harness/run/(runner|compile_ahead)\.py")
# Which cases are measured, what a device is called, and how a worker is found and spoken to change no figure.
NOT_COUNTED = re.compile(
    r"harness/(cases/(catalogue|models|suites|tuned)|devices/(detection|facts|profiles)"
    r"|worker/(channel|contract|discovery|libraries|messages|own_process|revisions))\.py"
)
OF_A_FIGURE = re.compile(rf"impls/.+\.py|{ENGINE_CODE.pattern}")
ADAPTER = re.compile(r"impls/(\w+_peers/)?(?!__init__)\w+\.py")
VERSION = re.compile(r"^version = (\d+)|\bRaise\((\d+),", re.MULTILINE)
REASON = re.compile(r"^Figures: (?:([0-9a-f]{7,40}) )?unchanged, because \S", re.MULTILINE)


@dataclass(frozen=True)
class Commit:
    """A commit, or what is staged: its message, its files as (path before, path after), and where their text is."""

    name: str
    message: str
    files: tuple[tuple[str, str], ...]
    before: str
    after: str


def main(arguments: list[str] | None = None, checkout: Path = ROOT, since: str = COUNTED_SINCE) -> int:
    """Print what lacks a raise or a reason; 1 where anything does."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions")
    parser.add_argument("--staged", metavar="MESSAGE", type=Path, help="the file of the commit's message")
    message = parser.parse_args(arguments).staged
    commits = [staged(checkout, message)] if message else history(checkout, since)
    lacking = faults(checkout, commits)
    for line in lacking or [f"{len(commits)} commits: each change of a figure's code has a raise or a reason"]:
        print(line)
    return 1 if lacking else 0


def history(checkout: Path, since: str) -> list[Commit]:
    """The commits since a date, newest first, without merges and without those whose parent a shallow clone lacks."""
    listed = git(checkout, "log", "--no-merges", f"--since={since}", "--format=%H %P").splitlines()
    names = [name for name, *parents in map(str.split, listed) if parents]
    return [
        Commit(
            name[:12],
            git(checkout, "show", "-s", "--format=%B", name),
            _files(git(checkout, "diff-tree", "-r", "-M", "--no-commit-id", "--name-status", name)),
            f"{name}^:",
            f"{name}:",
        )
        for name in names
    ]


def staged(checkout: Path, message: Path) -> Commit:
    """What is staged, as the commit that it will be."""
    files = _files(git(checkout, "diff", "--cached", "-M", "--name-status"))
    return Commit("this commit", message.read_text(encoding="utf-8"), files, "HEAD:", ":")


def faults(checkout: Path, commits: list[Commit]) -> list[str]:
    """A line for each commit that should raise a version; `commits` are the newest first."""
    reasons = [(commit.name, match[1]) for commit in commits for match in REASON.finditer(commit.message)]
    excused = {(named or name)[:7] for name, named in reasons}
    changed = {commit.name: [] if commit.name[:7] in excused else _changed(checkout, commit) for commit in commits}
    adapters = [path for path in git(checkout, "ls-files", "impls").splitlines() if ADAPTER.fullmatch(path)]
    lacking: dict[str, tuple[dict[str, None], list[str]]] = {}
    for version_file in (ENGINE, *adapters):
        path = version_file
        for commit in commits:
            was = next((old for old, new in commit.files if new == path), None)
            if was is not None and _raised(checkout, commit, was, path):
                break
            if deciding := [file for file in changed[commit.name] if _decides(path, file)]:
                files, versions = lacking.setdefault(commit.name, ({}, []))
                files.update(dict.fromkeys(deciding))
                versions.append(version_file)
            path = was or path
    return [_line(name, [*files], versions) for name, (files, versions) in lacking.items()]


def _decides(version_file: str, file: str) -> bool:
    """Whether a file is of the code that this version stands for."""
    if version_file == ENGINE:
        return bool(ENGINE_CODE.fullmatch(file)) and not NOT_COUNTED.fullmatch(file)
    shared = "impls/inhouse/" if "inhouse" in version_file else "impls/libraries/"
    return file == version_file or file.startswith(("impls/libraries/", shared))


def _changed(checkout: Path, commit: Commit) -> list[str]:
    """The Python files whose code a commit changes, as they are called before and after it."""
    files = [pair for pair in commit.files if any(map(OF_A_FIGURE.fullmatch, pair))]
    differing = [
        pair for pair in files if _code(checkout, commit.before, pair[0]) != _code(checkout, commit.after, pair[1])
    ]
    return sorted({name for pair in differing for name in pair if name})


def _code(checkout: Path, tree: str, path: str) -> tuple[str, set[str]] | None:
    """A file's syntax tree without docstrings, and the names that it imports from modules; None without a file."""
    if not path.endswith(".py"):
        return None
    parsed = ast.parse(git(checkout, "show", f"{tree}{path}"))
    names = set[str]()
    for node in ast.walk(parsed):
        if isinstance(body := getattr(node, "body", None), list):
            names.update(ast.dump(name) for each in body if isinstance(each, ast.ImportFrom) for name in each.names)
            node.body = [each for each in body if not isinstance(each, ast.ImportFrom) and not _is_text(each)]
    return ast.dump(parsed), names


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _raised(checkout: Path, commit: Commit, was: str, path: str) -> bool:
    """Whether a commit raises the version in a file, or brings the file."""
    before = _version(checkout, commit.before, was) if was else -1
    return _version(checkout, commit.after, path) > before


def _version(checkout: Path, tree: str, path: str) -> int:
    found = VERSION.findall(git(checkout, "show", f"{tree}{path}"))
    return max((int(number) for groups in found for number in groups if number), default=0)


def _line(commit: str, files: list[str], versions: list[str]) -> str:
    where = "its message" if commit == "this commit" else "a later message"
    named = "" if commit == "this commit" else f"{commit} "
    more = f" and {len(versions) - 2} more" if len(versions) > 2 else ""
    return (
        f"{commit} changes {', '.join(files[:3])}{' and more' if len(files) > 3 else ''}: raise the version in "
        f"{', '.join(versions[:2])}{more}, or write in {where} `Figures: {named}unchanged, because ...`"
    )


def _files(listed: str) -> tuple[tuple[str, str], ...]:
    """The files of `--name-status`, each with its path before and after; an absent one is empty."""
    pairs: list[tuple[str, str]] = []
    for status, *paths in (line.split("\t") for line in listed.splitlines()):
        old, new = paths[0], paths[-1]
        pairs.append(("" if status == "A" else old, "" if status == "D" else new))
    return tuple(pairs)


def git(checkout: Path, *arguments: str) -> str:
    """What git prints."""
    return subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
