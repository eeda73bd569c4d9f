"""What the user chose on the command line, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.cases import DeviceKind, NormCase
from harness.cases.catalogue import SHAPES, catalogue, of_kinds, parse_inputs
from harness.cases.suites import cases_of, find_suite, parse_dtype, parse_norms, parse_shapes
from harness.devices import DeviceProfile
from harness.errors import UsageError
from harness.results.schema import Flush
from harness.worker.aa_twin import twin_of
from harness.worker.messages import Asked, When
from harness.worker.revisions import Side

DEFAULT_BASELINE = "torch-eager"
PROCESSES_OF_A_CLAIM = 5  # fresh processes that measure every case where something is claimed, not just looked at


@dataclass(frozen=True)
class Choice:
    """The options of `bench` and `verify`, as typed; None where a default depends on the device.

    `exactly` are cases of an earlier run, in place of all options that describe cases.
    """

    device: str = "auto"
    suite: str | None = None
    shapes: str | None = None
    norm: str = "rms,layer"
    dtype: str | None = None
    weight_dtype: str | None = None
    bias: bool = True
    zero_centred: bool = False
    eps: float = 1e-5
    exactly: tuple[NormCase, ...] = ()
    impls: str | None = None
    impl_files: tuple[Path, ...] = ()
    baseline: str | None = None
    seed: int = 0
    flush: Flush = "clean"
    quick: bool = False
    timed: bool = True
    inputs: str = "all"
    seeds: int | None = None
    repeats: int | None = None
    sanitizer: bool = False
    processes: int = 1
    twice: bool = False
    cross_check: bool = False
    allow_others: bool = False
    selftest_alone: bool = False
    out: Path | None = None
    resume: bool = False
    time_limit_s: float = 300.0
    compile_ahead: int | None = None
    sides: tuple[Side, ...] = ()
    command: str = field(default="", compare=False)

    def check(self) -> None:
        """Raise UsageError for what is wrong on any device, before a worker is started."""
        if self.suite is not None and self.shapes is not None:
            raise UsageError("--suite and --shapes both name the cases; give one of them")
        if not 0 <= self.eps < math.inf:
            raise UsageError(f"--eps {self.eps:g}: must not be negative")
        if not 0 < self.time_limit_s < math.inf:
            raise UsageError(f"--time-limit {self.time_limit_s:g}: must be positive, in seconds")
        if self.processes < 1:
            raise UsageError(f"--processes {self.processes}: must be at least 1")
        for option, value in (("--seeds", self.seeds), ("--repeats", self.repeats)):
            if value is not None and value < 1:
                raise UsageError(f"{option} {value}: must be at least 1")
        self.cases("cpu")
        for path in self.impl_files:
            if not path.is_file():
                raise UsageError(f"--impl {path}: no such file")

    def suite_name(self, device: DeviceKind) -> str | None:
        """The suite measured: the one named, or the device's default where no shapes are given; none is a catalogue."""
        if self.exactly or self.shapes is not None or (self.suite is None and not self.timed):
            return None
        return self.suite or ("fast-llm" if device == "cuda" else "quick")

    def cases(self, device: DeviceKind) -> list[NormCase]:
        """The cases chosen; a GPU's default dtype is bf16, a CPU's fp32, which its kernels are written for.

        Where nothing is timed, each with the kinds of inputs chosen, or where no shapes are the catalogue.
        """
        if self.exactly:
            return list(self.exactly)
        name = self.suite_name(device)
        from_catalogue = name is None and self.shapes is None
        if from_catalogue:
            shapes = SHAPES[device]
        else:
            shapes = find_suite(name).shapes if name else parse_shapes(self.shapes or "")
        dtype = parse_dtype(self.dtype) if self.dtype is not None else ("bf16" if device == "cuda" else "fp32")
        weight_dtype = None if self.weight_dtype is None else parse_dtype(self.weight_dtype, "--weight-dtype")
        cases = cases_of(
            shapes,
            parse_norms(self.norm),
            dtype,
            weight_dtype,
            bias=self.bias,
            zero_centred=self.zero_centred,
            eps=self.eps,
            device=device,
        )
        if self.timed:
            return cases
        kinds = parse_inputs(self.inputs)
        return catalogue(cases, kinds) if from_catalogue else of_kinds(cases, kinds)

    def runs(self, device: DeviceKind) -> list[NormCase]:
        """The cases to run: those chosen, or none where only the engine is tested."""
        return [] if self.selftest_alone else self.cases(device)

    def first_asked(self) -> Asked:
        """What a worker is told before the device is known."""
        kind: Literal["auto", "gpu", "cpu"] = "gpu"
        if self.device.strip().lower() in ("auto", "cpu"):
            kind = "cpu" if self.device.strip().lower() == "cpu" else "auto"
        return Asked(device=kind, impl_files=tuple(map(str, self.impl_files)), sides=self.sides, seed=self.seed)

    def selftests(self, device: DeviceKind) -> tuple[When, ...]:
        """When a process tests the engine: a quick look less, and a CPU, whose flushes take long, once at most."""
        if self.selftest_alone:
            return ("alone",)
        if not self.timed:
            return ()
        if device == "cpu":
            return () if self.quick else ("before",)
        return ("before",) if self.quick else ("before", "after")

    def asked(self, profile: DeviceProfile, baseline: str) -> Asked:
        """How every case is tried. The bounds of the stopping rule and the evidence of determinism are set here."""
        on_gpu = profile.kind == "cuda"
        if self.quick:
            blocks, half_width, budget_s = (10, 20), 0.02, 5.0
        else:
            blocks, half_width, budget_s = ((40, 120) if on_gpu else (20, 60)), 0.003, (10.0 if on_gpu else 3.0)
        return Asked(
            device="gpu" if on_gpu else "cpu",
            impl_files=tuple(map(str, self.impl_files)),
            sides=self.sides,
            twin=twin_of(baseline) if self.sides else None,
            seed=self.seed,
            flush=self.flush,
            flush_bytes=profile.flush_bytes,
            cache_bytes=profile.last_level_bytes,
            datasheet_gbps=profile.datasheet_gbps,
            baseline=baseline,
            timed=self.timed,
            repeats=self._repeats(on_gpu),
            seeds=self._seeds(),
            min_blocks=blocks[0],
            max_blocks=blocks[1],
            half_width=half_width,
            budget_s=budget_s,
            twice=self.twice,
            cross_check=self.cross_check,
        )

    def _repeats(self, on_gpu: bool) -> int:
        """How often bits are compared: more where that is the point."""
        if self.repeats is not None:
            return self.repeats
        if not self.timed:
            return 300 if on_gpu else 12
        return 50 if on_gpu and not self.quick else 2

    def _seeds(self) -> int:
        return self.seeds or (1 if self.timed else 10)
