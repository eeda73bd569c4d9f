"""Addresses of clusters that are none; no Ray is started."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.errors import UnavailableError, UsageError
from harness.fleet import cluster
from harness.fleet.cluster import connected, keep_token_private


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


def test_nobody_else_reads_the_token_of_a_local_cluster(tmp_path):
    file = tmp_path / ".ray" / "auth_token"
    before = os.umask(0)
    try:
        keep_token_private(file)
        token = file.read_text()
        assert (len(token), file.stat().st_mode & 0o777) == (64, 0o600)
        file.chmod(0o644)  # as Ray makes it
        keep_token_private(file)
    finally:
        os.umask(before)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (token, 0o600)


def test_a_token_that_cannot_be_kept_is_one_line(tmp_path):
    (tmp_path / "home").touch()
    with pytest.raises(UnavailableError, match=r"--fleet local: cannot keep .*auth_token from others"):
        keep_token_private(tmp_path / "home" / ".ray" / "auth_token")


def test_a_local_cluster_listens_on_this_host_alone(tmp_path, monkeypatch):
    """And has its token before Ray would make one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delenv(cluster.BEYOND_THIS_HOST, raising=False)

    def init(*_, **options):
        assert os.environ[cluster.BEYOND_THIS_HOST] == "0"
        assert (tmp_path / cluster.TOKEN_FILE).stat().st_mode & 0o777 == 0o600

    monkeypatch.setattr(cluster, "_ray", lambda: SimpleNamespace(init=init, shutdown=lambda: None, exceptions=None))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(AttributeError), connected("local"):
        raise AttributeError
