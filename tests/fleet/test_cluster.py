"""Addresses of clusters that are none; no Ray is started."""

import pytest

from harness.errors import UnavailableError, UsageError
from harness.fleet.cluster import connected


def test_a_cluster_that_is_not_there_is_one_line():
    with (
        pytest.raises(UnavailableError, match=r"--fleet 127\.0\.0\.1:1: nobody listens there"),
        connected("127.0.0.1:1"),
    ):
        pass


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "ray://host", "host:65536", "http://host:1"])
def test_what_is_no_address_is_refused(address):
    said = f"--fleet {address}: give local, auto, or a cluster's HOST:PORT"
    with pytest.raises(UsageError, match=said), connected(address):
        pass
