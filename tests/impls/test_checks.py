"""Two launches that wait by the same words are found, in Triton's interpreter; kernels say what they waited for."""

import dataclasses
import json
import re
import runpy
import sys

import pytest
import torch
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import interpreter_builder

from harness.cases import make_inputs
from impls.inhouse import checks, workspace
from impls.inhouse.launch import KernelCall
from impls.inhouse.regimes.shared import Shared
from tests.impls.gpuless import in_child, instead_of_launches
from tests.impls.inhouse_cases import cpu_case, gradients, gradients_with_extras


def test_a_launch_within_another_is_found(monkeypatch):
    options = dataclasses.replace(interpreter_builder.options, debug=True)  # as the launch says on a GPU
    monkeypatch.setattr(interpreter_builder, "options", options)
    word = torch.zeros(1, dtype=torch.int64)
    monkeypatch.setattr(checks, "mark", lambda device: word)
    seen = []
    kernel = KernelCall({(1,): lambda **options: seen.append(word.item())}, (1,))
    take, own, free = checks.between_marks([kernel], word.device)
    for _ in range(2):
        for each in (take, own, free):
            each.start()
    assert seen == [1, 1]
    take.start()
    with pytest.raises((AssertionError, InterpreterError), match="two launches at once"):
        take.start()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # it is made a second time, apart
@pytest.mark.parametrize(
    ("given", "polls", "beside"), [("", 1 << 24, 0), ("1", 1 << 24, 1 << 24), ("0", 0, 0), ("50", 50, 50)]
)
def test_waits_have_a_limit_unless_told_not_to(monkeypatch, given, polls, beside):
    monkeypatch.setenv("NORMBWD_CHECKS", given)
    found = runpy.run_module(checks.__name__)
    assert (found["MOST_POLLS"], found["MOST_POLLS_BESIDE"]) == (polls, beside)


@pytest.mark.parametrize(("features", "polls"), [((), "16777216;"), (("residual",), None), (("parallel",), None)])
def test_shared_rows_with_more_to_read_have_no_limit(monkeypatch, features, polls):
    started, launch = [], Shared(1, 2, 1, 1, 1, cols=128)
    monkeypatch.setattr(workspace, "workspace", lambda device, words: torch.zeros(words, dtype=torch.int64))
    monkeypatch.setattr(KernelCall, "start", lambda call: started.append(call.options["RECEIVE"]))
    gradients_with_extras(make_inputs(cpu_case("rms", 2, 256, features=features), seed=0), launch=launch)
    assert re.findall(r"late, polls, (\S+)", started[0]) == [polls] * (polls is not None)


def messages(name):
    """What the compiled kernel of a case says where it gives up."""
    from impls.inhouse import backward
    from tests.impls.test_compiled import CASES

    case, launch = CASES[name]
    texts = []

    class Compiled:
        def __init__(self, _name, kernel):
            self.kernel = kernel

        def __getitem__(self, grid):
            def compiled(*args, **options):
                ptx = self.kernel.warmup(*args, grid=grid, **options).asm["ptx"]
                texts.extend(re.findall(r"assertMessage_\d+\[\d+\] = \{([\d, ]+)\}", ptx))

            return compiled

    memory = torch.zeros(1 << 14, dtype=torch.int64)
    with instead_of_launches(("cuda", 90, 32), Compiled, memory), pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "mark", lambda device: memory[-1:])
        calls = type(launch).calls
        patch.setattr(type(launch), "calls", lambda *a: checks.between_marks(calls(*a), memory.device)[1:-1])
        patch.setattr(backward, "output", lambda like, shape: like.new_empty(shape))
        gradients(make_inputs(case, seed=0), launch=launch)
    return sorted({bytes(map(int, text.split(","))).decode().rstrip("\0") for text in texts})


@pytest.mark.slow
def test_kernels_say_what_they_waited_for(monkeypatch):
    monkeypatch.setenv("NORMBWD_CHECKS", "1")
    flat, shared = in_child(__name__, "messages", ["flat"], ["shared"])
    assert len(flat) == 1
    assert len(shared) == 2
    assert all(text.startswith("normbwd: ") for text in flat + shared)
    assert in_child(__name__, "messages", ["few rows"]) == [[]]


if __name__ == "__main__":
    function, *calls = json.loads(sys.argv[1])
    print(json.dumps([globals()[function](*call) for call in calls]))
