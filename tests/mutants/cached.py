"""Remembers its answer by the address of dy."""

from tests.mutants.maths import gradients

name = "cached"
requires = ("torch",)


def unsupported(case):
    return None


def prepare(inputs):
    answers = {}

    def backward():
        if inputs.dy.data_ptr() not in answers:
            answers[inputs.dy.data_ptr()] = gradients(inputs)
        return answers[inputs.dy.data_ptr()]

    return backward
