import ast
from pathlib import Path

import pytest

from harness.analysis.sources import (
    NO_FIGURE,
    OF_THE_PARENT,
    PARENTS_MODULES,
    _as_text,
    _of_adapter,
    hash_of,
    sources_of,
)
from harness.errors import UsageError
from tests.published_runs.small_checkout import ADAPTERS, change, measured, write

ROOT = Path(__file__).parents[3]


@pytest.fixture
def checkout(tmp_path):
    return write(tmp_path)


def changed_by(checkout, name, was, now):
    before = measured(checkout)
    change(checkout, name, was, now)
    after = measured(checkout)
    return {path for path in before if before[path] != after[path]}


@pytest.mark.parametrize(
    ("name", "was", "now", "changed"),
    [
        ("impls/triton_inhouse.py", '"triton-inhouse"', '"ours"', {"impls/triton_inhouse.py"}),
        ("impls/inhouse/launch.py", "x + ", "x * ", {"impls/triton_inhouse.py"}),
        ("impls/inhouse/limits.py", "3", "4", {"impls/triton_inhouse.py"}),
        ("impls/inhouse/__init__.py", "", "MOST = 1\n", {"impls/triton_inhouse.py"}),
        ("impls/quack.py", "return torch", "return None", {"impls/quack.py"}),
        ("harness/timing/deciding.py", "1", "2", {"harness/timing"}),
        ("harness/run/runner.py", "1", "2", {"harness/run"}),
    ],
)
def test_changed_code_changes_the_hash_of_who_runs_it(checkout, name, was, now, changed):
    assert changed_by(checkout, name, was, now) == changed


@pytest.mark.parametrize(
    ("name", "was", "now"),
    [
        ("impls/triton_inhouse.py", "the package beside", "another comment"),
        ("impls/triton_inhouse.py", "Ours.", "The project's own."),
        ("impls/inhouse/launch.py", "Launch it.", "It is launched."),
        ("impls/inhouse/launch.py", "return x + limits.MOST", "return (\n        x\n        + limits.MOST\n    )"),
        ("harness/timing/deciding.py", "return 1", '"""Decide."""\n    return 1  # it is'),
        ("harness/cases/suites.py", "()", "(1,)"),
        ("harness/run/listing.py", "1", "2"),
    ],
)
def test_what_decides_no_figure_changes_no_hash(checkout, name, was, now):
    assert changed_by(checkout, name, was, now) == set()


def test_new_file_of_a_room_counts(checkout):
    before = measured(checkout)
    (checkout / "harness/verify/second.py").write_text("LIMIT = 2\n")
    assert measured(checkout)["harness/verify"] != before["harness/verify"]


def test_what_is_not_timed_has_no_hash_of_what_times(checkout):
    assert measured(checkout).keys() - measured(checkout, timed=False).keys() == {"harness/timing"}


def test_adapter_of_somebody_else_has_no_hash(checkout):
    assert measured(checkout) == sources_of((*ADAPTERS, "/elsewhere/mine.py", "package.module"), True, checkout)


def test_hash_tells_statements_apart_that_a_tree_writes_alike(checkout):
    texts = ("return None", "return", 'return ""', "return ()", "pass", "return 1", "return 1.0", "return True")
    hashes = []
    for text in texts:
        (checkout / "impls/quack.py").write_text(f"def prepare():\n    {text}\n")
        hashes.append(hash_of("impls/quack.py", checkout))
    assert len(set(hashes)) == len(texts)


def test_formatted_text_is_the_same_whichever_python_reads_it():
    """Of `{x:{width}}` Python 3.12 makes a format that ends in an empty constant, others do not."""
    (statement,) = ast.parse('f"{x:{width}}"').body
    written = _as_text(statement.value)
    statement.value.values[0].format_spec.values.append(ast.Constant(""))
    assert _as_text(statement.value) == written


def test_file_that_is_no_python_is_named(checkout):
    change(checkout, "impls/quack.py", "def ", "def def ")
    with pytest.raises(UsageError, match=r"quack\.py is not Python"):
        measured(checkout)


def test_modules_that_decide_no_figure_exist():
    named = {f"{room}/{module}.py" for room, modules in NO_FIGURE.items() for module in modules}
    assert [path for path in named if not (ROOT / path).is_file()] == []
    assert all((ROOT / OF_THE_PARENT / f"{module}.py").is_file() for module in PARENTS_MODULES)


def test_in_house_kernel_is_all_of_its_package():
    """Each file of impls/inhouse but those that a model calls is reached from the adapter."""
    reached = {path.relative_to(ROOT).as_posix() for path in _of_adapter("impls/triton_inhouse.py", ROOT)}
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "impls/inhouse").rglob("*.py")}
    assert {path for path in package - reached if "/model/" not in path} == set()
