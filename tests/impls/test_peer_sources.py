"""The adapters' calls, and the places that docs/peers.md names, in the sources of the libraries, without a GPU.

Nothing of a library is imported. `nox -s peers` downloads those that pip has, in the versions of constraints.txt, and
names their folder in NORMBWD_PEERS; folders of other sources may follow it.
"""

import ast
import importlib.util
import os
import re
from importlib.util import resolve_name
from pathlib import Path

import pytest

import noxfile
from tests.impls.places import PLACES
from tests.impls.signatures import CLASSES, SCHEMAS, SIGNATURES

PROJECT = Path(__file__).parents[2]
DOCUMENT = (PROJECT / "docs/peers.md").read_text("utf-8")
PLACE = re.compile(r"[\w-]+/[\w./-]+\.(?:py|cpp|cuh?|h|md):\d+")
CALLS = SIGNATURES | CLASSES
OPERATORS = {name: schema for name, schema in SCHEMAS.items() if name.startswith("cudnn::")}
# Sources that pip does not have: they are read where their folder is named as well.
BUILT = (
    "apex/", "csrc/", "examples/", "fast_llm/", "flash_attn/", "helion/examples/", "kernelagent_oink/", "mamba_ssm/",
    "pytorch/", "transformer_engine/common/", "transformer_engine/pytorch/csrc/",
    "transformer_engine/pytorch/triton_kernels/",
)  # fmt: skip
# Modules that others stand for without an import of a name.
MOVED = {
    f"fla.modules.{name}": f"fla.modules.norm.{name}" for name in ("layernorm", "layernorm_gated", "fused_norm_gate")
}
MOVED["kernelagent_oink.blackwell.rmsnorm"] = "kernelagent_oink.blackwell._rmsnorm_impl"
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
CONDITIONS = ast.If | ast.Try | ast.ExceptHandler


def file_of(roots, *paths):
    """The file of the first folder that has one of the paths; None where pip has no such source."""
    there = [root / path for root in roots for path in paths if (root / path).is_file()]
    if not there and not paths[0].startswith(BUILT):
        raise FileNotFoundError(f"{paths[0]} in none of {', '.join(map(str, roots))}")
    return there[0] if there else None


def statements(body):
    """Those of a module or a class, also under conditions."""
    for node in ast.iter_child_nodes(body):
        yield node
        if isinstance(node, CONDITIONS):
            yield from statements(node)


def definition(roots, module, name):
    """The function or class of that name, wherever the module has it from; None where pip has no such source."""
    path = MOVED.get(module, module).replace(".", "/")
    file = file_of(roots, f"{path}.py", f"{path}/__init__.py")
    if file is None:
        return None
    package = path.replace("/", ".") if file.name == "__init__.py" else path.rpartition("/")[0].replace("/", ".")
    for node in statements(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, DEFINITIONS) and node.name == name:
            return node
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if (alias.asname or alias.name) == name:
                return definition(roots, resolve_name("." * node.level + (node.module or ""), package), alias.name)
    raise LookupError(f"{file} neither defines {name} nor imports it")


def written(roots, call):
    """The signature of a call as its source has it, without annotations; None where pip has no such source."""
    module, _, path = call.removesuffix(".fn").partition(":")
    name, _, method = path.partition(".")
    found = definition(roots, module, name)
    if found is not None and method:
        (found,) = [node for node in statements(found) if isinstance(node, DEFINITIONS) and node.name == method]
    if found is None:
        return None
    for argument in ast.walk(found.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return f"({ast.unparse(found.args)})"


def changed_calls(roots, calls):
    """What the sources say of calls that they have and that are others than those given."""
    now = {call: written(roots, call) for call in calls}
    return {call: signature for call, signature in now.items() if signature not in (None, calls[call])}


def line_at(roots, place):
    """What stands at a place, which may be behind the end of its file; None where pip has no such source."""
    path, _, number = place.partition(":")
    file = file_of(roots, path)
    return (
        None if file is None else dict(enumerate(file.read_text("utf-8").splitlines(), 1)).get(int(number), "").strip()
    )


def changed_places(roots, places):
    """What stands at the places where the text that is given does not."""
    now = {place: line_at(roots, place) for place in places}
    return {place: line for place, line in now.items() if line is not None and places[place] not in line}


@pytest.fixture
def roots():
    torch = Path(importlib.util.find_spec("torch").origin).parents[1]
    return [*map(Path, os.environ["NORMBWD_PEERS"].split(os.pathsep)), torch]


@pytest.mark.peers
def test_libraries_take_what_they_took(roots):
    assert changed_calls(roots, CALLS) == {}


@pytest.mark.peers
def test_operators_of_cudnn_take_what_they_took(roots):
    folder = file_of(roots, "cudnn/ops/norm/__init__.py").parent
    texts = [ast.parse((folder / name).read_text("utf-8")) for name in ("rmsnorm.py", "layernorm.py")]
    defined = {node.value for text in texts for node in ast.walk(text) if isinstance(node, ast.Constant)}
    assert [name for name, schema in OPERATORS.items() if name.partition("::")[2] + schema not in defined] == []


@pytest.mark.peers
def test_places_hold_what_the_document_says(roots):
    assert changed_places(roots, PLACES) == {}


def test_every_place_of_the_document_is_one_that_is_looked_at():
    assert sorted(set(PLACE.findall(DOCUMENT))) == sorted(PLACES)


def test_document_names_the_versions_that_are_looked_at():
    pins = dict(pin.split("==") for pin in noxfile.pinned_peers())
    assert set(pins) == set(noxfile.PEERS)
    assert [
        name for name, version in pins.items() if not re.search(rf"(?<![\d.]){re.escape(version)}\b", DOCUMENT)
    ] == []


LIBRARY = {
    "quack/__init__.py": "",
    "quack/rmsnorm.py": """
from .kernels import layernorm_bwd as layernorm_bwd

if True:
    @tuned
    def rmsnorm_bwd(
        x: Tensor, weight: Tensor | None = None, eps: float = 1e-6,  # of x's dtype
        *, impl: str = "llama", **more: Any,
    ) -> None:
        pass
""",
    "quack/kernels.py": """
def layernorm_bwd(x, weight, dout, rstd, mean): ...
class Norm:
    def __init__(self, eps=0): ...
""",
}
SAID = {
    "quack.rmsnorm:rmsnorm_bwd.fn": "(x, weight=None, eps=1e-06, *, impl='llama', **more)",
    "quack.rmsnorm:layernorm_bwd": "(x, weight, dout, rstd, mean)",
    "quack.kernels:Norm.__init__": "(self, eps=0)",
}


@pytest.mark.parametrize(
    ("old", "new", "call"),
    [
        ("", "", None),
        ("rstd, mean", "mean, rstd", "quack.rmsnorm:layernorm_bwd"),
        ("1e-6", "1e-5", "quack.rmsnorm:rmsnorm_bwd.fn"),
        ("eps=0", "*, eps=0", "quack.kernels:Norm.__init__"),
    ],
)
def test_what_changed_in_a_library_is_seen(old, new, call, tmp_path):
    for path, text in LIBRARY.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text.replace(old, new) if old else text, "utf-8")
    assert [*changed_calls([tmp_path], SAID)] == ([call] if call else [])
    with pytest.raises(LookupError, match="neither defines gone"):
        changed_calls([tmp_path], {"quack.rmsnorm:gone": "()"})
    with pytest.raises(FileNotFoundError, match=r"quack/layernorm\.py"):
        changed_calls([tmp_path], {"quack.layernorm:layernorm_bwd": "()"})
    places = {"quack/rmsnorm.py:6": "def rmsnorm_bwd(", "quack/rmsnorm.py:5": "def", "quack/rmsnorm.py:600": "def"}
    places["apex/norm.py:1"] = "what pip lacks is left alone"
    assert changed_places([tmp_path], places) == {"quack/rmsnorm.py:5": "@tuned", "quack/rmsnorm.py:600": ""}
