"""The program that compute-sanitizer watches, on a CPU."""

from types import SimpleNamespace

import pytest

from harness.cases.guards import whole_buffer
from harness.sanitizer import target
from harness.sanitizer.target import UNSUPPORTED_EXIT, case_of, run_once
from harness.worker import serve


class Recorder:
    """An implementation that supports one width and counts its calls."""

    def __init__(self, cols):
        self.cols = cols
        self.inputs = None
        self.calls = 0

    def unsupported(self, case):
        return None if case.cols == self.cols else f"{case.cols} columns"

    def prepare(self, inputs):
        self.inputs = inputs

        def backward():
            self.calls += 1

        return backward


CASES = [case_of("layer", (5, cols), "cpu") for cols in (24, 16)]


def test_first_supported_case_is_called_twice(capsys):
    recorder = Recorder(16)
    assert run_once(recorder, CASES) == 0
    assert recorder.calls == 2
    assert recorder.inputs.case == CASES[1]
    assert capsys.readouterr().out == "24 columns\nran 5x16\n"


def test_no_input_shares_its_memory_with_a_guard():
    recorder = Recorder(24)
    run_once(recorder, CASES)
    tensors = recorder.inputs.tensors()
    assert list(tensors) == ["x", "dy", "weight", "bias", "mean", "rstd"]
    for tensor in tensors.values():
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    with pytest.raises(RuntimeError):  # a guarded buffer is whole int64s; 5 rows of statistics are not
        whole_buffer(recorder.inputs.rstd)


@pytest.fixture
def program(monkeypatch):
    """Implementations in place of those that are installed; the environment is as it was afterwards."""
    recorder = Recorder(16)
    recorder.name = "mine"
    asked = []

    environment: dict[str, str] = {}

    def discover(files):
        asked.append(list(files))
        return [recorder]

    monkeypatch.setattr("harness.worker.discovery.discover", discover)
    for module in (target, serve):
        monkeypatch.setattr(module, "os", SimpleNamespace(environ=environment))
    return SimpleNamespace(recorder=recorder, asked=asked, environment=environment)


def test_the_command_line(program):
    line = "--impl mine --norm rms --shapes 5x24,5x16 --impl-file a.py --impl-file b.py --device cpu"
    assert target.main(line.split()) == 0
    assert program.recorder.inputs.case == case_of("rms", (5, 16), "cpu")
    assert [[str(path) for path in paths] for paths in program.asked] == [["a.py", "b.py"]]
    assert program.environment["TORCH_DISABLE_NATIVE_JIT"] == program.environment["TRITON_INTERPRET"] == "1"


def test_every_tensor_has_its_own_allocation(program):
    assert target.main(["--impl", "mine", "--norm", "rms", "--shapes", "5x24"]) == UNSUPPORTED_EXIT
    assert program.environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    assert "TRITON_INTERPRET" not in program.environment
