"""The faults that only a GPU can have: caught by name, and their honest twins pass."""

import re

import pytest
import torch

from harness.messages import Asked, Try
from harness.trial import Trial
from tests.mutants.gpu_faults import GPU_FAULTS
from tests.mutants.maths import implementation

pytestmark = pytest.mark.gpu
ASKED = Asked(device="gpu", timed=False, seeds=2, repeats=120, cells=1000)


def tried(fault, planted):
    adapter = implementation("mutant", lambda inputs: fault.plant(inputs, planted))
    rows = []
    request = Try(fault.case, ("mutant",), "group", ASKED, studied=fault.case.cols < 4096)
    Trial(request, {"mutant": adapter}, lambda impl, stage: None, rows.append).run()
    torch.cuda.empty_cache()
    (row,) = rows
    return row


@pytest.mark.parametrize("name", GPU_FAULTS)
def test_a_planted_fault_is_caught_by_name(name):
    fault = GPU_FAULTS[name]
    row = tried(fault, planted=True)
    assert row.status in fault.status.split("|"), row.reason
    assert re.search(fault.reason, row.reason)


@pytest.mark.parametrize("name", GPU_FAULTS)
def test_its_honest_twin_passes(name):
    row = tried(GPU_FAULTS[name], planted=False)
    assert (row.status, row.reason) == ("ok", None)
