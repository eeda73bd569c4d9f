"""The sentence of every reason, by its code: the only place where reasons are worded, and nothing decides by it."""

from __future__ import annotations

from string import Formatter
from typing import Any

from harness.records.reasons import TEXT, Reason

TEXTS: dict[str, str] = {
    TEXT: "{text}",
}


class _Writer(Formatter):
    """Writes lists with commas, and times by the spec `us`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list):
            return ", ".join(self.format_field(item, format_spec) for item in value)
        if format_spec == "us":
            return f"{value:.{2 if value < 10 else 1 if value < 1000 else 0}f}"
        return super().format_field(value, format_spec)


def sentence(reason: Reason) -> str:
    """The reason in words; of a code that a newer version wrote, its code and values."""
    parts = "; ".join(map(sentence, reason.parts))
    if (template := TEXTS.get(reason.code)) is None:
        values = ", ".join(f"{name} {value}" for name, value in reason.fields.items())
        return "; ".join(filter(None, [f"{reason.code} ({values})" if values else reason.code, parts]))
    return _Writer().format(template, **reason.fields, parts=parts)
