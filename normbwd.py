"""The public names of normbwd; every other module of the project is private and may change.

    rms_norm, layer_norm     norms for a model, with the in-house backward
    norm_backward            that backward alone
    release_memory           frees what its kernels keep between calls
    NormCase, Inputs, Grads  what an adapter is given and returns
    bench                    `normbwd bench` from Python

A name is imported when it is first used, so `import normbwd` needs neither torch nor a GPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from harness.cases import Grads, Inputs, NormCase
    from impls.inhouse.backward import norm_backward
    from impls.inhouse.bound import release_memory
    from impls.inhouse.model import layer_norm, rms_norm

__all__ = [
    "Grads",
    "Inputs",
    "NormCase",
    "__version__",
    "bench",
    "layer_norm",
    "norm_backward",
    "release_memory",
    "rms_norm",
]
MODULES = {
    "Grads": "harness.cases",
    "Inputs": "harness.cases",
    "NormCase": "harness.cases",
    "layer_norm": "impls.inhouse.model",
    "norm_backward": "impls.inhouse.backward",
    "release_memory": "impls.inhouse.bound",
    "rms_norm": "impls.inhouse.model",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'normbwd' has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__


def bench(**options: Any) -> Path:
    """Measure as `normbwd bench` does and return the results file, which `normbwd report` reads.

    Options have the names of the command's: `bench(device="h200", shapes="8192x4096", impl=["my_kernel.py"],
    time_limit=60)`. Progress goes to standard error. Raises ValueError for an option that is unknown or wrong, and
    RuntimeError where the environment cannot do it. Call it under `if __name__ == "__main__"`: it starts processes.
    """
    from harness.errors import UnavailableError, UsageError
    from harness.run.options import BENCH, invocation_of, option_name
    from harness.run.progress import Display
    from harness.run.resolve import check
    from harness.run.session import bench as run

    fields = {option_name(field).removeprefix("--").replace("-", "_"): field for field in BENCH}
    try:
        if unknown := sorted(options.keys() - fields.keys()):
            raise UsageError(f"bench() has no option {', '.join(unknown)}; it has {', '.join(fields)}")
        values = {fields[name]: value for name, value in options.items() if value is not None}
        check(invocation := invocation_of(values, command="normbwd.bench()"))
        return run(invocation, Display())
    except UsageError as error:
        raise ValueError(str(error)) from error
    except UnavailableError as error:
        raise RuntimeError(str(error)) from error
