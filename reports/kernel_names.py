"""Kernel names for people: what a compiler, a profiler or a code generator made long, in at most 40 characters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.grouping import grouped

LONGEST = 40
TAIL = 12  # of a name that is cut, kept from its end: generated names differ there

# Functors that only wrap another one: their names do not say what is computed.
_CARRIERS = {"binary", "unary", "aunary", "bunary", "opmath_gpu", "func_wrapper"}
_TYPES = re.compile(r"^(?:bfloat16|float16|half|float8\w*|direct|nocast)_")
_FUNCTORS = re.compile(r"CUDAFunctor_(\w+)|(\w+?)_?(?:[Ff]unctor|_kernel_cuda|_kernel_impl|Ops)\b")
_CUTLASS = re.compile(r"^kernel_cutlass_(?:kernel_)?([a-z0-9_]*)([A-Z]\w*?)_object_at_")
_CUTLASS_FUNCTION = re.compile(r"^kernel_cutlass_(?:kernel_)?(\w+?)_(?:tensorptr|tensor_ptr|tensor000)")
_NUMBERS = re.compile(r"(?:_\d+){3,}$")  # the tile sizes at the end of a generated name


def shorten(name: str) -> str:
    """The name without return type, namespaces, templates and arguments, at most 40 characters.

    What PyTorch's elementwise and reducing kernels compute stands in their template arguments, and is kept:
    `reduce_kernel sum`, `elementwise copy`. Names that are short and plain stay as they are.
    """
    name = _plain(name.strip())
    return name if len(name) <= LONGEST else f"{name[: LONGEST - TAIL - 1]}…{name[-TAIL:]}"


def display_names(names: Sequence[str]) -> list[str]:
    """The short names of the kernels of one row; different kernels that become equal are numbered."""
    short = [shorten(name) for name in names]
    same = grouped(dict.fromkeys(zip(short, names, strict=True)))
    return [
        _numbered(brief, same[brief].index(name) + 1) if len(same[brief]) > 1 else brief
        for name, brief in zip(names, short, strict=True)
    ]


def _plain(name: str) -> str:
    if name.startswith(("Memset", "Memcpy")):
        return name
    if name.startswith("_Z"):
        return _mangled(name)
    if match := _CUTLASS.match(name):
        library = "quack" if match[1].startswith("quack") else "cutlass"
        return f"{library} {match[2]}"
    if match := _CUTLASS_FUNCTION.match(name):
        return f"cutlass {match[1]}"
    if "<" in name or "(" in name or "::" in name:
        return _demangled(name)
    return _NUMBERS.sub("", name) if name.startswith("cudnn") else name


def _demangled(name: str) -> str:
    """The function of a C++ name: outside all templates, after the last namespace, before the arguments."""
    name = name.replace("(anonymous namespace)", "anonymous")
    outside, inside, depth = "", "", 0
    for mark in name:
        if depth == 0 and mark == "(":
            break
        depth -= mark == ">"
        if depth:
            inside += mark
        elif mark not in "<>":
            outside += mark
        depth += mark == "<"
    function = outside.split("::")[-1].split(" ")[-1]
    if "elementwise_kernel" in function:
        return f"elementwise {_operation(inside)}".rstrip()
    return f"{function} {_operation(inside)}".rstrip() if function.startswith("reduce_kernel") else function


def _operation(templates: str) -> str:
    """What a functor computes: `sum` of sum_functor, `fill` of FillFunctor, `copy` of bfloat16_copy_kernel_cuda."""
    functors = ((cuda or other).strip("_") for cuda, other in _FUNCTORS.findall(templates))
    words = [_TYPES.sub("", word).lower() for word in functors]
    return next((word for word in words if word and word not in _CARRIERS), "")


def _mangled(name: str) -> str:
    """The last identifier of an Itanium-mangled name, before its template arguments."""
    rest = re.sub(r"^_Z(?:N[rVK]*)?", "", name)
    function = name
    while match := re.match(r"(?:St|L)?(\d+)", rest):
        end = match.end() + int(match[1])
        function, rest = rest[match.end() : end], rest[end:]
        if not name.startswith("_ZN"):
            break
    return function


def _numbered(brief: str, ordinal: int) -> str:
    mark = f" ({ordinal})"
    return (brief if len(brief) + len(mark) <= LONGEST else brief[: LONGEST - len(mark) - 1] + "…") + mark
