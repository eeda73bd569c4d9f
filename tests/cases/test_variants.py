"""What is around a norm: names, keys, tensors, bytes, and where the heads of a projection lie."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from pydantic import TypeAdapter

from harness.cases import NormCase, make_inputs
from harness.cases.catalogue import NEAR_ONE, catalogue
from harness.cases.guards import GUARD, whole_buffer
from harness.cases.tensors import tensors_of
from harness.cases.traffic import moved_bytes, same_traffic_add
from harness.cases.variants import FEATURES, parse_variants, with_features, without
from harness.errors import UsageError
from harness.records.schema import RowRecord

RMS = NormCase("rms", 24, 8, device="cpu")
LAYER = NormCase("layer", 24, 8, bias=True, device="cpu")


def of(text, case=RMS):
    (features,) = parse_variants(text)
    return with_features(case, features)


def test_variants_are_read_one_by_one_or_together():
    assert parse_variants("plain, Residual,parallel+residual,residual+plain") == [
        (),
        ("residual",),
        ("parallel", "residual"),
    ]
    assert parse_variants("gated+residual+gated,residual+gated") == [("gated", "residual")]
    assert parse_variants("dropout,parallel-tied") == [("dropout", "residual"), ("parallel-tied", "residual")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("residuals", r"^--variant residuals: no variant is called so; did you mean residual\?$"),
        ("", r"^--variant \(empty\): no variant is called so; choose among plain, residual, "),
        ("gated+xyz", "^--variant xyz: "),
        ("gated+gated-norm-first", "^--variant gated.gated-norm-first: gated and gated-norm-first exclude each other$"),
        ("parallel+parallel-tied", "parallel and parallel-tied exclude each other$"),
    ],
)
def test_variants_that_nobody_knows(text, said):
    with pytest.raises(UsageError, match=said):
        of(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("plain", "rms-24x8-bf16"),
        ("residual", "rms-24x8-bf16-residual"),
        ("dropout", "rms-24x8-bf16-dropout0.1-residual"),
        ("parallel", "rms-24x8-bf16-parallel"),
        ("qk", "rms-24x8-bf16-qk24of288"),
        ("gated-norm-first", "rms-24x8-bf16-gated-norm-first"),
    ],
)
def test_a_key_says_what_is_around_the_norm(text, key):
    case = of(text)
    assert case.key == key
    assert without(case, FEATURES) == RMS
    row = RowRecord(case=case, impl="a", status="ok")
    assert TypeAdapter(RowRecord).validate_json(row.model_dump_json(exclude_none=True)) == row


# Activations read and written, as their formulas ask for; a mask is read as well, a byte an element.
TRAFFIC = {
    "plain": (2, 0, 1),
    "residual": (3, 0, 1),
    "dropout": (3, 1, 2),
    "parallel": (3, 0, 1),
    "parallel+residual": (4, 0, 1),
    "parallel-tied": (3, 0, 1),
    "parallel-tied+dropout": (3, 2, 3),
    "qk": (2, 0, 1),
    "gated": (3, 0, 2),
    "gated-norm-first": (3, 0, 2),
    "frozen": (2, 0, 1),
}


@pytest.mark.parametrize("text", TRAFFIC)
def test_the_bytes_of_a_variant(text):
    read, masks, written = TRAFFIC[text]
    case = of(text)
    vectors = sum(t.size_bytes(case) for t in tensors_of(case) if t.extent != "activation")
    assert moved_bytes(case) - vectors == (2 * (read + written) + masks) * 24 * 8
    activations = Counter(t.kind for t in tensors_of(case) if t.extent == "activation")
    assert activations == {"input": read + masks, "gradient": written}


@pytest.mark.parametrize("text", TRAFFIC)
def test_the_same_traffic_kernel_reads_and_writes_all_of_them(text, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    inputs = make_inputs(of(text), 1)
    outputs = same_traffic_add(inputs)()
    outputs = outputs if isinstance(outputs, list) else [outputs]
    assert [output.shape for output in outputs] == [inputs.x.shape] * TRAFFIC[text][2]
    assert all(output.is_contiguous() for output in outputs)


def test_a_plain_case_draws_what_it_always_drew():
    inputs = make_inputs(LAYER, 1)
    assert inputs.x[0, :3].tolist() == [-1.0625, -0.46484375, 1.8828125]
    assert inputs.bias[:3].tolist() == [-0.0390625, 0.03564453125, 0.09228515625]


@pytest.mark.parametrize("p", [0.1, NEAR_ONE])
def test_a_mask_keeps_what_is_not_dropped(p):
    inputs = make_inputs(replace(of("parallel-tied+dropout"), rows=4096, dropout_p=p), 1)
    for mask in (inputs.mask, inputs.mask1):
        assert mask.dtype == torch.uint8
        assert set(mask.unique().tolist()) <= {0, 1}
        assert abs(float(mask.float().mean()) - (1 - p)) < 0.01
    assert not torch.equal(inputs.mask, inputs.mask1)


@pytest.mark.parametrize("kind", ["normal", "misaligned"])
def test_heads_lie_in_a_projection(kind):
    inputs = make_inputs(replace(of("qk"), inputs=kind), 1)
    assert (inputs.x.shape, inputs.x.stride()) == ((1, 24, 8), (288, 8, 1))
    wide = make_inputs(replace(RMS, features=("qk",), heads=3, projection=40), 1)
    assert (wide.x.shape, wide.x.stride()) == ((8, 3, 8), (40, 8, 1))
    assert wide.dy.stride() == (24, 8, 1)
    assert wide.rstd.shape == (24,)
    between = whole_buffer(wide.x).view(torch.uint8)[-512 - 16 : -512]  # the last token's third head
    assert (between != GUARD).any()


def test_a_p_near_1_is_tried_at_the_first_shape():
    first = replace(of("dropout"), rows=32, cols=128)
    cases = catalogue([first, replace(first, rows=64)], ["normal"])
    assert [(case.rows, case.dropout_p) for case in cases] == [(32, 0.1), (64, 0.1), (32, NEAR_ONE)]
