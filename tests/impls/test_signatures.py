"""The calls of the adapters, as the stand-ins have them, in the libraries that are installed."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from harness.cases import NormCase, make_inputs
from impls.cuda_peers import cudnn
from tests.impls.peer_cases import IMPLS
from tests.impls.signatures import CLASSES, SCHEMAS, SIGNATURES, called, plain


def schema(name):
    namespace, _, operator = name.partition("::")
    _, arguments = str(getattr(getattr(torch.ops, namespace), operator).default._schema).split("(", 1)
    return f"({arguments}"


@pytest.mark.parametrize("operator", [name for name in SCHEMAS if name.startswith("aten")])
def test_torchs_operators_take_what_they_took(operator):
    assert schema(operator) == SCHEMAS[operator]


def test_a_signature_that_changed_is_seen():
    assert plain(lambda x, weight, dout, mean, rstd: None) != SIGNATURES["quack.rmsnorm:layernorm_bwd"]


@pytest.mark.gpu
@pytest.mark.parametrize("call", SIGNATURES | CLASSES)
def test_an_installed_library_takes_what_it_took(call):
    module, _, path = call.partition(":")
    installed = pytest.importorskip(module, exc_type=Exception)
    assert plain(called(path, installed)) == (SIGNATURES | CLASSES)[call]


@pytest.mark.gpu
@pytest.mark.parametrize("operator", [name for name in SCHEMAS if name.startswith("cudnn")])
def test_the_operators_of_cudnn_take_what_they_took(operator):
    if IMPLS["cudnn"].missing():
        pytest.skip("no cuDNN frontend")
    cudnn._load()
    assert schema(operator) == SCHEMAS[operator]


# What Liger's dispatcher takes on SM 9.0, where CuTe DSL can compile.
TAKEN = [("layer", 4096, "cutedsl"), ("layer", 16384, "ops.layer_norm"), ("rms", 4096, "ops.rms_norm")]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of cutlass, as it compiles
@pytest.mark.parametrize(("norm", "cols", "taken"), TAKEN)
def test_liger_takes_the_kernels_that_it_took(norm, cols, taken):
    if IMPLS["liger-cutedsl"].missing() or torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("Liger has Triton alone here")
    case = NormCase(norm, 256, cols, bias=norm == "layer")
    assert taken in IMPLS["liger"].prepare(make_inputs(case, 0)).what
    for name, kernels in (("liger-triton", f"ops.{norm}"), ("liger-cutedsl", "cutedsl")):
        narrow = dataclasses.replace(case, cols=1024)
        assert kernels in IMPLS[name].prepare(make_inputs(narrow, 0)).what
