import re
from pathlib import Path

import pytest

from harness.analysis.same_launches import changes_of, read_same_launches
from harness.analysis.sources import hash_of
from harness.errors import UsageError
from harness.records.file import load
from harness.records.published_plan import file_of
from tests.published_runs.small_checkout import write

ROOT = Path(__file__).parents[3]
HERE = read_same_launches()
SMALL = """
triton = "3.7.1"

[[change]]
adapter = "impls/triton_inhouse.py"
was = "0123456789ab"
now = "ba9876543210"
because = "a comment"
[change.files.h200]
one = "0123456789abcdef"
"""


@pytest.fixture
def checkout(tmp_path):
    """A small checkout with one published file, and one change that names it."""
    write(tmp_path)
    path = file_of("h200", "one", tmp_path / "results")
    path.parent.mkdir(parents=True)
    path.touch()
    (tmp_path / "results/same_launches.toml").write_text(SMALL)
    return tmp_path


def dead(changes, hash_now, recorded):
    """What is wrong with entries that let no file stay current: `recorded` has the sources of a published file."""
    again = "delete it or make it anew (python -m tests.impls.same_launches)"
    for change in changes:
        if change.now != hash_now(change.adapter):
            yield f"{change.adapter} is no longer {change.now}: {again}"
        for device, name in change.names():
            if all(sources.get(change.adapter) != change.was for sources in recorded(device, name)):
                yield f"{device}/{name} was not measured with {change.adapter} of {change.was}: {again}"


def recorded(device, name):
    return [sources or {} for sources, _ in load(file_of(device, name)).by_code()]


def test_every_entry_lets_its_files_stay_current():
    assert [*dead(HERE.change, hash_of, recorded)] == []


def test_a_dead_entry_is_seen(checkout):
    changes = read_same_launches(checkout).change
    adapter, now, was = "impls/triton_inhouse.py", "ba9876543210", "0123456789ab"
    assert [*dead(changes, {adapter: now}.get, lambda *_: [{adapter: was}])] == []
    (later,) = dead(changes, {adapter: was}.get, lambda *_: [{adapter: was}])
    assert later.startswith("impls/triton_inhouse.py is no longer ba9876543210: delete it or make it anew")
    (measured_again,) = dead(changes, {adapter: now}.get, lambda *_: [{adapter: now}])
    assert measured_again.startswith("h200/one was not measured with impls/triton_inhouse.py of 0123456789ab")


def test_digests_are_made_with_the_triton_that_tests_run_with():
    """Where another is pinned, make them anew from the old revision: python -m tests.impls.same_launches."""
    pinned = re.search(r"(?m)^triton==(\S+)$", (ROOT / "constraints.txt").read_text())
    assert pinned
    assert HERE.triton == pinned[1]


def test_changes_are_of_an_adapter(checkout):
    (change,) = changes_of("impls/triton_inhouse.py", checkout)
    assert (change.because, [*change.names()]) == ("a comment", [("h200", "one")])
    assert changes_of("impls/quack.py", checkout) == []
    (checkout / "results/same_launches.toml").unlink()
    assert changes_of("impls/triton_inhouse.py", checkout) == []


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("[[change]]", "[[change]", "is not TOML"),
        ("because =", "why =", "change 1, why: unknown key; there are adapter, because, files, now, was"),
        ("triton =", "triton_version =", "triton_version: unknown key; did you mean triton?"),
        ("impls/triton_inhouse.py", "impls/gone.py", "there is no adapter impls/gone.py"),
        ("impls/triton_inhouse.py", "harness/verify", "there is no adapter harness/verify"),
        ("one =", "two =", "h200/two is not published; delete its line"),
        ("files.h200", "files.b200", "b200/one is not published; delete its line"),
    ],
)
def test_fault_is_named_in_one_line(checkout, was, now, said):
    assert was in SMALL
    (checkout / "results/same_launches.toml").write_text(SMALL.replace(was, now))
    with pytest.raises(UsageError, match=r"same_launches\.toml") as error:
        changes_of("impls/quack.py", checkout)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
