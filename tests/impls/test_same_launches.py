"""What published files stay current for: the adapters here launch for them what results/same_launches.toml says.

A child process computes it (the parent has told Triton to interpret).
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton

from harness.analysis.same_launches import read_same_launches
from tests.impls import launched_code
from tests.impls.launched_code import cases_of, digest, launched

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HERE = read_same_launches()
ADAPTER = "impls/triton_inhouse.py"
FORMULA = "impls/inhouse/formula.py"
ONE_PASS = "impls/inhouse/regimes/one_pass.py"
TILES = "impls/inhouse/regimes/one_pass_tiles.py"


@pytest.fixture
def copy(tmp_path):
    """A folder with a copy of impls/, in which a fault can be planted."""
    shutil.copytree(ROOT / "impls", tmp_path / "impls", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def plant(folder, file, was, now):
    path = folder / file
    text = path.read_text()
    assert text.count(was) == 1
    path.write_text(text.replace(was, now))


def changed(folder, name, adapter=ADAPTER):
    """The cases of a file that are launched otherwise by a copy."""
    (here,), (there,) = (launched(adapter, [("h200", name)], impls).values() for impls in (None, folder))
    assert here.keys() == there.keys()
    assert (digest(here) == digest(there)) == (here == there)
    return {case for case in here if here[case] != there[case]}, set(here)


@pytest.mark.parametrize(
    ("change", "device", "name"),
    [
        pytest.param(change, device, name, id=f"{Path(change.adapter).stem}-{device}-{name}")
        for change in HERE.change
        for device, name in change.names()
    ],
)
def test_the_same_is_launched_for_a_file_that_stays_current(change, device, name):
    assert triton.__version__ == HERE.triton, "digests are of one Triton: run this with constraints.txt"
    (found,) = launched(change.adapter, [(device, name)], was=change.was).values()
    assert found
    assert digest(found) == change.files[device][name]


def test_cases_that_other_code_measured_are_not_asked_for(monkeypatch):
    own = SimpleNamespace(name="triton-inhouse", source=ADAPTER)
    first, second, third = (SimpleNamespace(impl=own.name, case=case, verification=None) for case in "abc")
    parts = [
        ({ADAPTER: "1"}, [first]),
        ({ADAPTER: "2"}, [second]),
        (None, [third]),
        ({ADAPTER: "1"}, [third]),
        ({ADAPTER: "3"}, []),
    ]
    run, rows = SimpleNamespace(implementations=[own], device=None), [first, second, third]
    sanitized = [SimpleNamespace(impl=own.name, case="d"), SimpleNamespace(impl="quack", case="e")]
    results = SimpleNamespace(run=run, rows=rows, sanitized=sanitized, by_code=lambda: parts)
    monkeypatch.setattr(launched_code, "load", lambda path: results)
    asked = {was: [case for _, case in cases_of(ADAPTER, "h200", "odd", was)[1]] for was in ("1", "2", "3", None)}
    assert asked == {"1": [*"acd"], "2": [*"bd"], "3": [*"abcd"], None: [*"abcd"]}


def test_a_comment_launches_the_same(copy):
    plant(copy, FORMULA, "def centred(", "# a comment\ndef centred(")
    assert changed(copy, "margin")[0] == set()


@pytest.mark.parametrize(
    ("file", "was", "now"),
    [
        pytest.param(ONE_PASS, "(programs,),", "(programs + 1,),", id="a grid"),
        pytest.param(ONE_PASS, "*tensors.sizes,", "*(2 * size for size in tensors.sizes),", id="a number"),
        pytest.param("impls/inhouse/launch.py", '{"num_warps": warps}', '{"num_warps": 2 * warps}', id="an option"),
    ],
)
def test_a_changed_launch_is_seen(copy, file, was, now):
    plant(copy, file, was, now)
    assert changed(copy, "margin")[0]


def test_a_changed_statement_is_seen_in_cases_that_have_it_alone(copy):
    plant(copy, FORMULA, "+ (xhat * of_xhat + of_one)", "+ xhat * of_xhat + of_one")
    of_other_code, cases = changed(copy, "margin")
    assert of_other_code
    assert of_other_code <= {case for case in cases if " layer-" in case} < cases


def test_a_gate_that_is_read_again_is_seen_where_there_is_a_gate(copy):
    plant(copy, TILES, 'reread=pair or ("z" in problem.beside and warps == 16)', 'reread="z" in problem.beside')
    of_other_code, cases = changed(copy, "gated")
    assert of_other_code
    assert of_other_code < cases
    assert changed(copy, "residual")[0] == set()


def test_a_margin_that_is_not_kept_is_seen(copy):
    margin = "impls/triton_inhouse_margin.py"
    plant(copy, margin, "launching(inputs, sm_margin=sm_margin)", "launching(inputs, sm_margin=0)")
    of_other_code, cases = changed(copy, "margin", margin)
    assert of_other_code
    assert of_other_code <= cases
