"""The command that measures one case of a published run again, made from the contents of the file.

It names every implementation, because `all`, or no --impls, may select others in another version.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from harness.analysis.currency import is_own
from harness.cases import NormCase
from harness.cases.unfused import WITH_TORCH
from harness.defaults import BASELINE
from harness.errors import UsageError
from harness.records.cases_asked import DEFAULT_DTYPE, cases_on
from harness.records.contexts import ALL_REDUCE
from harness.records.run_records import RunRecord
from harness.records.settings import Settings

RUN_SETTINGS = ("seed", "flush", "holder", "quick", "processes", "twice", "cross_check")


def measure_again(case: NormCase, run: RunRecord) -> str | None:
    """The command; None where no command gives exactly this case, or where `bench` did not measure it."""
    if ALL_REDUCE in run.settings.context or not all(is_own(impl.source) for impl in run.implementations):
        return None
    settings = Settings.model_validate(_without_defaults(_case_settings(case) | _run_settings(run)))
    try:
        if cases_on("cuda", settings) != [replace(case, device="cuda")]:
            return None
    except UsageError:
        return None
    return shlex.join(["normbwd", "bench", *settings.as_options()])


def _without_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that have to be typed, as they differ from the default."""
    return {name: value for name, value in values.items() if value != Settings.model_fields[name].default}


def _case_settings(case: NormCase) -> dict[str, Any]:
    return {
        "shapes": f"{case.rows}x{case.cols}",
        "norm": case.norm,
        "variant": "+".join(case.features) or None,
        "dtype": None if case.dtype == DEFAULT_DTYPE["cuda"] else case.dtype,
        "weight_dtype": case.weight_dtype if case.weight and case.weight_dtype != case.dtype else None,
        "bias": case.bias or case.norm == "rms" or not case.weight,
        "zero_centred": case.zero_centred,
        "weight": case.weight,
        "eps": case.eps,
    }


def _run_settings(run: RunRecord) -> dict[str, Any]:
    names = [impl.name for impl in run.implementations]
    alone = [name for name in names if name.removesuffix(WITH_TORCH) == name]  # `NAME + torch` comes with NAME
    baseline = run.settings.baseline or names[0]
    return {
        "impls": ",".join(alone),
        "baseline": "" if baseline == BASELINE else baseline,
        "context": run.settings.context,
        **{name: getattr(run.settings, name) for name in RUN_SETTINGS},
    }
