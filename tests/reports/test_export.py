import csv
import io
import json

import pytest

import reports
from harness.analysis.comparison import compare
from reports.formats.export import to_csv, to_json
from tests.results_factory import helpers, mixed, results, row, thorough, timing


def table(comparison):
    return list(csv.DictReader(io.StringIO(to_csv(comparison))))


def test_csv_has_a_line_a_row(golden):
    comparison = compare(mixed())
    assert [line["impl"] for line in table(comparison)] == [e.impl for case in comparison.cases for e in case.entries]
    golden("columns.txt", "\n".join(to_csv(comparison).splitlines()[0].split(",")) + "\n")


def test_a_failed_row_has_no_time_in_the_csv():
    line = next(line for line in table(compare(mixed())) if line["status"] == "wrong")
    assert (line["impl"], line["median_us"], line["speedup"]) == ("quack", "", "")


def test_json_is_the_comparison_without_samples():
    data = json.loads(to_json(compare(mixed())))
    assert data["run"]["device"]["name"] == "NVIDIA H200"
    assert data["cases"][0]["key"] == "rms-8192x4096-bf16"
    assert data["cases"][0]["entries"][0]["speedup"]["blocks"] == 40
    assert "samples_us" not in to_json(compare(mixed()))


def test_export_has_budget_and_full_kernel_names():
    comparison = compare(thorough())
    data = json.loads(to_json(comparison))
    assert (data["budget"]["fixed_us"], data["selftests"][1]["checks"][0]["name"]) == (1.9, "events against profiler")
    assert data["state"]["sm_clock_mhz"] == {"smallest": 1755, "largest": 1980, "moved_cases": 1}
    assert data["end"]["stages_s"]["preparing"] == 40.0
    quack = next(entry for entry in data["cases"][0]["entries"] if entry["impl"] == "quack")
    assert (quack["processes"], quack["speedup"]["processes"], quack["kernel_totals"]["union_us"]) == (3, 3, 53.0)
    assert quack["kernels"][0]["name"].startswith("kernel_cutlass_kernel_quackrmsnormRMSNormBackward_object_at_")
    line = next(line for line in table(comparison) if line["impl"] == "quack")
    assert (line["processes"], line["blocks"]) == ("3", "120")
    assert float(line["percent_of_copy"]) == 100 * float(line["bandwidth_gbps"]) / 4276


def test_an_interval_without_end_is_null():
    few = [row("torch-eager", 100.0, timed=timing(100.0, blocks=3)), row("quack", 50.0, timed=timing(50.0, blocks=3))]
    comparison = compare(results(*few, *helpers(100.0, 46.0)))
    data = json.loads(to_json(comparison))
    assert data["cases"][0]["entries"][0]["speedup"]["high"] is None
    assert table(comparison)[0]["speedup_high"] == ""


def test_the_points_of_a_commit_for_github_action_benchmark():
    points = json.loads(reports.render(mixed(), "github-action-benchmark"))
    assert {point["name"].split()[1] for point in points} == {
        "torch-eager",
        "triton-inhouse",
        "quack",
        "liger",
        "compiled",
    }
    (quack,) = [point for point in points if "quack" in point["name"]]  # it is wrong on the other case
    assert (quack["name"], quack["unit"]) == ("rms-8192x4096-bf16 quack", "us")
    assert quack["value"] == pytest.approx(54.2, rel=0.2)
    assert quack["extra"].startswith("speedup over torch-eager: 3.3")


def test_the_records_of_pytorch_hud_have_the_fields_of_schema_v3():
    records = json.loads(reports.render(mixed(), "pytorch-hud"))
    assert {record["schema_version"] for record in records} == {"v3"}
    latency, speedup = [record for record in records if record["model"]["backend"] == "quack"]
    assert latency["model"]["name"] == "rms-8192x4096-bf16"
    assert latency["benchmark"] == {"name": "normbwd", "mode": "bwd", "dtype": "bf16"}
    assert latency["runners"][0]["gpu_info"] == "NVIDIA H200"
    assert [record["metric"]["name"] for record in (latency, speedup)] == ["latency_us", "speedup"]
    assert all(isinstance(value, float) for record in records for value in record["metric"]["benchmark_values"])
