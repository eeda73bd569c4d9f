"""Text that a results file holds is shown as text, whatever it holds, and what is shown first is right or wrong."""

import dataclasses
import re
from types import UnionType
from typing import Union, get_args, get_origin

import pytest
from pydantic import BaseModel

import reports
from harness.analysis.comparison import compare
from harness.records import run_records
from harness.records import schema as schema_module
from harness.records.reasons import Reason
from harness.records.run_records import DrawnRecord, GpuRecord, ImplRecord, ResumedRecord, SameCodeRecord, SideRecord
from harness.records.schema import Check, ContextRecord, HolderRecord, Record, SanitizerRecord, Status, VoidBlocks
from reports.formats import pull_request
from reports.parts.answers import headline
from tests.results_factory import (
    CASE,
    conditions,
    helpers,
    profiled,
    results,
    row,
    selftest,
    timing,
    under,
    verification,
)

pytestmark = pytest.mark.filterwarnings("ignore:Glyph 27")  # matplotlib has no picture of an escape
EVIL = "<script>alert(1)</script> \\| `x` \x1b[2J\n# injected\n$\\frac$ <img src=x>\u202e @me"


# Texts that name what the code knows.
MEANT = {("Settings", "context"), ("Reason", "code")}
MEANT_KEYS = {("Reason", "fields"), ("RowRecord", "contexts"), ("Verification", "tensors")}
RECORDS = ("run", "rows", "end", "selftests", "conditions", "sanitized", "gpus", "resumed")


def evil_file(file):
    """The file with EVIL in every text, whether it had one or not, and the models that it holds."""
    models = set()

    def text(value, kind, name=None):
        if isinstance(value, BaseModel):
            models.add(type(value))
            fields = {(type(value).__name__, name): field for name, field in type(value).model_fields.items()}
            new = {
                of[1]: text(getattr(value, of[1]), field.annotation, of)
                for of, field in fields.items()
                if of not in MEANT
            }
            return value.model_copy(update=new)
        kinds = [kind, *get_args(kind)] if get_origin(kind) in (UnionType, Union) else [kind]
        if str in kinds and (value is None or isinstance(value, str)):
            return EVIL + (value or "")  # before it, so that what was the same still is
        holds = next((get_args(each) for each in kinds if get_origin(each) in (list, tuple, dict)), (None, None))
        if isinstance(value, dict):
            filled = value or ({"": ""} if holds == (str, str) else {})
            return {key if name in MEANT_KEYS else text(key, str): text(item, holds[1]) for key, item in filled.items()}
        if isinstance(value, list | tuple):
            return type(value)(text(item, holds[0]) for item in (value or [""] * (str in holds)))
        return value

    new = {name: text(getattr(file, name), None) for name in RECORDS}
    return dataclasses.replace(file, **new), models


DRAWN = DrawnRecord(seed=1, chosen=False, impl="quack", version=1, commit="c", committed_at="then")


def whole(timed=True):
    """A file with a record of every kind, in which something failed in every way that has a reason."""
    why = Reason("together", parts=[Reason("text", {"text": "off"})])
    voided = [VoidBlocks(cause=why, blocks=1)]
    checked = verification(fingerprint="f", conditions=under(50), invariance={"rows": why})
    kept = profiled(
        row("quack", 50.0, verification=checked, notes=[why], kernels_note=why, chosen="c"), ("k", 0.0, 9.0)
    )
    rows = [
        row(
            "torch-eager",
            100.0,
            contexts={"graph": ContextRecord(status="ok", timing=timing(90.0, voided=voided), notes=[why])},
        ),
        kept.model_copy(update={"other_engines_us": {"do_bench": 50.0}}),
        *(
            row(status, status=status, reason=why)
            for status in get_args(Status)
            if status not in ("ok", "nondeterministic")
        ),
        row("untimed", timed=None, untimed=why),
        *helpers(100.0, 46.0),
    ]
    file = results(*(rows if timed else (each.model_copy(update={"timing": None}) for each in rows)), timed=timed)
    settings = file.run.settings.model_copy(update={"context": ("cold", "graph") if timed else ("cold",)})
    added = [ImplRecord(name=each.impl, family="f", source="s", missing=why) for each in rows]
    sides = [SideRecord(word=word, commit="a" * 40) for word in ("base", "head")]
    return dataclasses.replace(
        file,
        run=file.run.model_copy(
            update={"implementations": added, "sides": sides, "settings": settings, "drawn": DRAWN}
        ),
        selftests=(selftest(Check(name="check", passed=False, value=2.0, limit=1.0, detail=why)),),
        conditions=(conditions(throttled={"heat": [1]}, holder=HolderRecord(programs=8, threads=640, shared_kib=200)),),
        sanitized=(SanitizerRecord(case=CASE, impl="quack", tool="memcheck", detail=why),),
        gpus=(GpuRecord(number=0, host="h", visible="0", uuid="u"),),
        resumed=(ResumedRecord(revision="r", at="2025-06-01"),),
    )


def test_every_model_of_the_schema_is_in_the_file():
    _, models = evil_file(whole())
    schema = {
        each for module in (schema_module, run_records) for each in vars(module).values() if isinstance(each, type)
    }
    assert models >= {each for each in schema if issubclass(each, Record)} - {Record, SameCodeRecord}
    of_same_code = SameCodeRecord(command=EVIL, impl=EVIL, sides=[SideRecord(word=EVIL, commit=EVIL)] * 2)
    assert not re.search(r"(?<!\\)<|[\x1b\u202e]| @me|\n#", pull_request.same_code(of_same_code))


DATA = ("csv", "json", "github-action-benchmark", "pytorch-hud")
OF_OTHER_FILES = ("gpus", "history", "leads")


@pytest.mark.parametrize("form", [form for form in reports.TEXTS if form not in DATA + OF_OTHER_FILES])
@pytest.mark.parametrize("timed", [True, False])
def test_text_is_neither_markup_nor_a_line_nor_an_escape(form, timed):
    file, _ = evil_file(whole(timed))
    text = reports.render(file, form)
    if form not in ("aa", "processes", "engines") or "alert(1)" in text:
        assert "alert(1)" in text
    if form == "html":  # where line breaks and escapes mean nothing
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        return
    assert not {"\x1b", "\u202e"} & set(text)
    assert not re.search(r"^# injected *$", text, re.MULTILINE)
    if form != "console":
        outside_code = re.sub(r"`[^`\n]*`", "", text)
        assert not re.search(r"(?<!\\)<(script|img)| @me", outside_code)


def test_plots_take_a_dollar_for_a_dollar(tmp_path):
    from reports.plots import draw

    assert draw.write([compare(evil_file(whole())[0])], tmp_path)


def test_a_comparison_names_both_commits_after_what_failed():
    rows = [row("quack@base", 100.0), row("quack@head", 50.0, status="wrong", reason="off"), *helpers(100.0, 46.0)]
    file = results(*rows, baseline="quack@base")
    sides = [SideRecord(word=word, commit=letter * 40) for word, letter in (("base", "a"), ("head", "b"))]
    comparison = compare(file.__class__(**{**vars(file), "run": file.run.model_copy(update={"sides": sides})}))
    text = headline(comparison, "quack@head")
    assert text.startswith("quack@head: right 0 of 1, same bits 0 of 0. Failed: quack@head wrong on 1. ")
    assert "Base is commit aaaaaaaaaaaa, head is commit bbbbbbbbbbbb." in text
