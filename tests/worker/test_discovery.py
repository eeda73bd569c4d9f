"""How implementations are found: in memory and from files; nothing is prepared."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import impls
from harness.cases import NormCase
from harness.cases.adapter import Implementation
from harness.errors import UsageError
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.worker import discovery
from harness.worker.asking import record
from harness.worker.discovery import discover

CASE = NormCase("rms", 4, 8, device="cpu")
ADAPTER = """
'''One line of summary.

And more.
'''
name = {name!r}
requires = ("sys",)
def unsupported(case): return None
def prepare(inputs): return lambda: None
"""


@pytest.fixture(autouse=True)
def only_files(monkeypatch):
    """Leave the adapters of impls/ and of installed packages out, and no module behind."""
    monkeypatch.setattr(discovery, "_own_modules", list)
    monkeypatch.setattr(discovery, "entry_points", lambda group: [])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("normbwd_impl_"):
            del sys.modules[name]


@pytest.fixture
def adapter(tmp_path):
    """Write an adapter file."""

    def write(file="mine.py", text=ADAPTER, name="mine", more=""):
        path = tmp_path / file
        path.write_text(text.replace("{name!r}", repr(name)) + more)
        return path

    return write


def complaint(*files):
    with pytest.raises(UsageError) as caught:
        discover(files)
    return str(caught.value)


def module(**more):
    return SimpleNamespace(**({"name": "mine", "requires": (), "unsupported": lambda case: None} | more))


def implementation(*arguments, **more):
    return Implementation("mine", "mine", "here", module(**more), arguments)


def test_a_file_is_an_implementation(adapter):
    path = adapter()
    (mine,) = discover([path])
    assert (mine.name, mine.family, mine.source) == ("mine", "mine", str(path))
    assert mine.summary == "One line of summary."
    assert (mine.via, mine.in_place) == ("kernel", False)
    assert mine.missing() is None
    assert mine.unsupported(CASE) is None
    assert mine.untimed(CASE) is None
    assert mine.notes(CASE) == []


def summaries(adapter, variants, prepare="def prepare(inputs, value): ..."):
    path = adapter(more=f"{prepare}\ndef unsupported(case, value): ...\nvariants = {variants}\n")
    return [item.summary for item in discover([path]) if item.source == str(path)]


@pytest.mark.parametrize(
    ("variants", "called", "how"),
    [
        ("{'mine': 'called', 'mine-2': 'tuned'}", "variant", "variant=tuned"),
        ("{'mine': 'none', 'mine-2': 'full'}", "effort", "effort=full"),
        ("{'mine': False, 'mine-2': True}", "_keeps_y", "keeps_y=True"),
        ("{'mine': True, 'mine-2': False}", "tuned", "tuned=False"),
        ("{'mine': 8, 'mine-2': 32}", "sm_margin", "sm_margin=32"),
        ("{'mine': {}, 'mine-2': {'a': 1, 'b': True}}", "settings", "a=1, b=True"),
        ("{'mine': None, 'mine-2': print}", "how", "another of its variants"),
    ],
)
def test_variant_says_how_it_differs(adapter, variants, called, how):
    prepare = f"def prepare(inputs, {called}): ..."
    assert summaries(adapter, variants, prepare) == ["One line of summary.", f"as mine, but {how}"]


def test_each_variant_is_an_implementation(adapter):
    """The value of a variant is passed to every function of the adapter."""
    more = """
variants = {"mine": 1, "mine-tuned": 2}
def unsupported(case, value): return f"unsupported {value}"
def untimed(case, value): return f"untimed {value}"
def notes(case, value): return [f"note {value}"]
def prepare(inputs, value): return (inputs.case, value)
"""
    mine = discover([adapter(more=more)])
    assert [(item.name, item.family) for item in mine] == [("mine", "mine"), ("mine-tuned", "mine")]
    for value, item in enumerate(mine, start=1):
        assert item.unsupported(CASE) == f"unsupported {value}"
        assert item.untimed(CASE) == f"untimed {value}"
        assert item.notes(CASE) == [f"note {value}"]
        assert item.prepare(SimpleNamespace(case=CASE)) == (CASE, value)


def test_what_is_not_installed_is_missing_by_name():
    assert implementation(requires=("sys", "json")).missing() is None
    assert implementation(requires=("sys", "no_such_x", "no_such_y")).missing() == "not installed: no_such_x, no_such_y"
    assert implementation(requires=("no_such_package.part",)).missing() == "not installed: no_such_package.part"
    assert implementation(requires=("sys.part",)).missing() == "not installed: sys.part"


def test_what_to_type_is_recorded_apart_from_why_it_is_missing():
    recorded = record(implementation(requires=("no_such_x",), install="pip install 'x; y'")).missing
    assert recorded == Reason(
        "missing", {"text": "not installed: no_such_x"}, [Reason("to_install", {"command": "pip install 'x; y'"})]
    )
    assert sentence(recorded) == "not installed: no_such_x; pip install 'x; y'"


VARIANTS = """
variants = {"mine": 1, "mine-tuned": 2}
def unsupported(case, value): return None
def prepare(inputs, value): return lambda: None
"""


def test_a_variant_may_not_take_a_name_either(adapter):
    first = adapter("first.py", name="mine-tuned")
    second = adapter("second.py", more=VARIANTS)
    assert complaint(first, second) == f"{second} and {first} both call themselves 'mine-tuned'; rename one"


@pytest.mark.parametrize("lacking", ["name", "requires", "unsupported", "prepare"])
def test_a_file_that_lacks_a_part_of_the_contract(adapter, lacking):
    path = adapter(more=f"del {lacking}\n")
    assert complaint(path) == f"{path}: has no {lacking}; docs/add-an-implementation.md shows what it needs"


SETS = "must be a set of texts, such as {'residual'}, or a dict of such sets by norm"
TAKES_CASE = "takes (), and is called with (case)"


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("name = 17", "name = 17: must be a text"),
        ("name = ''", "name = '': must be a text"),
        ("name = 'my norm'", "name = 'my norm': must have no blanks and none of , * ? [ ] @ #"),
        ("requires = 'torch'", "requires = 'torch': must be a tuple of module names, such as ('torch',)"),
        ("requires = (17,)", "requires = (17,): must be a tuple of module names"),
        ("variants = ['a']", "variants = ['a']: must be a dict of public names to values, with one entry at least"),
        ("via = 'magic'", "via = 'magic': must be 'kernel' or 'autograd'"),
        ("in_place = 'yes'", "in_place = 'yes': must be True or False"),
        ("contiguous_only = ()", "contiguous_only = (): must be True or False"),
        ("name = 'all'", "name = 'all': is what --impls calls every variant; take another"),
        ("on_request = 'mine'", "on_request = 'mine': must be True, False or a set of public names"),
        ("handles = 'residual'", f"handles = 'residual': {SETS}"),
        ("handles = {'rms': 'residual'}", f"handles = {{'rms': 'residual'}}: {SETS}"),
        ("handles = {'residual': ['rms']}", f"handles = {{'residual': ['rms']}}: {SETS}"),
        ("compiles_ahead = 1", "compiles_ahead = 1: must be True, False or a set of public names"),
        ("def unsupported(): return None", f"unsupported {TAKES_CASE}"),
        ("def untimed(): return None", f"untimed {TAKES_CASE}"),
        ("def notes(): return []", f"notes {TAKES_CASE}"),
        ("def missing(what): return None", "missing takes (what), and is called with ()"),
        ("def misconfigured(): return None", "misconfigured takes (), and is called with (device)"),
        ("def release(case): pass", "release takes (case), and is called with ()"),
        ("unsupported = None", "unsupported must be a function"),
        ("def prepare(): pass", "prepare takes (), and is called with (inputs)"),
        ("def prepare(inputs, *, more): pass", "prepare takes (inputs, *, more), and is called with (inputs)"),
        ("def configs(case): return {}", "prepare takes (inputs), and is called with (inputs, config=None)"),
    ],
)
def test_an_adapter_of_the_wrong_shape(adapter, more, fault):
    path = adapter(more=more + "\n")
    assert complaint(path) == f"{path}: {fault}; docs/add-an-implementation.md shows what it needs"


def test_a_variants_value_is_an_argument(adapter):
    path = adapter(more="variants = {17: 1}\n")
    assert complaint(path) == (
        f"{path}: variants has 17: must be a text; unsupported takes (case), and is called with (case, value); "
        "prepare takes (inputs), and is called with (inputs, value); docs/add-an-implementation.md shows what it needs"
    )


CONFIGS = """
def configs(case): return {"plain": {"tile": 1}, "wide": {"tile": 2}} if case.cols > 4 else {}
def prepare(inputs, config=None): return (inputs, config)
"""


def test_an_adapter_may_offer_configurations(adapter):
    (mine,) = discover([adapter(more=CONFIGS)])
    assert list(mine.configs(CASE)) == ["plain", "wide"]
    inputs = SimpleNamespace(case=CASE)
    assert mine.prepare(inputs) == (inputs, None)
    assert implementation().configs(CASE) == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "import no_such_library\n",
            "ModuleNotFoundError: No module named 'no_such_library'; import libraries inside functions, and name them "
            "in requires (docs/add-an-implementation.md), and what lies beside it by `from .name import`",
        ),
        ("raise ValueError('no device')\n", "ValueError: no device"),
        ("import sys; sys.exit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported(adapter, text, fault):
    path = adapter(text=text)
    assert complaint(path) == f"--impl {path} cannot be imported: {fault}"


def two_checkouts(tmp_path, adapter, line):
    for of in ("one", "two"):
        (tmp_path / of).mkdir()
        (tmp_path / of / "kernel.py").write_text(f"OF = {of!r}")
    return [adapter(f"{of}/mine.py", name=of, more=f"{line}\nassert OF == {of!r}\n") for of in ("one", "two")]


def test_files_import_what_lies_beside_each(tmp_path, adapter):
    files = two_checkouts(tmp_path, adapter, "from .kernel import OF")
    assert [item.name for item in discover(files)][-2:] == ["one", "two"]


def test_an_import_by_name_may_not_get_the_other_files_neighbour(monkeypatch, tmp_path, adapter):
    monkeypatch.setattr(sys, "path", list(sys.path))
    files = two_checkouts(tmp_path, adapter, "from kernel import OF")
    assert complaint(*files) == "two --impl files have a module kernel beside them; use `from .kernel import`"
    assert discover(files[:1])[-1].name == "one"
    del sys.modules["kernel"]


def test_a_file_that_is_no_python(adapter):
    path = adapter("notes.txt")
    assert complaint(path) == f"--impl {path}: not a Python file (its name must end in .py)"
    absent = path.with_name("absent.py")
    assert complaint(absent) == f"--impl {absent}: no such file"
    assert complaint(path.parent) == f"--impl {path.parent}: is a folder; name the adapter's file in it"


class Point:
    """An entry point of another package."""

    name = "theirs"
    value = "their.package"

    def __init__(self, load):
        self.load = load


def test_an_entry_point_is_an_implementation(monkeypatch):
    theirs = module(name="theirs", prepare=lambda inputs: None)
    monkeypatch.setattr(discovery, "entry_points", lambda group: [Point(lambda: theirs)] * (group == "normbwd.impls"))
    assert [(item.name, item.source) for item in discover()] == [("theirs", "their.package")]


def fail(error):
    raise error


def test_an_entry_point_that_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(discovery, "entry_points", lambda group: [Point(lambda: fail(ImportError("no libcuda")))])
    assert complaint() == (
        "entry point 'theirs' (their.package) cannot be imported: ImportError: no libcuda; "
        "mend or uninstall that package"
    )


def test_the_own_adapters_are_found_by_file_name(monkeypatch):
    monkeypatch.undo()
    root = Path(impls.__file__).parent
    files = {*root.glob("[!_]*.py"), *root.glob("*_peers/[!_]*.py")}
    mine = discover()
    assert {root.parent / item.source for item in mine if item.source.startswith("impls/")} == files
    assert len({path.parent for path in files}) == 4
    names = [item.family for item in mine if item.source.startswith("impls/")]
    assert names == sorted(names)
