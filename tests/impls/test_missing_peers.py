"""Libraries that are absent, or other than they seem: what each adapter says, and how to install."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from harness.cases import NormCase, make_inputs
from harness.worker.libraries import versions_for
from impls.cuda_peers import cudnn
from impls.triton_peers import transformer_engine_rocm
from tests.impls.peer_cases import IMPLS, module


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where libraries of a test are installed, as texts of packages by name; they are forgotten behind it."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield Place(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__path__", getattr(sys.modules[name], "__file__", ""))):
            del sys.modules[name]


class Place:
    def __init__(self, folder: Path):
        self.folder = folder

    def package(self, name: str, text: str = "") -> None:
        """A package of a name such as `cuda.tile`; one that is imported already has to be imported anew."""
        folder = self.folder.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(text)
        importlib.invalidate_caches()

    def module(self, name: str, text: str) -> None:
        self.folder.joinpath(*name.split(".")).with_suffix(".py").write_text(text)
        importlib.invalidate_caches()


def why_missing(name: str) -> str:
    return IMPLS[name].missing() or ""


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("flash-attn-triton", "flash_attn"),
        ("fast-llm", "fast_llm"),
        ("transformer-engine", "transformer_engine"),
        ("mamba", "mamba_ssm"),
        ("tilegym", "tilegym"),
    ],
)
def test_a_library_that_cannot_be_imported_is_missing_with_the_reason(name, library, place):
    assert f"not installed: {library}" in why_missing(name)
    assert IMPLS[name].module.install in why_missing(name)
    place.package(library, "raise RuntimeError('built for another torch')")
    assert "built for another torch" in why_missing(name)


@pytest.mark.parametrize(
    ("name", "extension"), [("apex-fused", "fused_layer_norm_cuda"), ("apex-fast", "fast_layer_norm")]
)
def test_an_apex_that_is_another_project_is_recognised(name, extension, place):
    assert IMPLS[name].module.missing() is None
    assert extension in why_missing(name)
    place.package("apex")
    assert "not NVIDIA's" in why_missing(name)
    place.package("apex.normalization")
    assert "built without" in why_missing(name)
    place.module(extension, "")
    assert IMPLS[name].missing() is None


@pytest.mark.parametrize(
    ("name", "extension"),
    [
        ("apex-fast", "fast_layer_norm"),
        ("apex-fused", "fused_layer_norm_cuda"),
        ("flash-attn-cuda", "dropout_layer_norm"),
    ],
)
def test_an_extension_that_cannot_be_loaded_is_missing(name, extension, place):
    place.module(extension, "raise ImportError('undefined symbol: of another torch')")
    why = f"{extension} cannot be imported: ImportError: undefined symbol: of another torch; build it again"
    assert why in why_missing(name)


def test_a_cute_dsl_without_a_compiler_for_this_cuda_is_missing_with_the_reason(place):
    for library in ("quack", "liger_kernel"):
        place.package(library)
    for name in ("quack", "quack-tuned", "liger-cutedsl"):
        assert "not installed: cutlass; pip install" in why_missing(name)
    assert IMPLS["liger-triton"].missing() is None
    place.package("cutlass", "raise RuntimeError('No CTK flavor installed')")
    for name in ("quack", "quack-compiled", "liger-cutedsl"):
        assert "RuntimeError: No CTK flavor installed" in why_missing(name)


def test_a_torch_whose_quack_does_not_sum_by_itself_is_missing(place):
    assert "not installed: cutlass" in why_missing("quack-fused-sum")
    place.package("cutlass.cute")
    assert "878c34fc" in why_missing("quack-fused-sum")


def test_helion_without_its_examples_says_where_they_are(place):
    assert "not installed: helion" in why_missing("helion")
    place.package("helion")
    assert "its norms are in examples/" in why_missing("helion")


def test_a_cudnn_that_cannot_be_used_says_so(place, monkeypatch):
    assert "not installed: cudnn" in why_missing("cudnn")
    place.package("cudnn", "def backend_version(): raise RuntimeError('no libcudnn')")
    assert "cannot load cuDNN: no libcudnn" in why_missing("cudnn")
    monkeypatch.delitem(sys.modules, "cudnn")
    monkeypatch.setitem(sys.modules, "cudnn", module("cudnn", backend_version=lambda: 91000, __path__=[]))
    assert ">= 1.32" in why_missing("cudnn")


def test_libcudnn_is_loaded_from_torchs_package(place, tmp_path, monkeypatch):
    place.package("cudnn")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcudnn.so.9").write_text("not a library")
    monkeypatch.setattr(cudnn, "_cudnn_folders", lambda: [str(tmp_path)])
    assert "libcudnn.so.9" in (cudnn.missing() or "")  # ctypes was given its full path, and said so


COMPILATION = """
class CallingConvention:
    cutile_python_v1 = staticmethod(lambda: "convention")

def KernelSignature(parameters, calling_convention):
    return (parameters, calling_convention)

def export_kernel(kernel, signatures, output_file, *, gpu_code, output_format):
    assert (kernel(), signatures, output_format) == (None, [([], "convention")], "cubin")
    if gpu_code != "sm_90":
        raise RuntimeError(f"Return code 5\\nfailed for {gpu_code}")
    output_file.write(b"cubin")
"""


@pytest.mark.parametrize(
    ("capability", "why"), [((9, 0), None), ((7, 5), "RuntimeError: Return code 5 failed for sm_75")]
)
def test_a_cutile_that_cannot_compile_for_this_gpu_is_missing_with_the_reason(capability, why, place, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "cuda"]:
        monkeypatch.delitem(sys.modules, name)  # torch's own bindings
    for name in ("tilegym", "tilegym.ops", "tilegym.ops.cutile", "cuda", "cuda.tile"):
        place.package(name, "def kernel(function): return function")
    place.module("tilegym.ops.cutile.rms_norm", "")
    place.module("cuda.tile.compilation", COMPILATION)
    assert IMPLS["tilegym"].missing() is None  # without a GPU there is nothing to compile for
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    if why is None:
        assert IMPLS["tilegym"].missing() is None
    else:
        assert why in why_missing("tilegym")
        assert IMPLS["tilegym"].module.install in why_missing("tilegym")


# NVIDIA's Transformer Engine and AMD's bear one name


def test_a_transformer_engine_that_is_not_nvidias_is_recognised(place):
    place.package("transformer_engine")
    place.package("transformer_engine.pytorch")
    why = why_missing("transformer-engine")
    assert "lacks NVIDIA's part for PyTorch (transformer_engine.pytorch.constants)" in why
    assert IMPLS["transformer-engine"].module.install in why


EXTENSION = """
import transformer_engine
assert transformer_engine.loaded, "undefined symbol"

def rmsnorm_fwd(x, *rest):
    raise RuntimeError("the extension was imported")
"""


def test_the_extension_of_transformer_engine_finds_the_libraries_that_it_needs(place):
    """A worker that takes the place of another has not imported the package."""
    place.package("transformer_engine", "loaded = False")
    place.package("transformer_engine.pytorch", "import transformer_engine\ntransformer_engine.loaded = True")
    place.module("transformer_engine.pytorch.constants", "import torch\nTE_DType = {torch.float32: 0}")
    place.module("transformer_engine_torch", EXTENSION)
    inputs = make_inputs(NormCase("rms", 2, 8, dtype="fp32", weight_dtype="fp32", device="cpu"), 0)
    with pytest.raises(RuntimeError, match="the extension was imported"):
        IMPLS["transformer-engine"].prepare(inputs)


def test_an_extension_that_transformer_engine_alone_can_load_is_there(place):
    """From PyPI it lies in transformer_engine/wheel_lib, where no import finds it."""
    place.package("transformer_engine.wheel_lib")
    place.module("transformer_engine.wheel_lib.transformer_engine_torch", "")
    loads = "import sys\nimport transformer_engine.wheel_lib.transformer_engine_torch as extension"
    loads += "\nsys.modules['transformer_engine_torch'] = extension"
    place.package("transformer_engine.pytorch", loads)
    place.module("transformer_engine.pytorch.constants", "")
    assert why_missing("transformer-engine") == ""


NORMS_COMMON = """
import transformer_engine_torch as tex
from transformer_engine.pytorch.tensor.float8_tensor import Float8Quantizer
from ..quantized_tensor import Quantizer
from .common import get_fp8_max
from .rmsnorm import kernel
from .utils import programs

def te_rmsnorm_bwd_triton(dz, otype: tex.DType = None):
    assert not isinstance(dz, Float8Quantizer)
    return kernel, programs()
"""


@pytest.mark.parametrize("where", ["", "TransformerEngine."], ids=["installed", "a clone beside NVIDIA's"])
def test_the_triton_norms_of_transformer_engine_need_nothing_that_is_built(where, place, monkeypatch):
    name = "transformer-engine-rocm"
    assert "not installed: TransformerEngine; git clone" in why_missing(name)
    place.package("transformer_engine", "raise OSError('libtransformer_engine.so')")
    assert "it is not AMD's" in why_missing(name)
    kernels = f"{where}transformer_engine.pytorch.triton_kernels"
    (place.folder / kernels.replace(".", "/")).mkdir(parents=True)
    place.module(f"{kernels}.norms_common", NORMS_COMMON)
    place.module(f"{kernels}.rmsnorm", "kernel = 'theirs'")
    programs = "from transformer_engine.pytorch.utils import get_sm_count\ndef programs(): return get_sm_count()"
    place.module(f"{kernels}.utils", programs)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setitem(sys.modules, "transformer_engine_torch", built := ModuleType("transformer_engine_torch"))
    transformer_engine_rocm._operators.cache_clear()
    assert IMPLS[name].missing() is None
    assert transformer_engine_rocm._operators().te_rmsnorm_bwd_triton(None) == ("theirs", 132)
    assert [name for name in sys.modules if name.startswith("transformer_engine")] == ["transformer_engine_torch"]
    assert sys.modules["transformer_engine_torch"] is built
    assert bool(versions_for(IMPLS[name]).get("TransformerEngine")) == bool(where), "a clone is known by its commit"
    transformer_engine_rocm._operators.cache_clear()
