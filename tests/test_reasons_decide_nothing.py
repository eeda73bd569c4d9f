"""Nothing in harness/ or reports/ decides by the words of a reason: a reason has a code and values for that."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [path for package in ("harness", "reports") for path in sorted((ROOT / package).rglob("*.py"))]
# What holds a reason, or its sentence.
NAMES = {
    *("reason", "reasons", "untimed", "note", "notes", "kernels_note", "cause", "detail", "interference", "doubt"),
    *(
        "missing",
        "void",
        "voided",
        "fault",
        "why",
        "waits",
        "captured",
        "skipped",
        "stale",
        "escaped",
        "unfinished",
        "sentence",
        "why_not",
        "status_and_reason",
    ),
}
PARTS_OF_TEXT = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split"}
PARTS_OF_TEXT |= {"find", "index", "count", "replace"}
MATCHERS = {"match", "fullmatch", "search", "findall", "finditer", "sub"}


def faults(source: str) -> list[int]:
    """The lines that look into the words of a reason."""
    return sorted({node.lineno for node in ast.walk(ast.parse(source)) if _reads_words(node)})


def _reads_words(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in PARTS_OF_TEXT and _is_reason(node.func.value):
            return True
        return node.func.attr in MATCHERS and any(map(_is_reason, node.args))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(map(_is_text, sides)) and any(map(_is_reason, sides))
    return False


def _is_reason(node: ast.AST) -> bool:
    """Whether an expression is a reason or its sentence, maybe with an empty text in its place."""
    if isinstance(node, ast.BoolOp):
        return any(map(_is_reason, node.values))
    if isinstance(node, ast.Call):
        return _is_reason(node.func)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    return name in NAMES


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_no_file_decides_by_the_words_of_a_reason() -> None:
    found = {str(path.relative_to(ROOT)): lines for path in FILES if (lines := faults(path.read_text("utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        'row.reason == "every block was void"',
        '"new contents" in (row.reason or "")',
        "(context.untimed or '').startswith(ALL_VOID)",
        'sentence(entry.reason).endswith(": shown, not ranked")',
        "NUMBER.sub('', sentence(reason))",
        're.fullmatch("a launch .*", check.detail)',
        'note.partition("; ")[0]',
        'f"configuration: {name}" in row.notes',
    ],
)
def test_a_planted_decision_by_words_is_found(planted: str) -> None:
    assert faults(f"if {planted}:\n    pass\n") == [1]


@pytest.mark.parametrize("allowed", ['row.reason.code == "too_short"', "row.reason == other.reason", "row.notes"])
def test_codes_and_whole_reasons_may_be_compared(allowed: str) -> None:
    assert faults(f"if {allowed}:\n    pass\n") == []
