"""Implementations that run with another configuration than their default: candidates of `tune`, and tuned ones.

`NAME#07` runs the seventh configuration that an adapter offers besides its default; `NAME@tuned` runs the fastest one
that a tuned file has for the case.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.cases import NormCase
from harness.cases.adapter import Configured, Implementation
from harness.cases.tuned import TunedCase, read_tuned
from harness.errors import UnsupportedError, UsageError
from harness.records.reasons import Reason
from harness.worker.messages import Offer

TUNED = "tuned"


def candidate_name(name: str, number: int) -> str:
    """The name under which the configuration of this number is measured; 0 is the default."""
    return f"{name}#{number:02d}" if number else name


def is_candidate(name: str, impl: str) -> bool:
    """Whether a name is that of a candidate configuration of the implementation `impl`."""
    return name.startswith(f"{impl}#")


def configuration_note(configured: Configured) -> Reason:
    """The note on a row that names its configuration, and the file that it was read from."""
    of_file = {"file": configured.file, "tried": configured.tried} if configured.file else {}
    if configured.name is None:
        return Reason("default_configuration", of_file)
    fields = {"name": configured.name} | of_file
    return Reason("configuration_of_file" if configured.file else "configuration", fields)


def candidates(implementation: Implementation, count: int) -> list[Implementation]:
    """The first `count` configurations besides the default, each as an implementation of its own."""
    return [
        implementation.with_configs(candidate_name(implementation.name, number), partial(_nth, implementation, number))
        for number in range(1, count + 1)
    ]


def offer(implementation: Implementation, case: NormCase) -> Offer:
    """The configurations that an implementation offers for a case, or why it cannot run or time the case."""
    try:
        if refusal := implementation.unsupported(case) or implementation.untimed(case):
            return Offer(refusal=refusal)
        configs = dict(implementation.configs(case))
        if json.loads(json.dumps(configs)) != configs:
            return Offer(fault="configs(case) offers what JSON cannot hold: use dicts, lists, texts and numbers")
        return Offer(configs)
    except UnsupportedError as error:
        return Offer(fault=str(error))
    except Exception as error:  # an adapter may raise anything
        return Offer(fault=f"configs(case) fails: {type(error).__name__}: {error}")


def tuned(available: Iterable[Implementation], path: Path) -> list[Implementation]:
    """The implementations of a tuned file, each with its fastest configuration of each case.

    Raises UsageError for a file that cannot be read, and for an implementation that is not known.
    """
    try:
        file = read_tuned(str(path))
    except ValueError as error:
        raise UsageError(f"--tuned {error}") from error
    by_name = {item.name: item for item in available}
    implementations: list[Implementation] = []
    for name in dict.fromkeys(case.impl for case in file.cases):
        if name not in by_name:
            raise UsageError(f"--tuned {path} has configurations of {name!r}, which is not here; give it with --impl")
        cases = {replace(case.case, inputs="normal"): case for case in file.measured(name)}
        implementation = by_name[name].with_configs(f"{name}@{TUNED}", partial(_from_file, cases, path))
        implementations.append(replace(implementation, source=str(path)))
    return implementations


def _nth(implementation: Implementation, number: int, case: NormCase) -> Configured:
    offered = list(implementation.configs(case).items())
    if number >= len(offered):
        raise UnsupportedError(f"{implementation.name} has no configuration {number} of this case")
    name, config = offered[number]
    return Configured(name, config)


def _from_file(cases: Mapping[NormCase, TunedCase], path: Path, case: NormCase) -> Configured:
    """The configuration that was fastest for this case; the kind of inputs plays no part."""
    tuned_case = cases.get(replace(case, inputs="normal"))
    if tuned_case is None:
        raise UnsupportedError(f"{path} has no such case; `normbwd tune` adds it")
    if tuned_case.config_name is None:
        return Configured(None, file=str(path), tried=tuned_case.tried)
    return Configured(tuned_case.config_name, tuned_case.config, str(path), tuned_case.tried)
