"""Reasons: read from older files, written and read again, and worded."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import BaseModel

from harness.records.reason_texts import TEXTS, sentence
from harness.records.reasons import OptionalReason, Reason


class Holding(BaseModel):
    reason: OptionalReason = None


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ('{"reason": "a launch failed"}', Reason("text", {"text": "a launch failed"})),
        ('{"reason": ""}', None),
        ("{}", None),
    ],
)
def test_text_of_an_older_file_is_a_reason(stored: str, expected: Reason | None) -> None:
    assert Holding.model_validate_json(stored).reason == expected


@pytest.mark.parametrize(
    "reason",
    [
        Reason("text", {"text": "old"}),
        Reason("some_code", {"runs": 3, "share": 0.25, "names": ["dx", "dweight"], "captured": True}),
        Reason("outer", {"off": math.inf}, [Reason("inner", {"rhos": [-math.inf, 1.0]}), Reason("bare")]),
    ],
)
def test_reason_comes_back_as_it_was_written(reason: Reason) -> None:
    assert Reason.model_validate_json(reason.model_dump_json(exclude_none=True)) == reason
    assert len({reason, Reason.model_validate_json(reason.model_dump_json())}) == 1


def test_unknown_code_shows_its_values() -> None:
    reason = Reason("of_a_newer_version", {"runs": 3}, [Reason("text", {"text": "why"})])
    assert sentence(reason) == "of_a_newer_version (runs 3); why"


@pytest.mark.parametrize(
    "fields", [{}, {"percent": "many"}, {"percent": 3, "parts": 4}, {"percent": [1, "a"]}, {"listed": 1}]
)
def test_a_reason_with_other_fields_than_its_template_shows_what_it_has(fields: dict[str, Any]) -> None:
    """As a file of somebody else may hold it."""
    assert sentence(Reason("scatters", fields)).startswith("scatters")


def test_every_template_is_worded_from_its_fields() -> None:
    assert sentence(Reason("text", {"text": "as it was {stored}"})) == "as it was {stored}"
    assert all(code == code.strip() and template for code, template in TEXTS.items())
