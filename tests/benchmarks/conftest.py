"""Where the samples come from: a results file that is given, or one run of the shared engine, for all tests at once."""

import shlex
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from harness.records.file import load
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from tests.benchmarks.replay import replays

FILE = "--normbwd-results"
SHAPES = "--normbwd-shapes"
IMPLS = "--normbwd-impls"


def pytest_addoption(parser):
    group = parser.getgroup("normbwd", "norm backwards, measured by normbwd and replayed")
    group.addoption(FILE, help="a results.jsonl to replay; without it everything is measured once, before the tests")
    group.addoption(SHAPES, help="ROWSxCOLS,... to measure (default: as `normbwd bench`)")
    group.addoption(IMPLS, help="names or patterns to measure (default: all)")


@cache
def measured(file, shapes, impls):
    """The results: read, or measured as `normbwd bench` does it, interleaved and in a process of its own."""
    if file:
        return load(Path(file))
    from harness.run.progress import Display
    from harness.run.session import bench

    out = Path(mkdtemp(prefix="normbwd-")) / "run"
    said = [f"{option}={value}" for option, value in (("--shapes", shapes), ("--impls", impls)) if value]
    settings = Settings(shapes=shapes, impls=impls)
    command = shlex.join(["pytest", *said])
    return load(bench(Invocation(settings=settings, out=out, command=command), Display()))


def results_of(config):
    return measured(*(config.getoption(option, None) for option in (FILE, SHAPES, IMPLS)))


def pytest_generate_tests(metafunc):
    if "replay" in metafunc.fixturenames:
        found = replays(results_of(metafunc.config))
        metafunc.parametrize("replay", found, ids=[f"{each.case}-{each.impl}" for each in found])


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config, machine_info):
    """The device that measured, which need not be the machine that replays."""
    run = results_of(config).run
    machine_info["gpu"] = run.device.model_dump(exclude_none=True)
    machine_info["libraries"] = run.libraries
