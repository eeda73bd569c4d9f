"""The entry of the in-house kernels without a GPU: compiled for one that is not there, in a child process.

The parent has told Triton to interpret, which a process cannot take back.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

KERNELS = {
    "backward_rows": "regimes.one_pass_kernel",
    "backward_parts": "regimes.shared_kernel",
    "row_sums": "regimes.two_pass_kernel",
    "backward_columns": "regimes.two_pass_kernel",
    "backward_few": "regimes.few_rows_kernel",
    "finish": "finish",
}


ARRIVAL_WORDS = 48


def in_child(module, *arguments):
    """Run a test module as a program that takes and prints JSON."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@contextlib.contextmanager
def instead_of_launches(target, substitute, memory):
    """Compile for a target; `substitute(name, kernel)` stands in for each kernel, `memory` for a stream's workspace."""
    import triton
    from triton.backends.compiler import GPUTarget

    from impls.inhouse import workspace

    class Driver:
        """The driver of a GPU that is not there."""

        def get_current_target(self):
            return GPUTarget(*target)

        def get_current_device(self):
            return 0

        def get_current_stream(self, device):
            return 0

    triton.runtime.driver.set_active(Driver())
    with contextlib.ExitStack() as stack:
        for name, place in KERNELS.items():
            module = importlib.import_module(f"impls.inhouse.{place}")
            stack.enter_context(patch.object(module, name, substitute(name, getattr(module, name))))
        parts = lambda device, words: memory[8 : 8 + words]  # noqa: E731
        stack.enter_context(patch.object(workspace, "workspace", parts))
        stack.enter_context(patch.object(workspace, "arrival_words", lambda device: memory[-ARRIVAL_WORDS:]))
        yield
