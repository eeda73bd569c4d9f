"""The limits that a results file must meet: a gate.toml, read and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from harness.analysis.joining import JoinedCase
from harness.analysis.verdicts import Subject
from harness.cases import Norm, NormCase
from harness.cases.suites import SUITES
from harness.devices.profiles import PROFILES, known_names
from harness.errors import UsageError, name_hint
from harness.records.cases_asked import cases_on
from harness.records.contexts import COLD, WHAT, parse_context
from harness.records.settings import Settings
from harness.records.toml_file import read_toml

DEVICES = known_names()[1:]  # all but auto


def _smallest_first(span: tuple[int, int]) -> tuple[int, int]:
    if span[0] > span[1]:
        raise ValueError(f"the smallest comes first, [{span[1]}, {span[0]}]")
    return span


def _one_of(kind: str, names: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"no {kind} is called {name!r}; {name_hint(name, names)}")
        return name

    return AfterValidator(check)


def _context(word: str) -> str:
    try:
        return parse_context(word)
    except UsageError:
        raise ValueError(f"{word!r} is not one of {WHAT}") from None


Span = Annotated[
    tuple[int, int], Field(description="smallest and largest, both included"), AfterValidator(_smallest_first)
]


@cache
def _cases_of(suite: str) -> frozenset[NormCase]:
    return frozenset(cases_on("cuda", Settings(suite=suite)))


class Selection(BaseModel):
    """The cases of a file that a limit is about: those that fit every field that is given, in one context.

    A limit of a `device` is about no case of another's file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: Annotated[str, _one_of("suite", SUITES)] | None = None  # its cases on a GPU
    norm: Norm | None = None
    rows: Span | None = None
    cols: Span | None = None
    context: Annotated[str, AfterValidator(_context)] = COLD
    device: Annotated[str, _one_of("device", DEVICES)] | None = None  # h200, or h100 for h100-sxm and the like

    @property
    def where(self) -> str:
        """The suite, the context where it is not cold, and the device, in words."""
        words = [self.suite, None if self.context == COLD else self.context, self.device]
        words = [word for word in words if word]
        return f" ({', '.join(words)})" if words else ""

    def applies_to(self, profile: str) -> bool:
        """Whether the limit is about files of the device with this profile."""
        families = {each.name: each.family for each in PROFILES}
        return self.device in (None, profile, families.get(profile))

    def measured(self, cases: Mapping[NormCase, JoinedCase]) -> dict[NormCase, JoinedCase]:
        """Those of the cases that the limit is about, and that any implementation was measured on."""
        return {case: joined for case, joined in cases.items() if self.fits(case) and joined.impls}

    def fits(self, case: NormCase) -> bool:
        """Whether the limit is about this case."""
        return (
            (self.suite is None or case in _cases_of(self.suite))
            and self.norm in (None, case.norm)
            and (self.rows is None or self.rows[0] <= case.rows <= self.rows[1])
            and (self.cols is None or self.cols[0] <= case.cols <= self.cols[1])
        )


class Claim(Selection):
    """`impl` is at least `at_least` times as fast as `over`, on every case of the file that the other fields fit.

    `deterministic` also requires the same bits in every repetition. Without `over` there is no limit on the speed. With
    `where_measured` a case without a time of `over` is left out, and so is a file that lacks it or the context.
    """

    impl: str
    over: str | None = None
    at_least: float = Field(default=1.0, gt=0)
    deterministic: bool = True
    where_measured: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The implementations that it is about."""
        return (self.impl,) if self.over is None else (self.impl, self.over)

    @property
    def subject(self) -> Subject:
        """What its verdicts are about, in words."""
        words = f"{self.impl} >= {self.at_least:g} x {self.over}" if self.over else f"{self.impl} is right"
        return Subject("claim", words + self.where, self.names, self.where)


class Regression(Selection):
    """`head` is not slower than `base` by more than delta on any selected case.

    A loss up to `minimum_effect` (0.01 is 1 %) is allowed on one case, and one up to `geomean_effect` on the geometric
    mean over the cases. A head that fails has regressed whatever its speed, and so has a head that is not deterministic
    where its base is, unless `allow_nondeterministic` is set.
    """

    head: str
    base: str
    minimum_effect: float = Field(default=0.01, ge=0, lt=1)
    geomean_effect: float = Field(default=0.005, ge=0, lt=1)
    allow_nondeterministic: bool = False

    @model_validator(mode="after")
    def _two_sides(self) -> Regression:
        if self.head == self.base:
            raise ValueError("head and base are the same implementation")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The implementations that it is about."""
        return self.head, self.base

    @property
    def subject(self) -> Subject:
        """What its verdicts are about, in words."""
        return Subject("regression", f"{self.head} not slower than {self.base}{self.where}", self.names, self.where)


class Limits(BaseModel):
    """A gate.toml: one claim or regression, or more."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: list[Claim] = []
    regression: list[Regression] = []

    @property
    def all(self) -> tuple[Claim | Regression, ...]:
        """Every limit, in the order of their verdicts."""
        return (*self.claim, *self.regression)

    @model_validator(mode="after")
    def _not_empty(self) -> Limits:
        if not self.claim and not self.regression:
            raise ValueError("it asks for nothing: give a [[claim]] or a [[regression]]")
        return self


def read_limits(path: Path) -> Limits:
    """Read a gate.toml; raises UsageError with the key at fault."""
    return read_toml(path, Limits, "name the limits with --config", "docs/pull-requests.md")
