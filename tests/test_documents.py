"""Documents name files, modules, functions, commands and options that exist."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
import typer.main

from harness.__main__ import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "results/README.md", "examples/github-actions.yml")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
ROOMS = r"(?:harness|impls|reports|tests|docs|results|examples)"
PATH = re.compile(rf"(?<![\w/.-]){ROOMS}/[\w./-]*[\w/]|(?<![\w/.-])\w+\.py\b")
MODULE = re.compile(r"(?<![\w/.-])(?:harness|impls|reports|tests)(?:\.(?!md\b|jsonl\b)[A-Za-z_]\w*)+")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
NAME_IN_FILE = re.compile(r"([\w/]+\.py)::(\w+)")
COMMAND = re.compile(
    r"(?:^ +|`)(?:normbwd|nox (?:--no-venv )?-s|python -m harness) ([a-z]+)\b(?: --)?([^`\n#|]*)", re.MULTILINE
)
A_READERS_OWN = {"adapter.py", "mine.py", "my_kernel.py"}
SESSIONS = set(re.findall(r"^def ([a-z]\w*)\(session", (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE))
COMMANDS = typer.main.get_command(app).commands
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z_-]+")
EXAMPLES_OPTIONS = {
    option
    for path in (ROOT / "examples").glob("*.py")
    for option in re.findall(r'add_argument\(\s*"(--\w+)"', path.read_text())
}
OTHERS_OPTIONS = {"--help", "--no-deps", "--no-venv", "--no-build-isolation", "--use_fast_math"}


def names(pattern, text):
    return sorted(set(pattern.findall(text)))


def absent_paths(text):
    """The paths in a text that this project does not have; a name alone may stand anywhere in it."""
    here = {path.name for path in ROOT.rglob("*.*") if ".nox" not in path.parts} | A_READERS_OWN
    return [path for path in names(PATH, text) if not ((ROOT / path).exists() if "/" in path else path in here)]


def absent_modules(text):
    """The dotted names that are neither a module nor a name in one."""
    return [name for name in names(MODULE, text) if not is_module(name) and not is_in_module(name)]


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def is_in_module(name):
    module, _, attribute = name.rpartition(".")
    return is_module(module) and hasattr(importlib.import_module(module), attribute)


def absent_names(text):
    """Each `file.py::name` whose file does not define the name."""
    return [f"{file}::{name}" for file, name in NAME_IN_FILE.findall(text) if name not in defined(ROOT / file)]


def defined(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    return named | {target.id for target in targets if isinstance(target, ast.Name)}


def unknown_commands(text):
    """The commands and options that `normbwd` does not have."""
    unknown = []
    for name, rest in COMMAND.findall(text):
        if name in COMMANDS:
            known = {word for option in COMMANDS[name].params for word in (*option.opts, *option.secondary_opts)}
            unknown += [f"{name} {word}" for word in re.findall(r"(?<!\S)--[a-z-]+", rest) if word not in known]
        elif name not in SESSIONS:
            unknown.append(name)
    return unknown


def unknown_options(text):
    """The options that no command of `normbwd` and no example has, wherever they stand."""
    known = {word for command in COMMANDS.values() for option in command.params for word in option.opts}
    known |= {word for command in COMMANDS.values() for option in command.params for word in option.secondary_opts}
    return [option for option in names(OPTION, text) if option not in known | EXAMPLES_OPTIONS | OTHERS_OPTIONS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_document_names_what_exists(document):
    text = document.read_text(encoding="utf-8")
    assert absent_paths(text) == []
    assert absent_modules(text) == []
    assert absent_names(text) == []
    assert unknown_commands(text) == []
    if document.suffix == ".md":  # a workflow calls other programs too
        assert unknown_options(text) == []
    links = [link for link in LINK.findall(text) if not (document.parent / link).exists()]
    assert links == []


@pytest.mark.parametrize(
    ("look", "text", "absent"),
    [
        (absent_paths, "see harness/devices.py", ["harness/devices.py"]),
        (absent_paths, "see nowhere.py and harness/run/plan.py", ["nowhere.py"]),
        (absent_modules, "an error of `harness.mistakes`", ["harness.mistakes"]),
        (absent_modules, "`harness.errors.UsageError` and `harness.errors.Nothing`", ["harness.errors.Nothing"]),
        (absent_names, "harness/errors.py::UsageError, harness/errors.py::Nothing", ["harness/errors.py::Nothing"]),
        (unknown_commands, "`normbwd bench --resume --fast`", ["bench --fast"]),
        (unknown_options, "with `--twice` or `--thrice`", ["--thrice"]),
        (unknown_commands, "`nox -s measure -- --resume`", ["measure"]),
    ],
)
def test_what_does_not_exist_is_found(look, text, absent):
    assert look(text) == absent


def test_architecture_has_a_paragraph_for_each_room():
    rooms = {f"harness/{path.parent.name}" for path in (ROOT / "harness").glob("*/__init__.py")}
    paragraphs = re.findall(r"^\*\*([\w/]+)\*\*", (ROOT / "docs/architecture.md").read_text("utf-8"), re.MULTILINE)
    assert set(paragraphs) == rooms | {"impls", "reports", "tests"}
