"""The calls of the adapters, as the stand-ins have them, in the libraries that are installed."""

from __future__ import annotations

import pytest
import torch

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
