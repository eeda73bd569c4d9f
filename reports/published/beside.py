"""What a kernel beside it costs the in-house kernel, told of it and not told: a run of the plan, by its contexts."""

from __future__ import annotations

from collections.abc import Sequence

from harness.results.published.planned import Plan
from reports.markdown_writer import paragraphs, write_table
from reports.parts import training_step
from reports.published.sources import Source, by_device

RUN = "margin"  # its name in the plan
ABOUT = (
    "How many times as long as alone each takes: the geometric mean, and the longest of a case. Quotients of medians "
    "of different blocks, without an interval."
)


def section(sources: Sequence[Source], _plan: Plan) -> str:
    """Of each device that has the run: the times in each context over those alone."""
    parts: list[str] = []
    for files in by_device(sources).values():
        for source in files:
            if source.name == RUN:
                about = f"On {source.device_name}, {source.about}; {source.mark}."
                parts += [about, ABOUT, write_table(training_step.times(source.comparison))]
    return paragraphs(parts)
