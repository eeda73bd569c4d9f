"""What `--format json` prints: one object with a `schema_version`, whose JSON schema is docs/schema/NAME.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from harness.analysis.verdicts import Verdict
from harness.records.packed_samples import PackedSamples
from harness.records.schema import SelfTestRecord


@dataclass(frozen=True)
class GateOutput:
    """Verdicts on a run, those that measuring again changed included; `not_judged` has limits in words, by why."""

    exit_code: int
    verdicts: Sequence[Verdict]
    not_judged: Mapping[str, Sequence[str]]
    confirmed_by: str | None = None
    schema_version: Literal[1] = 1


@dataclass(frozen=True)
class SelfTestOutput:
    """The checks of the engine on this device, and the results file that has them."""

    exit_code: int
    results: str
    selftests: Sequence[SelfTestRecord]
    schema_version: Literal[1] = 1


def print_json(value: Any) -> None:
    """Print an output, which is all that standard output then holds."""
    from reports.formats.export import dumped

    sys.stdout.write(dumped(value))


class _Schema(GenerateJsonSchema):
    """The schema of what is written: a number that is not finite is one of `not_finite`."""

    not_finite: Sequence[str | None] = (None,)

    def float_schema(self, schema: Any) -> dict[str, Any]:
        return {"anyOf": [super().float_schema(schema), {"enum": [*self.not_finite]}]}

    def ser_schema(self, schema: Any) -> dict[str, Any] | None:
        """Of a serializer that leaves fields out, the schema of what it gets."""
        return None if schema["type"] == "function-wrap" else super().ser_schema(schema)

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:  # noqa: ARG002
        """Of what no output has: the joined rows of a case."""
        return {}


class _Stored(_Schema):
    not_finite = ("NaN", "Infinity", "-Infinity")  # as records are written


def schemas() -> dict[str, Callable[[], str]]:
    """All schemas by their paths in the checkout, each as the function that makes its text."""
    from harness.analysis.comparison import Comparison
    from harness.cases.tuned import TunedFile
    from harness.judge.verdict import FileVerdict
    from harness.records.file import Line
    from harness.records.run_records import SameCodeRecord
    from harness.run.listing import Listing

    printed = {
        "report": (Comparison | SameCodeRecord, _Schema),
        "gate": (GateOutput | SameCodeRecord, _Schema),
        "list": (Listing, _Schema),
        "selftest": (SelfTestOutput, _Schema),
        "tune": (TunedFile, _Schema),
        "judge": (FileVerdict, _Stored),
        "results": (Line, _Stored),
    }
    return {f"docs/schema/{name}.json": partial(_text, name, *each) for name, each in printed.items()}


def _text(name: str, output: Any, generator: type[_Schema]) -> str:
    adapter: TypeAdapter[Any] = TypeAdapter(output)
    schema = adapter.json_schema(mode="serialization", schema_generator=generator)
    defined: dict[str, Any] = schema.get("$defs", {})
    if "Reason" in defined and generator is _Schema:
        defined["Reason"]["properties"]["text"] = {"type": "string", "description": "the sentence that people read"}
    if "NormCase" in defined:  # which model was used first decides whether it says so itself
        defined["NormCase"] = {"additionalProperties": False} | defined["NormCase"]
        if generator is _Schema:
            defined["NormCase"]["properties"]["key"] = {"type": "string"}
    if name == "report":
        case, whole = defined["CaseComparison"], defined["Comparison"]
        del case["properties"]["joined"]
        case["required"].remove("joined")
        case["properties"] |= {"key": {"type": "string"}, "moved_bytes": {"type": "integer"}}
        whole["properties"]["schema_version"] = {"const": 1}
    if name == "results":  # a published file is packed, and an older one has sentences as reasons
        timing, packed = defined["Timing"], PackedSamples.model_json_schema()
        timing["required"].remove("blocks")
        timing["properties"]["samples_us"] = {"anyOf": [timing["properties"]["samples_us"], packed]}
        timing["properties"]["voided"] = {"anyOf": [timing["properties"]["voided"], {"type": "object"}]}
        for record in ("RunRecord", "ResumedRecord"):
            defined[record]["properties"]["sources"] = {}
        defined["Reason"] = {"anyOf": [defined["Reason"], {"type": "string"}]}
    return json.dumps({"title": f"normbwd {name}", **schema}, indent=1) + "\n"
