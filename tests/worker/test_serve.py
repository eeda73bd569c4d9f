"""The environment and the settings that a worker gives to the libraries."""

import os
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.runtime.autotune_cache import AutotuneCache, inductor_meta_from_config

from harness.cases import NormCase
from harness.cases.adapter import Implementation
from harness.errors import UsageError
from harness.worker.messages import Began, Done, Load, Start
from harness.worker.serve import (
    ENVIRONMENT,
    KERNEL_CHOICES,
    answer,
    find_implementations,
    keep_no_tuning,
    set_environment,
)
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


ASKED = """
import os, sys, torch
from harness.worker import asking, serve
from harness.worker.messages import Start
implementations, worker = serve.find_implementations(Start(device="cpu")), os.getpid()
alone = asking.ask(implementations, "cuda", print, (), 0)
assert asking.ask(implementations, "cuda", lambda file: None, (), 2) == alone
torch.cuda._is_in_bad_fork = lambda: False  # without NVML a CUDA build of torch asks CUDA itself
implementations["quack"].module.missing = lambda: str(os.getpid() == worker)
print(asking.ask(implementations, "cuda", lambda file: None, (), 2)["quack"][0].missing.fields)
fine, torch.cuda._is_in_bad_fork = torch.cuda._is_in_bad_fork, lambda: os.getpid() != worker
print(asking.ask(implementations, "cuda", lambda file: None, (), 2)["quack"][0].missing.fields)
torch.cuda._is_in_bad_fork = fine
implementations["quack"].module.missing = lambda: "here" if os.getpid() == worker else os._exit(1)
print(asking.ask(implementations, "cuda", lambda file: None, (), 2)["quack"][0].missing.fields)
"""


def test_forks_ask_what_the_worker_would_and_the_worker_where_one_dies():
    printed = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-3:] == ["{'text': 'False'}", "{'text': 'True'}", "{'text': 'here'}"]


def test_a_file_whose_import_changes_what_all_share_is_refused(tmp_path):
    file, before = tmp_path / "mine.py", signal.getsignal(signal.SIGUSR1)
    file.write_text(f"{HONEST}\nimport signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n")
    try:
        with pytest.raises(UsageError, match=r"its import changed .*signal.*, which all share"):
            find_implementations(Start(impl_files=(str(file),)))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_a_case_needs_is_imported_while_others_compile_and_changes_nothing(tmp_path, monkeypatch):
    """One that refuses the case is not imported; what cannot be is left to the trial."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("OF_LIBRARY", raising=False)
    for name in ("library_taken", "library_refused"):
        (tmp_path / f"{name}.py").write_text(
            "import os, torch\ntorch.set_grad_enabled(False)\nos.environ['OF_LIBRARY'] = '1'\n"
        )

    def importing(*modules, refusal=None):
        module = SimpleNamespace(imports=modules)
        ahead = partial(Implementation.import_ahead, SimpleNamespace(module=module))
        return SimpleNamespace(import_ahead=ahead, missing=lambda: None, unsupported=lambda case: refusal)

    implementations = {
        "absent": importing("library_absent"),
        "refused": importing("library_refused", refusal="not here"),
        "taken": importing("library_taken"),
    }
    sent = []
    with inductor_config.patch(autotune_local_cache=True):
        request = Load(NormCase("rms", 4, 8), tuple(implementations))
        answer(request, implementations, SimpleNamespace(send=sent.append))
    assert sent == [*(Began(name, "asking") for name in implementations), Done()]
    assert "library_taken" in sys.modules
    assert "library_refused" not in sys.modules
    assert (torch.is_grad_enabled(), os.environ.pop("OF_LIBRARY")) == (True, "1")
