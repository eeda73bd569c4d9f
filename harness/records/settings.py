"""The settings of a run: made from the command line, sent to the worker, stored in the first line of the results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer

from harness.defaults import BASELINE
from harness.records.contexts import COLD, EVERY, HOLDER, STEP, WHAT, parse_contexts
from harness.records.limits import Whole

Flush = Literal["clean", "dirty", "none"]
# Text such as `graph,beside:8` on the command line and in a file, parsed once.
Contexts = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda given: given if isinstance(given, tuple) else parse_contexts(str(given))),
    PlainSerializer(",".join, return_type=str),
]


class Settings(BaseModel, frozen=True, extra="forbid"):
    """All that decides what is measured and how; `Invocation` has the rest, such as where the results go.

    A field with a description is an option of the command line, and the description is its help. A field that is 0,
    empty or None was not typed: `harness.run.resolve` fills it in for the device before anything is measured. In a file
    of an earlier version such a value is unknown.
    """

    suite: str | None = Field(default=None, description="a named set of shapes; `list suites` names them")
    shapes: str | None = Field(default=None, description="ROWSxCOLS,...")
    draw: str | None = Field(
        default=None, description="a number of shapes to draw, in place of a suite; NUMBER@SEED draws the same again"
    )
    norm: str = Field(default="rms,layer", description="rms, layer or both")
    dtype: str | None = Field(default=None, description="of x and dy: bf16, fp16, fp32 (default bf16; on a CPU fp32)")
    weight_dtype: str | None = Field(default=None, description="of weight and bias (default: as x)")
    bias: bool = Field(default=True, description="a bias in LayerNorm")
    zero_centred: bool = Field(default=False, description="multiply by 1 + weight")
    weight: bool = Field(default=True, description="a weight, and with it a bias")
    variant: str | None = Field(
        default=None,
        description="what is around the norm: plain, residual, dropout, parallel, parallel-tied, qk, gated, "
        "gated-norm-first, frozen; a,b is each, a+b both together (default: plain, or the suite's)",
    )
    gradients: Literal["all", "dx"] = Field(
        default="all", description="dx leaves those of parameters out, as where weights are frozen: all or dx"
    )
    eps: float = Field(default=1e-5, description="added to the variance")
    inputs: str = Field(default="all", description="kinds of inputs, such as normal,mean-*")

    impls: str | None = Field(
        default=None, description="names or patterns, a,b-*,...; all is every variant (default: one a library)"
    )
    baseline: str = Field(default="", description=f"what speedups are over (default: {BASELINE})")
    seed: int = Field(default=0, description="of the random inputs and the order of samples")
    flush: Flush = Field(default="clean", description="how caches are evicted before each sample: clean, dirty or none")
    context: Contexts = Field(default=(COLD,), description=f"what to time besides {COLD}: a list of {WHAT}")
    holder: str = Field(
        default=HOLDER, description="threads x KiB of shared memory of each program of the kernel beside"
    )
    quick: bool = Field(default=False, description="fewer blocks and repetitions: a look, not a claim")
    processes: int = Field(default=1, description="fresh processes that measure every case")
    twice: bool = Field(default=False, description="an A/A pair for every implementation")
    cross_check: bool = Field(default=False, description="let other engines time it as well")
    seeds: int = Field(default=0, description="inputs drawn for every case (default: 10)")
    repeats: int = Field(default=0, description="runs compared bit by bit (default: 300; on a CPU 12)")

    timed: bool = True
    profiled: bool = True  # a timed backward's kernels, by the profiler
    # The stopping rule: bounds of the number of blocks, the half width that is enough, and the time for one case.
    min_blocks: Whole = 0
    max_blocks: Whole = 0
    half_width: float = 0.0
    budget_s: float = 0.0
    flush_bytes: Whole = 0
    twin: str | None = None  # what the baseline's second copy is called, where two revisions are compared
    cells: Whole = 1  # gradients that the run judges in all
    later_repeats: Whole = 0  # runs compared bit by bit in every process after a case's first; 0 with one process

    @model_serializer(mode="wrap")
    def _without_unused(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fields of other contexts in a run of cold alone, and of later processes in a run of one."""
        fields: dict[str, Any] = serialize(self)
        unused = [] if self.context != (COLD,) else ["context", "holder"]
        unused += [] if self.later_repeats else ["later_repeats"]
        return {name: value for name, value in fields.items() if name not in unused}

    def changed(self, **settings: object) -> Settings:
        """A copy with these settings replaced; a setting that was not typed stays unset."""
        return Settings.model_validate(self.model_dump(exclude_unset=True) | settings)

    def as_options(self) -> list[str]:
        """The words of a command line for the settings that were typed; a setting that is no option is left out."""
        words: list[str] = []
        for name, field in Settings.model_fields.items():
            if name in self.model_fields_set and field.description is not None:
                value, option = getattr(self, name), name.replace("_", "-")
                if isinstance(value, bool):
                    words.append(f"--{option}" if value else f"--no-{option}")
                else:
                    words += [f"--{option}", in_words(value)]
        return words


OPTIONS = tuple(name for name, field in Settings.model_fields.items() if field.description)  # what can be typed


def in_words(value: object) -> str:
    """The value of a setting as it is typed."""
    if isinstance(value, tuple):
        return EVERY if value == STEP else ",".join(map(str, value))
    return str(value)
