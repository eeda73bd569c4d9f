from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.results.file import load
from harness.results.published.other_verdicts import OtherVerdicts, read_other_verdicts
from harness.results.published.planned import published_files
from harness.results.published.sources import hash_of
from tests.results.published.other_verdicts import entry
from tests.results.published.small_checkout import change, measured, write
from tests.results_factory import results, row

ROOM = "harness/verify"
CODE = """
from traceback import print_exception

MOST = 3


class Verifier:
    least = 1

    def decide(self):
        return MOST

    def repeat(self):
        return 2
"""


def with_code(folder, text=CODE):
    """A small checkout whose harness/verify has this module too."""
    write(folder)
    (folder / "harness/verify/verifier.py").write_text(text)
    return folder


@pytest.fixture
def then(tmp_path):
    return with_code(tmp_path / "then")


def here_with(tmp_path, was, now):
    assert CODE.count(was) == 1
    return with_code(tmp_path / "here", CODE.replace(was, now))


@pytest.mark.parametrize(
    ("was", "now", "only"),
    [
        pytest.param("return MOST", "return MOST + 1", "Verifier.decide", id="a method"),
        pytest.param("least = 1", "least = 2", "Verifier.least", id="a value of a class"),
        pytest.param("MOST = 3", "MOST: int = 4", "MOST", id="a value"),
        pytest.param("import print_exception", "import walk_tb as print_exception", "print_exception", id="an import"),
        pytest.param("\n\nclass", "\n\ndef new():\n    pass\n\n\nclass", "new", id="a new function"),
        pytest.param("    def repeat(self):\n        return 2\n", "", "Verifier.repeat", id="a method that is gone"),
    ],
)
def test_a_definition_that_is_left_out_changes_no_hash(then, tmp_path, was, now, only):
    here, name = here_with(tmp_path, was, now), f"harness/verify/verifier.py:{only}"
    assert hash_of(ROOM, then) != hash_of(ROOM, here)
    assert hash_of(ROOM, then, without=[name]) == hash_of(ROOM, here, without=[name])
    others = [f"harness/verify/verifier.py:{only}s", f"harness/verify/deciding.py:{only}", f"x{name}"]
    assert hash_of(ROOM, then, without=others) == hash_of(ROOM, then) != hash_of(ROOM, here, without=others)
    assert f'only = ["{name}"]' in entry(ROOM, then, here)


def test_what_is_beside_a_definition_is_seen(then, tmp_path):
    here = here_with(tmp_path, "class Verifier:", "class Verifier(dict):")
    name = "harness/verify/verifier.py:Verifier.decide"
    assert hash_of(ROOM, then, without=[name]) != hash_of(ROOM, here, without=[name])
    assert entry(ROOM, then, here) is None, "more than definitions has changed"


def test_an_assignment_of_two_names_is_left_out_for_both_alone(tmp_path):
    folder = with_code(tmp_path, "a = b = 1\n")
    one, both = ["harness/verify/verifier.py:a"], ["harness/verify/verifier.py:a", "harness/verify/verifier.py:b"]
    whole = hash_of(ROOM, folder)
    assert hash_of(ROOM, folder, without=one) == whole != hash_of(ROOM, folder, without=both)


CHANGE = OtherVerdicts(
    path=ROOM, was=("0" * 12, "1" * 12), now="2" * 12, only=(), rest="", because="", reasons=("left a thread", "keeps")
)


def run_of(recorded, *reasons):
    """Results whose rows have these reasons."""
    done = results(*(row("quack", 50.0).model_copy(update={"reason": reason}) for reason in reasons))
    return replace(done, run=done.run.model_copy(update={"sources": recorded}))


@pytest.mark.parametrize(
    ("recorded", "now", "reasons", "covered"),
    [
        ({ROOM: "0" * 12}, "2" * 12, (None, "dx is off by rho 3"), True),
        ({ROOM: "1" * 12}, "2" * 12, (None,), True),
        ({ROOM: "0" * 12}, "2" * 12, (None, "the backward left a thread at work: late"), False),
        ({ROOM: "0" * 12}, "2" * 12, ("every call keeps 7 bytes of memory",), False),
        ({ROOM: "3" * 12}, "2" * 12, (None,), False),
        ({ROOM: "0" * 12}, "3" * 12, (None,), False),
        ({ROOM: "0" * 12}, None, (None,), False),
        ({"harness/timing": "0" * 12}, "2" * 12, (None,), False),
        (None, "2" * 12, (None,), False),
    ],
)
def test_a_change_covers_what_has_no_row_with_its_reasons(recorded, now, reasons, covered):
    assert CHANGE.covers(run_of(recorded, *reasons), ROOM, now) is covered
    assert not CHANGE.covers(run_of(recorded, *reasons), "harness/worker", now)


def dead(changes, here, recorded):
    """What is wrong with entries that cover nothing: `recorded` has the sources of all published files."""
    again = "delete it or make it anew (python -m tests.results.published.other_verdicts)"
    for each in changes:
        if each.now != here(each.path):
            yield f"{each.path} is no longer {each.now}: {again}"
        elif each.rest != here(each.path, without=each.only):
            yield f"{each.path} without {', '.join(each.only)} is no longer {each.rest}: {again}"
        for was in each.was:
            if all(sources.get(each.path) != was for sources in recorded):
                yield f"nothing was measured with {each.path} of {was}: {again}"


def test_every_entry_is_of_the_code_that_is_here_and_of_a_published_file():
    recorded = [load(path).run.sources or {} for _, _, path in published_files()]
    assert [*dead(read_other_verdicts(), hash_of, recorded)] == []


def test_a_dead_entry_is_seen(tmp_path, then):
    name = "harness/verify/verifier.py:Verifier.decide"
    here = here_with(tmp_path, "return MOST", "return MOST + 1")

    def hash_here(path, **more):
        return hash_of(path, here, **more)

    recorded = [measured(then)]
    fields = {"path": ROOM, "now": hash_of(ROOM, here), "reasons": ("wrong",), "because": "so"}
    made = OtherVerdicts(**fields, was=(hash_of(ROOM, then),), only=(name,), rest=hash_of(ROOM, then, without=[name]))
    assert [*dead([made], hash_here, recorded)] == []
    (unknown,) = dead([made], hash_here, [{}])
    assert unknown.startswith(f"nothing was measured with {ROOM} of ")
    (other,) = dead([made.model_copy(update={"only": ()})], hash_here, recorded)
    assert "is no longer" in other
    change(here, "harness/verify/deciding.py", "1", "2")
    (later,) = dead([made], hash_here, recorded)
    assert later.startswith(f"{ROOM} is no longer {made.now}: delete it or make it anew")


def test_a_fault_in_the_file_is_named_and_no_file_has_no_entries(tmp_path):
    assert read_other_verdicts(tmp_path) == ()
    (tmp_path / "results").mkdir()
    (tmp_path / "results/other_verdicts.toml").write_text("[[change]]\nroom = 1\n")
    with pytest.raises(UsageError, match=r"other_verdicts\.toml: change 1, room: unknown key; there are because"):
        read_other_verdicts(tmp_path)
