"""Two launches that wait by the same words are found, in Triton's interpreter."""

import dataclasses

import pytest
import torch
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import interpreter_builder

from impls.inhouse import checks
from impls.inhouse.launch import KernelCall


def test_a_launch_within_another_is_found(monkeypatch):
    options = dataclasses.replace(interpreter_builder.options, debug=True)  # as the launch says on a GPU
    monkeypatch.setattr(interpreter_builder, "options", options)
    word = torch.zeros(1, dtype=torch.int64)
    monkeypatch.setattr(checks, "mark", lambda device: word)
    seen = []
    kernel = KernelCall({(1,): lambda: seen.append(word.item())}, (1,))
    take, own, free = checks.between_marks([kernel], word.device)
    for _ in range(2):
        for each in (take, own, free):
            each.start()
    assert seen == [1, 1]
    take.start()
    with pytest.raises((AssertionError, InterpreterError), match="two launches at once"):
        take.start()
