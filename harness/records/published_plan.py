"""The plan of all published runs, results/plan.toml: its runs by name, in order of importance, and its pages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from harness.records.schema import Record
from harness.records.settings import Settings
from harness.records.toml_file import read_toml

CHECKOUT = Path(__file__).resolve().parents[2]
PUBLISHED = CHECKOUT / "results"  # of a checkout; an installed package has none
PLAN = PUBLISHED / "plan.toml"
PACKED_SUFFIX = ".jsonl.bz2"


def _of_the_command_line(settings: Settings) -> Settings:
    """Refuse settings that are no options, so that each run can be measured by hand too."""
    for name in settings.model_fields_set:
        if Settings.model_fields[name].description is None:
            raise ValueError(f"{name} is no option of the command line")
    return settings


Options = Annotated[Settings, AfterValidator(_of_the_command_line)]


class PlannedRun(Record):
    """One run: what it is `about`, for a table, and the options of the command that measures it.

    Exactly one of `bench` and `verify` is set.
    """

    about: str
    bench: Options | None = None
    verify: Options | None = None
    tuned: bool = Field(default=False, description="with the device's own file of `tune`, where it has one; of `bench`")
    sanitizer: bool = Field(default=False, description="also under compute-sanitizer; of `verify`")

    @model_validator(mode="after")
    def _one_command(self) -> PlannedRun:
        if (self.bench is None) == (self.verify is None):
            raise ValueError("give the options of one command, bench or verify")
        if self.sanitizer and self.verify is None:
            raise ValueError("sanitizer is of verify")
        return self

    @property
    def settings(self) -> Settings:
        """The settings of the command; unset ones get the device's default."""
        return self.bench or (self.verify or Settings()).changed(timed=False)

    def command_line(self, device: str) -> str:
        """The command line that measures it by hand on a device."""
        command = "bench" if self.verify is None else "verify"
        more = ["--sanitizer"] if self.sanitizer else []
        more += [f"--tuned={path.relative_to(CHECKOUT)}" for path in self.tuned_files(device)]
        return shlex.join(["normbwd", command, "--device", device, *self.settings.as_options(), *more])

    def tuned_files(self, device: str) -> tuple[Path, ...]:
        """The device's file of `normbwd tune`, which lies beside its results."""
        path = PUBLISHED / device / "tuned.json"
        return (path,) if self.tuned and path.exists() else ()


class Page(Record):
    """A report beside the results, `normbwd report FILES --format FORMAT`, of these runs."""

    of: tuple[str, ...] = Field(min_length=1)
    format: str = "grid"
    fewest: int = Field(default=1, description="files that a device needs for it; what else it is of is left out")


class Plan(Record):
    """What is published: runs in order of importance, named as their files are without the suffix, and pages."""

    runs: dict[str, PlannedRun]
    pages: dict[str, Page] = Field(default={})

    @model_validator(mode="after")
    def _names_are_known(self) -> Plan:
        for name, page in self.pages.items():
            if unknown := [name_ for name_ in page.of if name_ not in self.runs]:
                raise ValueError(f"pages.{name} is of {', '.join(unknown)}, which the plan does not have")
        return self


def read_plan(path: Path = PLAN) -> Plan:
    """Read a plan; raises UsageError that says what is wrong and where."""
    return read_toml(path, Plan, "a checkout of normbwd has it")


def file_of(device: str, name: str, folder: Path = PUBLISHED) -> Path:
    """Where a run on a device is published, whether or not it is there; `device` is a profile's name, such as h200."""
    return folder / device / f"{name}{PACKED_SUFFIX}"


def published_files(folder: Path = PUBLISHED) -> Iterator[tuple[str, str, Path]]:
    """All published files: device, name and path, by name."""
    for path in sorted(folder.glob(f"*/*{PACKED_SUFFIX}")):
        yield path.parent.name, path.name.removesuffix(PACKED_SUFFIX), path
