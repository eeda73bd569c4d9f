"""The environment that a worker gives to the libraries."""

import os

from harness.worker.serve import ENVIRONMENT, OTHERS_CHOICES, set_environment


def test_libraries_have_their_defaults_whatever_the_user_chose(monkeypatch):
    monkeypatch.setattr(os, "environ", dict.fromkeys([*OTHERS_CHOICES, *ENVIRONMENT, "HOME"], "mine"))
    set_environment()
    assert os.environ == ENVIRONMENT | {"HOME": "mine"}
