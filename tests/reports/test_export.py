import csv
import io
import json

from reports.comparison import compare
from reports.export import COLUMNS, to_csv, to_json
from tests.results_factory import helpers, mixed, results, row, timing


def table(comparison):
    return list(csv.DictReader(io.StringIO(to_csv(comparison))))


def test_csv_has_a_line_a_row(golden):
    comparison = compare(mixed())
    assert [line["impl"] for line in table(comparison)] == [e.impl for case in comparison.cases for e in case.entries]
    golden("columns.txt", "\n".join(COLUMNS) + "\n")


def test_csv_cells():
    line = next(line for line in table(compare(mixed())) if line["impl"] == "liger")
    assert (line["case"], line["rows"], line["status"]) == ("rms-8192x4096-bf16", "8192", "nondeterministic")
    assert 2.38 < float(line["speedup_low"]) < float(line["speedup"]) < float(line["speedup_high"]) < 2.42
    assert (line["rho_dweight"], line["rho_dbias"], line["differing_in"]) == ("1.0", "", "dweight")


def test_a_failed_row_has_no_time_in_the_csv():
    line = next(line for line in table(compare(mixed())) if line["status"] == "wrong")
    assert (line["impl"], line["median_us"], line["speedup"]) == ("quack", "", "")


def test_json_is_the_comparison_without_samples():
    data = json.loads(to_json(compare(mixed())))
    assert data["run"]["device"]["name"] == "NVIDIA H200"
    assert data["cases"][0]["key"] == "rms-8192x4096-bf16"
    assert data["cases"][0]["entries"][0]["speedup"]["blocks"] == 40
    assert "samples_us" not in to_json(compare(mixed()))


def test_an_interval_without_end_is_null():
    few = [row("torch-eager", 100.0, timed=timing(100.0, blocks=3)), row("quack", 50.0, timed=timing(50.0, blocks=3))]
    comparison = compare(results(*few, *helpers(100.0, 46.0)))
    data = json.loads(to_json(comparison))
    assert data["cases"][0]["entries"][0]["speedup"]["high"] is None
    assert table(comparison)[0]["speedup_high"] == ""
