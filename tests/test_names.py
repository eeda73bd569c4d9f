"""No public class has the name of another, and implementations are named in one file of harness and reports."""

import ast
from collections import Counter
from pathlib import Path

from harness.cases.suites import SUITES
from tests.impls.peer_cases import IMPLS

ROOT = Path(__file__).parents[1]
DEFAULTS = "harness/defaults.py"
# A colour for each implementation in every plot.
NAMES_THEM = {DEFAULTS, "reports/plots/style.py"}
# Names that are also those of a suite or of a library may stand for these.
LIBRARIES = {name for item in IMPLS.values() for name in item.module.requires}
NAMES = set(IMPLS) - set(SUITES) - LIBRARIES

# To be renamed.
STILL_TWICE = {"Comparison", "Row", "SelfTest"}


def public_classes(texts):
    """The classes that modules define at their top, as often as each is defined."""
    nodes = [node for text in texts for node in ast.parse(text).body]
    return Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def implementations_named(text):
    """The implementations that the strings of a module name, alone or in a list; its docstrings may name any."""
    tree = ast.parse(text)
    docstrings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings
    ]
    words = {word for string in strings for word in string.replace(",", " ").replace(")", " ").split()}
    return words & NAMES


def sources(*packages):
    return {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def test_no_class_name_stands_twice():
    counted = public_classes(sources("harness", "impls", "reports").values())
    assert {name for name, count in counted.items() if count > 1} == STILL_TWICE


def test_a_class_name_that_stands_twice_is_seen():
    assert public_classes(["class Row: ...", "class Row: ...\nclass _Row: ..."]) == {"Row": 2}


def test_implementations_are_named_in_one_file():
    texts = {path: text for path, text in sources("harness", "reports").items() if path not in NAMES_THEM}
    named = {path: implementations_named(text) for path, text in texts.items()}
    assert {path: names for path, names in named.items() if names} == {}


def test_a_planted_name_is_seen():
    assert implementations_named('"""Of torch-eager."""\nHELP = f"{x}; else triton-inhouse)"') == {"triton-inhouse"}
    assert implementations_named('NAMES = "torch-eager,quack"') == {"torch-eager"}
    assert implementations_named((ROOT / DEFAULTS).read_text("utf-8")) == {"torch-eager", "triton-inhouse"}
