import os
import subprocess

import pytest

from harness.analysis.other_verdicts import OtherVerdicts, read_other_verdicts
from harness.analysis.sources import hash_of
from harness.errors import UsageError
from harness.records.file import load
from harness.records.published_plan import CHECKOUT, published_files
from harness.records.schema import ContextRecord
from tests.impls.same_launches import extract
from tests.published_runs.other_verdicts import entry
from tests.published_runs.small_checkout import change, measured, write
from tests.results_factory import row

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
        pytest.param("import print_exception", "import print_exception\nimport os.path", "os", id="a package"),
        pytest.param("\n\nclass", "\n\nasync def new():\n    pass\n\n\nclass", "new", id="a coroutine"),
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


def test_a_whole_class_may_be_left_out(then, tmp_path):
    here, name = here_with(tmp_path, "class Verifier:", "class Verifier(dict):"), "harness/verify/verifier.py:Verifier"
    assert hash_of(ROOM, then, without=[name]) == hash_of(ROOM, here, without=[name]) != hash_of(ROOM, here)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("class Verifier:", "class Verifier(dict):"),
        ("MOST = 3", "MOST, LEAST = 3, 1"),
        ("MOST = 3", "torch.most = MOST = 3"),
        ("MOST = 3", "if True:\n    MOST = 4"),
        ("import print_exception", "import *"),
    ],
)
def test_what_is_beside_a_definition_is_seen(then, tmp_path, was, now):
    here = here_with(tmp_path, was, now)
    name = "harness/verify/verifier.py:Verifier.decide"
    assert hash_of(ROOM, then, without=[name]) != hash_of(ROOM, here, without=[name])
    assert entry(ROOM, then, here) is None, "more than definitions has changed"


def test_an_assignment_of_two_names_is_left_out_for_both_alone(tmp_path):
    folder = with_code(tmp_path, "a = b = 1\n")
    one, both = ["harness/verify/verifier.py:a"], ["harness/verify/verifier.py:a", "harness/verify/verifier.py:b"]
    whole = hash_of(ROOM, folder)
    assert hash_of(ROOM, folder, without=one) == whole != hash_of(ROOM, folder, without=both)


CHANGE = OtherVerdicts(
    path=ROOM, was=["0" * 12, "1" * 12], now="2" * 12, only=[], rest="", because="", reasons=["left a thread", "keeps"]
)
THREAD = "the backward left a thread at work: late"
IN_A_GRAPH = {"graph": ContextRecord(status="wrong", reason=THREAD), "hot-dy": ContextRecord(status="ok")}


@pytest.mark.parametrize(
    ("was", "now", "said", "covered"),
    [
        ("0" * 12, "2" * 12, {}, True),
        ("1" * 12, "2" * 12, {"reason": "dx is off by rho 3"}, True),
        ("0" * 12, "2" * 12, {"reason": THREAD}, False),
        ("0" * 12, "2" * 12, {"reason": "every call keeps 7 bytes of memory"}, False),
        ("0" * 12, "2" * 12, {"untimed": THREAD}, False),
        ("0" * 12, "2" * 12, {"notes": ["a note", THREAD]}, False),
        ("0" * 12, "2" * 12, {"kernels_note": THREAD}, False),
        ("0" * 12, "2" * 12, {"contexts": IN_A_GRAPH}, False),
        ("0" * 12, "2" * 12, {"contexts": {"hot-dy": ContextRecord(status="ok")}}, True),
        ("3" * 12, "2" * 12, {}, False),
        ("0" * 12, "3" * 12, {}, False),
        ("0" * 12, None, {}, False),
    ],
)
def test_a_change_covers_rows_that_say_nothing_of_its_reasons(was, now, said, covered):
    rows = [row("quack", 50.0), row("quack", 50.0).model_copy(update=said)]
    assert CHANGE.covers(ROOM, was, now, rows) is covered
    assert not CHANGE.covers("harness/worker", was, now, rows)


def dead(changes, here, recorded):
    """What is wrong with entries that cover nothing: `recorded` has the sources of all published files."""
    again = "delete it or make it anew (python -m tests.published_runs.other_verdicts)"
    for each in changes:
        if each.now != here(each.path):
            yield f"{each.path} is no longer {each.now}: {again}"
        elif each.rest != here(each.path, without=each.only):
            yield f"{each.path} without {', '.join(each.only)} is no longer {each.rest}: {again}"
        for was in each.was:
            if all(sources.get(each.path) != was for sources in recorded):
                yield f"nothing was measured with {each.path} of {was}: {again}"


def code_before(changes, folder):
    """Of each hash before a change, a folder with the code of a published file that has it, as git has it."""
    measured_at = {
        (path, was): record.revision
        for _, _, file in published_files()
        for record in [load(file).run, *(record for _, record in load(file).resumed)]
        for path, was in (record.sources or {}).items()
    }
    for each in changes:
        for was in each.was:
            revision = measured_at[each.path, was]
            asked = ["git", "cat-file", "-e", f"{revision}^{{commit}}"]
            known = subprocess.run(asked, check=False, cwd=CHECKOUT, capture_output=True)
            if known.returncode == 0:  # a shallow clone has no other revision
                then = folder / revision
                if not then.exists():
                    then.mkdir()
                    extract(revision, then, "harness", "impls")
                yield each, was, then


def test_nothing_else_has_changed_since_the_code_before(tmp_path):
    for each, was, then in code_before(read_other_verdicts(), tmp_path):
        assert hash_of(each.path, then) == was
        assert hash_of(each.path, then, without=each.only) == each.rest, each.path


OF_LIBRARIES = ("undefined symbol",)  # what no code of this project says


def test_reasons_are_what_rows_say():
    code = "\n".join(path.read_text("utf-8") for path in (CHECKOUT / "harness").rglob("*.py"))
    for each in read_other_verdicts():
        assert all(reason in code or reason in OF_LIBRARIES for reason in each.reasons), each.path


def test_every_entry_is_of_the_code_that_is_here_and_of_a_published_file():
    recorded = [sources or {} for _, _, path in published_files() for sources, _ in load(path).by_code()]
    assert [*dead(read_other_verdicts(), hash_of, recorded)] == []


def test_a_dead_entry_is_seen(tmp_path, then):
    name = "harness/verify/verifier.py:Verifier.decide"
    here = here_with(tmp_path, "return MOST", "return MOST + 1")

    def hash_here(path, **more):
        return hash_of(path, here, **more)

    recorded = [measured(then)]
    fields = {"path": ROOM, "now": hash_of(ROOM, here), "reasons": ["wrong"], "because": "so"}
    made = OtherVerdicts(**fields, was=(hash_of(ROOM, then),), only=(name,), rest=hash_of(ROOM, then, without=[name]))
    assert [*dead([made], hash_here, recorded)] == []
    (unknown,) = dead([made], hash_here, [{}])
    assert unknown.startswith(f"nothing was measured with {ROOM} of ")
    (other,) = dead([made.model_copy(update={"only": []})], hash_here, recorded)
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


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [("reasons = ['wrong']", "reasons = ['']", "at least 1 character"), ("was = ['0']", "was = '0'", "a valid list")],
)
def test_what_would_cover_too_much_is_refused(tmp_path, was, now, said):
    text = "[[change]]\npath = 'harness/run'\nwas = ['0']\nnow = '1'\nonly = []\nrest = '2'\nreasons = ['wrong']\n"
    (tmp_path / "results").mkdir()
    path = tmp_path / "results/other_verdicts.toml"
    path.write_text(f"{text}because = 'so'\n")
    assert read_other_verdicts(tmp_path)[0].reasons == ["wrong"]
    path.write_text(f"{text}because = 'so'\n".replace(was, now))
    os.utime(path, ns=(path.stat().st_mtime_ns + 1,) * 2)
    with pytest.raises(UsageError, match=said):
        read_other_verdicts(tmp_path)
