"""Documents name files, modules, functions, commands and options that exist, and docs/commands.md names all of them."""

import ast
import importlib.util
import re
import shlex
from itertools import takewhile
from pathlib import Path
from typing import get_args

import pytest
import typer.main

import reports
from harness.__main__ import app
from harness.analysis.statistics import PROCESS_BAND
from harness.records.schema import Status
from reports import figures

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/README.md")),
    *sorted((ROOT / "examples").glob("*.yml")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PACKAGES = r"(?:harness|impls|reports|tests|docs|results|examples)"
PATH = re.compile(rf"(?<![\w/.-]){PACKAGES}/[\w./-]*[\w/]|(?<![\w/.-])\w+\.py\b")
MODULE = re.compile(r"(?<![\w/.-])(?:harness|impls|reports|tests)(?:\.(?!md\b|jsonl\b)[A-Za-z_]\w*)+")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
NAME_IN_FILE = re.compile(r"([\w/]+\.py)::(\w+)")
COMMAND = re.compile(
    r"(?:^ +|`)(?:normbwd|nox (?:--no-venv )?-s|python -m harness) ([a-z]+)\b(?: --)?([^`\n#|]*)", re.MULTILINE
)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z_-]+")
A_READERS_OWN = {"adapter.py", "mine.py", "my_kernel.py"}
SESSIONS = set(re.findall(r"^def ([a-z]\w*)\(session", (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE))
PROGRAM = typer.main.get_command(app)
COMMANDS = PROGRAM.commands
OPTIONS = {
    name: {word for option in command.params for word in (*option.opts, *option.secondary_opts) if word[0] == "-"}
    for name, command in COMMANDS.items()
}
EXAMPLES_OPTIONS = {
    option
    for path in (ROOT / "examples").glob("*.py")
    for option in re.findall(r'add_argument\(\s*"(--\w+)"', path.read_text())
}
OTHERS_OPTIONS = {"--help", "--no-deps", "--no-venv", "--no-build-isolation", "--use_fast_math", "--from", "--spec"}
ON_BY_DEFAULT = {"--weight", "--bias"}  # what is typed is --no-weight


def names(pattern, text):
    return sorted(set(pattern.findall(text)))


def absent_paths(text):
    """The paths in a text that this project does not have; a name alone may be of any folder."""
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
    if not path.exists():
        return set()
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
            typed = re.findall(r"(?<!\S)--[a-z-]+", rest)
            unknown += [f"{name} {word}" for word in typed if word not in OPTIONS[name]]
        elif name not in SESSIONS:
            unknown.append(name)
    return unknown


def unknown_options(text):
    """The options that no command of `normbwd` and no example has, wherever they are named."""
    known = set().union(*OPTIONS.values(), *(option.opts for option in PROGRAM.params))
    known |= EXAMPLES_OPTIONS | OTHERS_OPTIONS
    return [option for option in names(OPTION, text) if option not in known]


def anchors(path):
    """The anchors that a page's headings have on GitHub."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document, text):
    """The relative links whose file does not exist, or whose page has no such heading."""
    broken = []
    for file, anchor in LINK.findall(text):
        page = document.parent / file if file else document
        if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            broken.append(f"{file}#{anchor}")
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_document_names_what_exists(document):
    text = document.read_text(encoding="utf-8")
    absent = [*absent_paths(text), *absent_modules(text), *absent_names(text), *unknown_commands(text)]
    if document.suffix == ".md":  # a workflow calls other programs too
        absent += [*unknown_options(text), *broken_links(document, text)]
    assert absent == []


@pytest.mark.parametrize(
    ("check", "text", "absent"),
    [
        (absent_paths, "see harness/devices.py", ["harness/devices.py"]),
        (absent_paths, "see nowhere.py and harness/run/plan.py", ["nowhere.py"]),
        (absent_modules, "an error of `harness.mistakes`", ["harness.mistakes"]),
        (absent_modules, "`harness.errors.UsageError` and `harness.errors.Nothing`", ["harness.errors.Nothing"]),
        (absent_names, "harness/errors.py::UsageError, harness/errors.py::Nothing", ["harness/errors.py::Nothing"]),
        (unknown_commands, "`normbwd bench --resume --fast`", ["bench --fast"]),
        (unknown_options, "with `--twice` or `--thrice`", ["--thrice"]),
        (unknown_commands, "`nox -s measure -- --resume`", ["measure"]),
        (lambda text: broken_links(ROOT / "README.md", text), "[a](docs/method.md#bytes-moved)", []),
        (
            lambda text: broken_links(ROOT / "README.md", text),
            "[a](docs/method.md#x), [b](c.md)",
            ["docs/method.md#x", "c.md#"],
        ),
    ],
)
def test_what_does_not_exist_is_reported(check, text, absent):
    assert check(text) == absent


def test_architecture_has_a_paragraph_for_each_package():
    packages = {f"harness/{path.parent.name}" for path in (ROOT / "harness").glob("*/__init__.py")}
    paragraphs = re.findall(r"^\*\*([\w/]+)\*\*", (ROOT / "docs/architecture.md").read_text("utf-8"), re.MULTILINE)
    assert set(paragraphs) == packages | {"impls", "reports", "tests"}


def test_commands_page_has_every_command_option_and_status():
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    options = set().union(*OPTIONS.values(), *(option.opts for option in PROGRAM.params)) - ON_BY_DEFAULT
    assert options <= {*OPTION.findall(text), "-h"}
    in_code = set(re.findall(r"`(\w+)`", text))
    assert set(COMMANDS) | set(get_args(Status)) <= in_code


def test_reports_page_has_every_format_and_commands_on_published_files():
    text = (ROOT / "docs/reports.md").read_text("utf-8")
    assert set(re.findall(r"^\| (\w[\w-]*) \| .* \|$", text, re.MULTILINE)) - {"format", "option"} == set(
        reports.FORMATS
    ) - {"all-plots"}
    assert "`--format all-plots`" in text
    for command in re.findall(r"(?:`|^    )normbwd report (results/[^`\n]+)", text, re.MULTILINE):
        files = takewhile(lambda word: not word.startswith("--"), shlex.split(command))
        assert all((ROOT / path).is_file() for path in files), command


@pytest.mark.parametrize("page", ["docs/method.md", "docs/glossary.md"])
def test_least_band_of_one_process_is_that_of_reports(page):
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert f"at least {figures.band(PROCESS_BAND).removeprefix('±')} in" in text
