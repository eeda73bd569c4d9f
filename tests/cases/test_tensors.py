"""The table of tensors: what each case has, and how a report calls its gradients."""

from dataclasses import replace

import pytest

from harness.cases import NormCase
from harness.cases import tensors as table

LAYER = NormCase("layer", 8, 32, dtype="bf16", weight_dtype="fp32", bias=True, device="cpu")
RMS = NormCase("rms", 8, 32, device="cpu")
BARE = replace(RMS, weight=False)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (LAYER, ["x", "dy", "weight", "bias", "mean", "rstd", "dx", "dweight", "dbias"]),
        (RMS, ["x", "dy", "weight", "rstd", "dx", "dweight"]),
        (BARE, ["x", "dy", "rstd", "dx"]),
    ],
    ids=["layer", "rms", "no weight"],
)
def test_which_tensors_a_case_has(case, expected):
    assert [tensor.name for tensor in table.tensors_of(case)] == expected


def test_shapes_and_dtypes_follow_the_case():
    facts = {tensor.name: (tensor.shape(LAYER), tensor.dtype_in(LAYER)) for tensor in table.tensors_of(LAYER)}
    assert facts["x"] == facts["dx"] == ((8, 32), "bf16")
    assert facts["weight"] == facts["dbias"] == ((32,), "fp32")
    assert facts["mean"] == ((8,), "fp32")


def test_headings_follow_the_table_and_keep_unknown_names():
    assert table.headings(("dbias", "dother", "dx")) == {"dx": "dx", "dbias": "db", "dother": "dother"}
