"""The shape of the house: rooms that can be seen whole, and no two doors with one name."""

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSES = ("harness", "impls", "reports")
MOST_MODULES = 15


def modules(folder):
    return [path for path in folder.rglob("*.py") if path.name != "__init__.py"]


def crowded(paths, most=MOST_MODULES):
    """The folders that hold more modules than a person keeps in view."""
    return sorted(str(folder) for folder, count in Counter(path.parent for path in paths).items() if count > most)


def repeated(paths):
    """Names that two modules, or a module and a package, of one house bear."""
    packages = {path.parent for path in paths}
    names = Counter([*(path.stem for path in paths), *(package.name for package in packages)])
    return sorted(name for name, count in names.items() if count > 1)


@pytest.mark.parametrize("house", HOUSES)
def test_no_room_is_crowded(house):
    assert crowded(modules(ROOT / house)) == []


@pytest.mark.parametrize("house", HOUSES)
def test_no_name_is_borne_twice(house):
    assert repeated(modules(ROOT / house)) == []


def test_a_crowded_room_is_seen():
    assert crowded([Path(f"room/{number}.py") for number in range(16)]) == ["room"]


def test_a_name_borne_twice_is_seen():
    assert repeated([Path("a/one.py"), Path("b/one.py"), Path("b/two.py")]) == ["one"]
    assert repeated([Path("a/one.py"), Path("one/two.py")]) == ["one"]
