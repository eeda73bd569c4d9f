import threading

import pytest
import torch

from harness.verify.surroundings import SETTINGS, Surroundings

OTHER = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "float32 matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "gradient mode": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "cuDNN benchmark mode": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cuDNN deterministic mode": lambda: setattr(torch.backends.cudnn, "deterministic", True),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_changes_is_named_and_put_back(name):
    around = Surroundings.look()
    assert around.changed() == []
    OTHER[name]()
    assert around.changed() == [name]
    around.restore()
    assert around.changed() == []


def test_a_thread_that_stays_is_named():
    around = Surroundings.look()
    end = threading.Event()
    stays = threading.Thread(target=end.wait, name="stays")
    ended = threading.Thread(target=lambda: None)
    for thread in (stays, ended):
        thread.start()
    ended.join()
    assert around.new_threads() == ["stays"]
    end.set()
    stays.join()
    assert around.new_threads() == []
