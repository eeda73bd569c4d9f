"""Implementations with a configuration that is not their default: those of a sweep, and those of a tuned file."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.cases import NormCase, UnsupportedError
from harness.cases.tuned import TunedCase, TunedFile
from harness.errors import UsageError
from harness.worker.configured import candidates, configuration_note, offer, tuned
from harness.worker.messages import Offer
from tests.mutants.maths import implementation
from tests.wording import worded

CASE = NormCase("rms", 4, 8, device="cpu")
OTHER = replace(CASE, rows=5)
WIDE = replace(CASE, cols=16)
NO_JSON = "configs(case) offers what JSON cannot hold: use dicts, lists, texts and numbers"
INPUTS = SimpleNamespace(case=CASE)


def configs(case):
    return {"default": 1, "two": 2, "three": 3} if case.cols == 8 else {"default": 1, "two": 20}


MINE = implementation(
    "mine", lambda inputs, config=1: config, configs=configs, notes=lambda case: ["a trap"], compiles_ahead={"mine"}
)
PLAIN = implementation("plain")


def test_candidates_are_the_other_configurations():
    two, three = candidates(MINE, 2)
    assert [(item.name, item.family, item.prepare(INPUTS)) for item in (two, three)] == [
        ("mine#01", "mine", 2),
        ("mine#02", "mine", 3),
    ]
    assert two.prepare(SimpleNamespace(case=WIDE)) == 20
    assert worded(configuration_note(two.config_of(CASE))) == "configuration: two"
    assert (MINE.notes(CASE), MINE.prepare(INPUTS)) == (["a trap"], 1)


@pytest.fixture
def tuned_file(tmp_path):
    """Write a file in which one case has a winner, one keeps its default, and one was not measured."""

    def write(name="mine", file="tuned.json"):
        cases = [
            TunedCase(impl=name, case=CASE, tried=2, default_us=2.0, best_us=1.0, config_name="three", config=3),
            TunedCase(impl=name, case=OTHER, tried=2, default_us=2.0),
            TunedCase(impl=name, case=WIDE, tried=1, why="crashed"),
        ]
        path = tmp_path / file
        path.write_text(TunedFile(device="Some CPU", date="today", cases=cases).model_dump_json())
        return path

    return write


def test_tuned_configuration_comes_from_the_file(tuned_file):
    path = tuned_file()
    (item,) = tuned([PLAIN, MINE], path)
    assert (item.name, item.family, item.source, item.compiles_ahead) == ("mine@tuned", "mine", str(path), True)
    assert item.prepare(INPUTS) == item.prepare(SimpleNamespace(case=replace(CASE, inputs="zero-rows"))) == 3
    assert worded(configuration_note(item.config_of(CASE))) == f"configuration: three, of {path}"


@pytest.mark.parametrize("case", [WIDE, replace(CASE, rows=9)], ids=["not measured", "not there"])
def test_a_case_that_was_not_tuned_is_unsupported(tuned_file, case):
    path = tuned_file()
    (item,) = tuned([MINE], path)
    assert item.unsupported(case) == f"{path} has no such case; `normbwd tune` adds it"


def complaint(known, path):
    with pytest.raises(UsageError) as caught:
        tuned(known, path)
    return str(caught.value)


def test_a_tuned_file_that_cannot_be_used(tuned_file, tmp_path):
    path = tuned_file("theirs")
    assert complaint([MINE], path) == (
        f"--tuned {path} has configurations of 'theirs', which is not here; give it with --impl"
    )
    absent = tmp_path / "absent.json"
    assert complaint([MINE], absent) == (
        f"--tuned cannot read {absent}: No such file or directory; name a file that `normbwd tune` wrote"
    )
    for text, fault in (
        ('{"schema_version": 1, "device": "x", "cases": []}', "has schema 1, and this version reads 2"),
        ("[]", "is no tuned file (the file: Input should be an object)"),
        ('{"schema_version": 2, "date": "", "cases": []}', "is no tuned file (device: Field required)"),
    ):
        absent.write_text(text)
        tuned_json = absent.rename(tmp_path / f"{len(text)}.json")
        assert complaint([MINE], tuned_json) == f"--tuned {tuned_json} {fault}; run `normbwd tune` again"


def test_a_file_of_another_device_says_so():
    file = TunedFile(device="NVIDIA B200", multiprocessors=148, date="", cases=[])
    assert file.other_device("NVIDIA B200", 148) is None
    assert file.other_device("NVIDIA B200", None) is None
    assert file.other_device("NVIDIA H200", 132) == (
        "belongs to NVIDIA B200 (148 multiprocessors), and this is NVIDIA H200 (132 multiprocessors); "
        "run `normbwd tune` here"
    )
    assert file.other_device("NVIDIA B200", 74) is not None
    assert file.other_device("cpu", None) is not None


def raising(error):
    def configs(case):
        raise error

    return configs


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"configs": configs}, Offer(configs(CASE))),
        ({}, Offer()),
        ({"configs": configs, "unsupported": lambda case: "too wide"}, Offer(refusal="too wide")),
        ({"configs": configs, "untimed": lambda case: "interpreted"}, Offer(refusal="interpreted")),
        ({"configs": raising(UnsupportedError("unset IT"))}, Offer(fault="unset IT")),
        ({"configs": raising(KeyError("x"))}, Offer(fault="configs(case) fails: KeyError: 'x'")),
        ({"configs": lambda case: 17}, Offer(fault="configs(case) fails: TypeError: 'int' object is not iterable")),
        ({"configs": lambda case: {"default": (1, 2)}}, Offer(fault=NO_JSON)),
        ({"configs": lambda case: {"default": {1: 2}}}, Offer(fault=NO_JSON)),
        (
            {"configs": lambda case: {"default": {1, 2}}},
            Offer(fault="configs(case) fails: TypeError: Object of type set is not JSON serializable"),
        ),
    ],
)
def test_offer_of_configurations(more, expected):
    assert offer(implementation("mine", **more), CASE) == expected
