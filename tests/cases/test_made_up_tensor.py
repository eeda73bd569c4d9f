"""A tensor that no module knows, declared in a test's own table: `dmore`, a second gradient of x, added to dx.

It is drawn, guarded, restored, counted, verified, timed and reported by the declaration alone.
"""

from dataclasses import replace

import pytest
import torch

from harness.analysis.comparison import compare
from harness.cases import Grads, NormCase, make_inputs, tensors
from harness.cases.tensors import CaseTensor
from harness.cases.traffic import same_traffic_add
from harness.records.file import ResultsFile, load
from harness.records.reason_texts import sentence
from harness.verify.determinism import cloned, differing, fingerprint
from harness.verify.precision import malformed
from harness.verify.robustness import overlaps
from reports.formats import markdown
from tests.mutants.maths import gradients, implementation
from tests.results_factory import run_record
from tests.worker.test_trial import Session

PLAIN = NormCase("rms", 16, 32, device="cpu")
CASE = replace(PLAIN, features=("more",))


def has_more(case):
    return "more" in case.features


DMORE = CaseTensor("dmore", "input", "activation", "case", present=has_more, added_to="dx")
DSCALE = CaseTensor("dscale", "gradient", "per column", "fp32", present=has_more, heading="ds")


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setattr(tensors, "TABLE", (*tensors.TABLE, DMORE))


@pytest.fixture
def table_with_a_gradient(monkeypatch, table):
    monkeypatch.setattr(tensors, "TABLE", (*tensors.TABLE, DSCALE))


def with_more(inputs):
    """The gradients in fp64, dmore among them, rounded once."""
    wide = gradients(inputs, wide=True)
    return replace(gradients(inputs), dx=(wide.dx.double() + inputs.dmore.double()).bfloat16())


def right(inputs):
    return lambda: with_more(inputs)


def forgetful(inputs):
    return lambda: gradients(inputs)


def overwriting(inputs):
    def backward():
        grads = with_more(inputs)
        inputs.dmore.copy_(grads.dx)
        return grads

    return backward


def overrunning(inputs):
    def backward():
        grads = with_more(inputs)
        inputs.dmore.as_strided((1,), (1,), inputs.dmore.storage_offset() + inputs.dmore.numel()).fill_(1)
        return grads

    return backward


def in_its_memory(inputs):
    def backward():
        grads = with_more(inputs)
        return replace(grads, dx=inputs.dmore)

    return backward


def row_of(prepare, **more):
    session = Session(implementation("honest", prepare, **({"handles": {"more"}} | more)), case=CASE).run()
    return session.row("honest")


def test_it_is_drawn_where_a_case_has_it():
    plain, inputs = make_inputs(PLAIN, 1), make_inputs(CASE, 1)
    assert (inputs.dmore.shape, inputs.dmore.dtype) == ((16, 32), torch.bfloat16)
    assert 0.8 < inputs.dmore.float().std() < 1.2
    assert "dmore" in inputs.tensors()
    assert "dmore" not in plain.tensors()
    with pytest.raises(AttributeError, match="no dmore; it has x, dy, weight, rstd"):
        _ = plain.dmore


def test_the_same_traffic_add_reads_it_too():
    plain, inputs = make_inputs(PLAIN, 1), make_inputs(CASE, 1)
    assert torch.equal(same_traffic_add(plain)(), plain.x + plain.dy)
    assert torch.equal(same_traffic_add(inputs)(), torch.addcmul(inputs.x, inputs.dy, inputs.dmore))


def test_a_backward_that_adds_it_is_ok_and_timed():
    row = row_of(right)
    assert (row.status, row.reason) == ("ok", None)
    assert row.verification.tensors["dx"].error_class == "exact"
    assert len(row.timing.samples_us) == 4


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (forgetful, "dx is off by rho"),
        (overwriting, "changed its input dmore"),
        (overrunning, "wrote outside of its input dmore"),
        (in_its_memory, "dx lies in the memory of the input dmore"),
    ],
)
def test_a_backward_that_mistreats_it_is_wrong(prepare, reason):
    row = row_of(prepare)
    assert row.status == "wrong"
    assert reason in sentence(row.reason)


@pytest.mark.parametrize("prepare", [right, forgetful])
def test_an_adapter_that_does_not_handle_it_is_unsupported(prepare):
    row = row_of(prepare, handles={"gate"})
    assert (row.status, sentence(row.reason)) == ("unsupported", "does not handle more")


def test_it_reaches_the_report(tmp_path):
    session = Session(
        implementation("honest", right, handles={"more"}), implementation("forgetful", forgetful), case=CASE
    ).run()
    written = ResultsFile(tmp_path / "results.jsonl")
    for record in (run_record(names=["honest", "forgetful"], baseline="honest"), *session.rows):
        written.append(record)
    written.close()
    comparison = compare(load(tmp_path / "results.jsonl"))
    entry = comparison.cases[0].entry("honest")  # ranked where nothing else keeps the processor busy
    assert entry.status == "ok"
    assert entry.median_us > 0
    report = markdown.render(comparison)
    assert f"## {CASE.key}" in report
    assert "does not handle more" in report
    assert "rho dx" in report


def test_another_gradient_is_compared_bit_by_bit(table_with_a_gradient):
    grads = Grads(torch.ones(2, 3), None, extra={"dscale": torch.ones(3)})
    copy = cloned(grads)
    assert fingerprint(copy) == fingerprint(grads)
    grads.dscale.zero_()
    assert differing(grads, copy) == ["dscale"]
    assert fingerprint(copy) != fingerprint(grads)


def test_another_gradient_must_be_returned(table_with_a_gradient):
    inputs = make_inputs(CASE, 1)
    grads = with_more(inputs)
    assert sentence(malformed(inputs, grads)) == "dscale is missing"
    assert malformed(inputs, grads.with_tensors({"dscale": torch.ones(32)})) is None
    wrong_shape = grads.with_tensors({"dscale": torch.ones(3)})
    assert sentence(malformed(inputs, wrong_shape)) == "dscale has shape (3,) instead of (32,)"
    shared = grads.with_tensors({"dscale": inputs.dmore.float()})
    assert overlaps(inputs, shared, in_place=False) is None
    in_memory = grads.with_tensors({"dscale": inputs.dmore})
    assert "dscale" in sentence(overlaps(inputs, in_memory, in_place=False))
