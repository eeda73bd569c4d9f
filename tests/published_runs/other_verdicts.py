"""Prints the entries of results/other_verdicts.toml for what has changed since a revision.

    python -m tests.published_runs.other_verdicts REVISION

There is one for each room of the engine and each adapter of which definitions alone have changed, with their names;
of any other that has changed it says so. The reasons of the rows that a change decides otherwise are for you to write.
"""

import ast
import json
import sys
import tempfile
from pathlib import Path

from harness.analysis.sources import _as_text, _files, hash_of, names_of
from harness.records.file import load
from harness.records.published_plan import CHECKOUT, published_files
from tests.impls.same_launches import extract


def definitions(file, name):
    """The text of each definition of a file, by FILE:NAME; of a class that of each of its members."""
    found = {}

    def visit(body, within):
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                visit(statement.body, f"{within}{statement.name}.")
            for defined in names_of(statement) if not isinstance(statement, ast.ClassDef) else ():
                found.setdefault(f"{name}:{within}{defined}", []).append(_as_text(statement))

    visit(ast.parse(file.read_text()).body, "")
    return found


def all_definitions(path, checkout):
    """Those of all files of a room or an adapter."""
    texts = {}
    for file in _files(path, checkout):
        texts |= definitions(file, file.relative_to(checkout).as_posix())
    return texts


def entry(path, then, here=CHECKOUT):
    """The lines of one path; None where more than definitions has changed."""
    before, now = all_definitions(path, then), all_definitions(path, here)
    only = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    rest = hash_of(path, here, without=only)
    if rest != hash_of(path, then, without=only):
        return None
    fields = {"path": path, "was": [hash_of(path, then)], "now": hash_of(path, here), "only": only, "rest": rest}
    written = ["reasons =  # what the rows say that may be decided otherwise", "because =  # why, in one sentence"]
    return ["", "[[change]]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items()), *written]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    revision = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        then = Path(folder)
        extract(revision, folder, "harness", "impls")
        paths = {path for _, _, file in published_files() for path in load(file).run.sources or {}}
        for path in sorted(path for path in paths if hash_of(path) != hash_of(path, then)):
            lines = entry(path, then)
            print("\n".join(lines) if lines else f"{path}: more than definitions has changed", flush=True)


if __name__ == "__main__":
    main()
