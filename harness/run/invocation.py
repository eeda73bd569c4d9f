"""One call of a command that measures: its settings, and the options that concern this machine alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from harness.cases import NormCase
from harness.records.settings import Settings
from harness.worker.messages import Start
from harness.worker.revisions import Side, copies


class Invocation(BaseModel, frozen=True, extra="forbid"):
    """The settings, and options that change no figure: where to run and to write, how long to wait, what to load.

    Two invocations with equal settings measure the same, so one may resume the run of the other. As in `Settings`, a
    field with a description is an option of the command line.
    """

    settings: Settings = Settings()
    device: str = Field(default="auto", description="auto, cpu, or the device that must be here: h100, h200, b200, ...")
    impl_files: tuple[Path, ...] = Field(default=(), description="a file with an adapter; may be repeated")
    tuned_files: tuple[Path, ...] = Field(
        default=(), description="a file of `tune`: its implementations run as NAME@tuned; may be repeated"
    )
    base: str = Field(default="", description="the revision to compare with")
    head: str = Field(default="HEAD", description="the revision that is compared")
    even_if_same: bool = Field(default=False, description="measure even where head's code is base's")
    sanitizer: bool = Field(default=False, description="also run the tools of compute-sanitizer on small cases")
    out: Path | None = Field(default=None, description="folder of the results (default: runs/TIME-DEVICE)")
    resume: bool = Field(default=False, description="go on with an interrupted run, of --out or the latest")
    time_limit_s: float = Field(default=300.0, description="seconds that one stage of one implementation may take")
    compile_ahead: int | None = Field(
        default=None, description="processes that compile ahead, 0 for none (default: by cores)"
    )
    allow_others: bool = Field(default=False, description="measure although others use the GPU")
    fleet: str | None = Field(
        default=None, description="spread over GPUs by Ray: local for those of this host, or a cluster's address"
    )
    kinds: str | None = Field(default=None, description="the kind of GPU, such as h200, in a fleet that has several")
    gpus: int | None = Field(default=None, description="most GPUs of a kind in a fleet (default: all)")
    format: Literal["console", "json"] = Field(default="console", description="of what is printed: console or json")
    dry_run: bool = Field(default=False, description="print the plan and about how long it takes; measure nothing")

    minutes: float | None = Field(default=None, description="device time of this call (default: as long as it takes)")
    only: str | None = Field(default=None, description="runs of the plan, by names or patterns: fast-llm,verify-*")
    check: bool = Field(default=False, description="measure nothing; say whether what is there may be published")

    command: str = ""  # as it was typed
    selftest_alone: bool = False
    seed_of_system: bool = False  # that of --draw, and not chosen
    cases: tuple[NormCase, ...] = ()  # of an earlier run, in place of those that the settings describe
    sides: tuple[Side, ...] = ()  # base and head, checked out
    offered: dict[str, int] = {}  # implementations that are tuned, and how many configurations each has to measure

    def changed(self, **fields: Any) -> Invocation:
        """A copy with these fields replaced; a name may be a field of the invocation or of its settings."""
        own = {name: fields.pop(name) for name in list(fields) if name in Invocation.model_fields}
        settings: Settings = own.get("settings", self.settings)
        return self.model_copy(update=own | {"settings": settings.changed(**fields)})

    def for_cases(self, cases: Sequence[NormCase]) -> Invocation:
        """A copy for exactly these cases; its settings name their shapes."""
        shapes = ",".join(dict.fromkeys(f"{case.rows}x{case.cols}" for case in cases))
        return self.changed(suite=None, shapes=shapes, cases=tuple(cases))

    def start(self, process: int = 0) -> Start:
        """The start message for the worker of this process of the run."""
        kind: Literal["auto", "gpu", "cpu"] = "gpu"
        if (device := self.device.strip().lower()) in ("auto", "cpu"):
            kind = "cpu" if device == "cpu" else "auto"
        return Start(
            device=kind,
            impl_files=tuple(map(str, self.impl_files)),
            sides=copies(self.sides, self.settings.seed, process),
            tuned_files=tuple(map(str, self.tuned_files)),
            offered=self.offered,
        )
