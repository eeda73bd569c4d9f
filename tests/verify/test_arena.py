import pytest
import torch

from harness.cases.guards import GUARD
from harness.verify.arena import outside
from tests.wording import worded

REQUESTS = [(0, 100), (512, 1000), (2048, 8)]


def memory(*written):
    """4 KiB that were filled, and then written to in these places."""
    filled = torch.full((4096,), GUARD, dtype=torch.uint8)
    for offset, length in REQUESTS:
        filled[offset : offset + length] = 7
    for place in written:
        filled[place] = 1
    return filled


def test_what_was_asked_for_may_be_written():
    assert outside(memory(), REQUESTS) is None


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ((100, 101), "2 bytes outside of its own buffers, the first 0 bytes behind the end of one"),
        ((1515,), "1 bytes outside of its own buffers, the first 3 bytes behind the end of one"),
        ((511,), "1 bytes outside of its own buffers, the first 1 bytes before one"),
        ((2047, 4095), "2 bytes outside of its own buffers, the first 1 bytes before one"),
        ((3000,), "1 bytes outside of its own buffers, the first 944 bytes behind the end of one"),
    ],
)
def test_one_byte_outside_a_buffer_is_placed(places, said):
    assert worded(outside(memory(*places), REQUESTS)) == f"the backward wrote {said}"


def test_nothing_asked_for_and_something_written():
    filled = torch.full((64,), GUARD, dtype=torch.uint8)
    filled[3] = 0
    assert worded(outside(filled, [])) == "the backward wrote 1 bytes outside of its own buffers, far from any"
