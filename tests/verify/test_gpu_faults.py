"""The faults that only a GPU can have: caught by name, and their honest twins pass."""

import re

import pytest
import torch

from harness.records.settings import Settings
from tests.mutants.gpu_faults import GPU_FAULTS
from tests.mutants.maths import tried
from tests.wording import worded

pytestmark = pytest.mark.gpu
SETTINGS = Settings(timed=False, seeds=2, repeats=120, cells=1000)


@pytest.fixture(autouse=True)
def memory_is_given_back():
    yield
    torch.cuda.empty_cache()


@pytest.mark.parametrize("name", GPU_FAULTS)
def test_a_planted_fault_is_caught_by_name(name):
    fault = GPU_FAULTS[name]
    row = tried(fault, True, SETTINGS)
    assert row.status in fault.status.split("|"), worded(row.reason)
    assert re.search(fault.reason, worded(row.reason))


@pytest.mark.parametrize("name", GPU_FAULTS)
def test_its_honest_twin_passes(name):
    row = tried(GPU_FAULTS[name], False, SETTINGS)
    assert (row.status, worded(row.reason)) == ("ok", None)
