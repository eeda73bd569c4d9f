"""The environment and the settings that a worker gives to the libraries."""

import os
import signal

import pytest
import torch._inductor.config as inductor_config
from torch._inductor.runtime.autotune_cache import AutotuneCache, inductor_meta_from_config

from harness.errors import UsageError
from harness.worker.messages import Start
from harness.worker.serve import ENVIRONMENT, KERNEL_CHOICES, find_implementations, keep_no_tuning, set_environment
from tests.repositories import HONEST


def test_libraries_get_their_defaults(monkeypatch):
    others = ["LIGER_KERNEL_IMPL", "LIGER_KERNEL_BACKEND_RMS_NORM", "NVTE_NORM_BWD_USE_CUDNN", *KERNEL_CHOICES]
    monkeypatch.setattr(os, "environ", dict.fromkeys([*others, *ENVIRONMENT, "HOME"], "mine"))
    set_environment()
    assert os.environ == ENVIRONMENT | {"HOME": "mine"}


def test_inductor_keeps_no_winner_of_its_tuning(tmp_path):
    """It is told so where it writes a kernel, and then has no place to keep or to find one in."""

    def place_of_winners():
        return AutotuneCache.create(inductor_meta_from_config(), str(tmp_path / "kernel.py"), "hash")

    with inductor_config.patch(autotune_local_cache=True):
        assert place_of_winners() is not None
        keep_no_tuning()
        assert place_of_winners() is None


def test_a_file_whose_import_changes_what_all_share_is_refused(tmp_path):
    file, before = tmp_path / "mine.py", signal.getsignal(signal.SIGUSR1)
    file.write_text(f"{HONEST}\nimport signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n")
    try:
        with pytest.raises(UsageError, match=r"its import changed .*signal.*, which all share"):
            find_implementations(Start(impl_files=(str(file),)))
    finally:
        signal.signal(signal.SIGUSR1, before)
