"""What `--format json` prints validates against docs/schema, which is what the code gives."""

import json
import math
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harness.__main__ import main
from harness.analysis.comparison import compare
from harness.cases.tuned import TunedCase, TunedFile
from harness.gate.judge import judge
from harness.gate.limits import Claim, Limits, Regression
from harness.judge.verdict import Answers, CaseVerdict, FileVerdict
from harness.outputs import GateOutput, SelfTestOutput, schemas
from harness.records.file import ResultsFile, lines_of
from harness.records.reasons import Reason
from harness.records.schema import VoidBlocks
from reports.formats.export import dumped, to_json
from tests.results_factory import CASE, careful, gateable, helpers, mixed, results, row, selftest, thorough, timing

ROOT = Path(__file__).parents[1]
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "docs" / "schema").glob("*.json")}


def faults(name, text):
    errors = Draft202012Validator(SCHEMAS[name]).iter_errors(json.loads(text))
    return [f"{list(error.absolute_path)}: {error.message[:200]}" for error in errors]


def test_the_schemas_are_those_of_the_code():
    of_code = schemas()
    assert {*of_code} == {f"docs/schema/{name}.json" for name in SCHEMAS}
    assert [path for path, make in of_code.items() if make() != (ROOT / path).read_text()] == []


def voided():
    void = [VoidBlocks(cause=Reason("throttled"), blocks=2)]
    return results(
        row("torch-eager", 100.0), row("quack", 50.0, timed=timing(50.0, voided=void)), *helpers(100.0, 46.0)
    )


@pytest.mark.parametrize("made", [mixed, thorough, careful, voided])
def test_reports(made):
    text = to_json(compare(made()))
    assert faults("report", text) == []
    assert faults("report", text.replace('"standing": "', '"standing": "no ')) != []  # a schema that refuses something


def test_a_reason_has_its_text():
    (case,) = json.loads(to_json(compare(voided())))["cases"]
    assert case["voided"] == [{"cause": {"code": "throttled"}, "blocks": 2}]
    wrong = next(each for each in json.loads(to_json(compare(mixed())))["cases"][0]["entries"] if each["reason"])
    assert wrong["reason"]["text"]


def test_gates():
    limits = Limits(
        claim=[Claim(impl="quack", over="torch-eager", at_least=1.5)],
        regression=[Regression(head="quack", base="torch-eager")],
    )
    judged = judge(gateable(row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)), limits)
    assert faults("gate", dumped(GateOutput(0, judged, {"not measured in this run": ["x is right"]}, "a.jsonl"))) == []


def test_verdicts_self_tests_and_tunings():
    case = CaseVerdict(case=CASE, key=CASE.key, status="wrong", rho={"dx": math.inf}, answers=Answers(given=1))
    of_file = {"file": "a.py", "sha256": "0", "normbwd": "1", "engine": 1, "device": "CPU", "exit_code": 1}
    assert faults("judge", FileVerdict(**of_file, status="wrong", cases=[case]).model_dump_json()) == []
    assert faults("selftest", dumped(SelfTestOutput(0, "runs/a/results.jsonl", [selftest(), selftest()]))) == []
    tuned = TunedFile(device="h200", date="2026-01-01", cases=[TunedCase(impl="mine", case=CASE, tried=3)])
    assert faults("tune", dumped(tuned)) == []


@pytest.mark.parametrize("what", ["suites", "variants", "contexts", "devices"])
def test_lists(capsys, what):
    with pytest.raises(SystemExit):
        main(["list", what, "--format", "json"])
    shown = capsys.readouterr()
    assert faults("list", shown.out) == []
    assert json.loads(shown.out)[what]


def test_lines_of_a_results_file(tmp_path):
    made = thorough()
    file = ResultsFile(tmp_path / "results.jsonl")
    for record in (made.run, *made.gpus, *made.selftests, *made.conditions, *made.rows, *voided().rows, made.end):
        file.append(record)
    file.close()
    packed = [line for path in ROOT.glob("results/*/fast-llm.jsonl.bz2") for line in lines_of(path)[:80]]
    for line in (*lines_of(file.path), *packed):
        assert faults("results", line) == []


@pytest.mark.parametrize(
    "line", ["bench --dry-run", "bench --fleet local", "gate x.jsonl --format xml", "list suites --format xml"]
)
def test_what_has_no_json_is_refused_in_one_line(capsys, line):
    with pytest.raises(SystemExit) as ended:
        main([*line.split(), *(() if "xml" in line else ("--format", "json"))])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out, shown.err.count("\n")) == (2, "", 1)


def test_a_report_in_json_is_all_of_standard_output(tmp_path, capsys):
    """Also `gate`: its exit code is in the object."""
    made = mixed()
    file = ResultsFile(tmp_path / "results.jsonl")
    for record in (made.run, *made.rows, made.end):
        file.append(record)
    file.close()
    limits = tmp_path / "gate.toml"
    limits.write_text('[[claim]]\nimpl = "quack"\nover = "torch-eager"\nat_least = 1.2\n')
    for arguments in (["report", str(file.path)], ["gate", str(file.path), "--config", str(limits)]):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--format", "json"])
        printed, error = capsys.readouterr()
        assert printed, error
        assert faults(arguments[0], printed) == []
        assert json.loads(printed).get("exit_code", ended.value.code) == ended.value.code
