"""What is the same code on both sides: never what may differ, and comments, docstrings and documents always."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.records.file import ResultsFile
from harness.records.run_records import SameCodeRecord, SideRecord
from harness.run.same_code import is_same_code
from harness.worker.revisions import two_sides
from tests.repositories import HONEST, commit, git

FILE, ROWS = "my_norm.py", "src/pack/rows.py"
PACKAGE = {"src/pack/__init__.py": "", ROWS: "ROWS = 1\n", "src/pack/t.txt": "1", "src/pack/my_norm.py": HONEST}


def same(where, before, after):
    git(where, "init", "-q")
    commit(where, {"README.md": "", FILE: HONEST} | before)
    for name in (name for name, content in after.items() if not isinstance(content, str)):
        (where / name).unlink(missing_ok=True)
        if after[name]:
            (where / name).symlink_to(after[name])
    commit(where, {name: content for name, content in after.items() if isinstance(content, str)})
    with two_sides(where / ("src/pack/my_norm.py" if ROWS in before else FILE), "HEAD~1", "HEAD") as sides:
        return is_same_code("my-norm", sides)


def code(*lines):
    return HONEST + "\n\ndef load(x):\n    " + "\n    ".join(lines) + "\n"


READING = code("return open(__file__).read()")
LATIN = "# coding: {}\n" + HONEST + 'WORD = "\u00e4"\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {FILE: HONEST.replace('"""My', '# A comment.\n\n\n"""Our').replace(" = ", "  =  ")}),
        ({FILE: code("return '\\d'")}, {FILE: code('"""Loads."""', "return '\\d'"), "README.md": None}),
        ({"lib/helper.py": "X = 1"}, {"lib/helper.py": "X = 2", "tests/check.py": "new"}),
        (PACKAGE, {ROWS: "# one\nROWS = 1\n", "src/pack/NOTES.md": "", "check.c": ""}),
        ({FILE: code("from .beside import X"), "beside.py": "X = 1"}, {"beside.py": "X = 1  # one"}),
        ({FILE: READING}, {"README.md": "new"}),
    ],
    ids=["comments", "docstring", "outside", "package", "beside", "document"],
)
def test_same_code(tmp_path, before, after):
    assert same(tmp_path, before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({FILE: code("return 1")}, {FILE: code("return 1.0")}),
        ({FILE: code('"""Old."""', "return load.__doc__")}, {FILE: code('"""New."""', "return load.__doc__")}),
        ({FILE: code("return x")}, {FILE: code("# type: (int) -> int", "return x")}),
        ({FILE: READING}, {FILE: READING + "# more\n"}),
        ({FILE: READING, "data.json": "1"}, {"data.json": "2"}),
        ({FILE: READING.replace("__file__", "__file__ + '/../kernel.md'")}, {"kernel.md": "2"}),
        ({FILE: code("import lib.helper")}, {"lib/helper.py": "X = 2"}),
        ({FILE: code("from .beside import X"), "beside.py": "X = 1"}, {"beside.py": "X = 2"}),
        ({FILE: code("__import__('beside', globals(), level=1)"), "beside.py": "X = 1"}, {"beside.py": "X = 2"}),
        ({FILE: code("exec(open('kernel.txt').read())")}, {"kernel.txt": "2"}),
        ({}, {".gitattributes": "*.py ident"}),
        ({FILE: LATIN.format("utf-8")}, {FILE: LATIN.format("latin-1")}),
        ({FILE: HONEST.replace('"my-norm"', '"my" + "-norm"')}, {"README.md": "new"}),
        ({}, {FILE: HONEST + "\ndef broken(:\n"}),
        (PACKAGE, {ROWS: "ROWS = 2\n"}),
        (PACKAGE, {ROWS: None}),
        (PACKAGE, {"src/pack/k\u00e4se.py": "X = 1"}),
        (PACKAGE, {"src/pack/t.txt": "2"}),
        (PACKAGE, {ROWS: Path("__init__.py")}),
        (PACKAGE | {"rows/a.py": "1"}, {"src/pack/linked": Path("../../rows"), "rows/a.py": "2"}),
        (PACKAGE, {"src/__init__.py": ""}),
    ],
)
def test_what_may_differ_is_measured(tmp_path, before, after):
    assert not same(tmp_path, before, after)


@pytest.mark.parametrize(
    ("command", "code"),
    [("gate", 0), ("report", 0), ("gate --format json", 0), ("report --format json", 0), ("report --format csv", 2)],
)
def test_what_was_not_measured_passes_and_has_no_figures(tmp_path, capsys, command, code):
    sides = [SideRecord(word=word, commit="c" * 40) for word in ("base", "head")]
    with closing(ResultsFile(tmp_path / "results.jsonl")) as file:
        file.append(SameCodeRecord(command="", impl="mine", sides=sides))
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), str(tmp_path)])
    out, error = capsys.readouterr()
    assert ended.value.code == code
    assert ("has no results" in error) == bool(code)
    assert code or (json.loads(out)["cases"] == [] if "json" in command else "head's code is base's" in out)
