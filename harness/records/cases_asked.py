"""The cases that a run's settings describe, on a GPU or a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.cases import DeviceKind, Dtype, NormCase
from harness.cases.catalogue import SHAPES, catalogue, of_kinds, parse_inputs
from harness.cases.drawn_shapes import draw_shapes, parse_draw
from harness.cases.suites import Shape, Suite, cases_of, find_suite, parse_dtype, parse_norms, parse_shapes
from harness.cases.variants import PLAIN, parse_variants
from harness.errors import UsageError
from harness.records.settings import Settings

DEFAULT_SUITE: dict[DeviceKind, str] = {"cuda": "fast-llm", "cpu": "quick"}
DEFAULT_DTYPE: dict[DeviceKind, Dtype] = {"cuda": "bf16", "cpu": "fp32"}  # CPU kernels are written for fp32


def suite_on(device: DeviceKind, settings: Settings) -> str | None:
    """The suite to measure: the one named, or without --shapes the device's default; None for shapes or a catalogue."""
    if settings.shapes is not None or settings.draw is not None or (settings.suite is None and not settings.timed):
        return None
    return DEFAULT_SUITE[device] if settings.suite is None else settings.suite


def dtype_on(device: DeviceKind, settings: Settings) -> Dtype:
    """The dtype of x and dy: the one named, or the device's default."""
    return DEFAULT_DTYPE[device] if settings.dtype is None else parse_dtype(settings.dtype)


def cases_on(device: DeviceKind, settings: Settings, memory_bytes: int | None = None) -> list[NormCase]:
    """The cases that the settings describe; raises UsageError where they describe none.

    A verification has each case with each kind of inputs of --inputs, and without shapes it has as much of the
    catalogue as fits into `memory_bytes`.
    """
    name = suite_on(device, settings)
    suite = None if name is None else find_suite(name)
    drawn = None if settings.draw is None else draw_shapes(*parse_draw(settings.draw))
    from_catalogue = suite is None and settings.shapes is None and drawn is None
    if suite is not None and suite.cases:
        cases = _of_suite(suite, device, settings)
    else:
        named = drawn or (suite.shapes if suite else None)
        shapes = SHAPES[device] if from_catalogue else named or parse_shapes(settings.shapes or "")
        cases = _of_shapes(shapes, suite, device, settings)
    if settings.gradients == "dx":
        cases = [replace(case, features=(*case.features, "frozen")) for case in cases]
    if settings.timed:
        return cases
    kinds = parse_inputs(settings.inputs)
    return catalogue(cases, kinds, memory_bytes) if from_catalogue else of_kinds(cases, kinds)


def asked_for(cases: Sequence[NormCase], settings: Settings) -> Sequence[NormCase]:
    """The cases without those of other parameters that the catalogue adds by itself."""
    if settings.timed or settings.suite is not None:
        return cases
    return [case for case in cases if (case.weight, case.zero_centred) == (settings.weight, settings.zero_centred)]


def _of_shapes(shapes: Sequence[Shape], suite: Suite | None, device: DeviceKind, settings: Settings) -> list[NormCase]:
    if settings.zero_centred and not settings.weight:
        raise UsageError("--zero-centred --no-weight: there is no weight to be zero-centred; leave one of them out")
    return cases_of(
        shapes,
        parse_norms(settings.norm),
        dtype_on(device, settings),
        _weight_dtype(settings),
        variants=parse_variants(settings.variant or (suite.variants if suite else PLAIN)),
        weight=settings.weight,
        bias=settings.bias,
        zero_centred=settings.zero_centred,
        eps=settings.eps,
        device=device,
    )


def _of_suite(suite: Suite, device: DeviceKind, settings: Settings) -> list[NormCase]:
    """The cases that a suite lists one by one, for the norms and in the dtypes of the settings."""
    for option, is_typed in (
        ("--variant", settings.variant is not None),
        ("--zero-centred", settings.zero_centred),
        ("--no-weight", not settings.weight),
    ):
        if is_typed:
            raise UsageError(f"--suite {suite.name} {option}: each case of the suite has its own; leave {option} out")
    dtype, norms = dtype_on(device, settings), parse_norms(settings.norm)
    weight_dtype = _weight_dtype(settings) or dtype
    cases = [case for case in suite.cases if case.norm in norms]
    if not cases:
        raise UsageError(f"--suite {suite.name} --norm {settings.norm}: the suite has none of these; leave --norm out")
    return [replace(case, dtype=dtype, weight_dtype=weight_dtype, eps=settings.eps, device=device) for case in cases]


def _weight_dtype(settings: Settings) -> Dtype | None:
    return None if settings.weight_dtype is None else parse_dtype(settings.weight_dtype, "--weight-dtype")
