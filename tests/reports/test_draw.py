import hashlib

import pytest

import reports
from harness.analysis.comparison import compare
from harness.cases import NormCase
from harness.errors import UsageError
from harness.records.file import Results
from reports.plots.draw import draw, largest, write
from tests.results_factory import CASE, LAYER, careful, helpers, mixed, profiled, results, row


def names(measured: Results) -> list[str]:
    return [name for name, _ in draw(compare(measured))]


def test_a_file_of_single_sizes_has_no_curves():
    assert names(mixed()) == [
        "speedup-rms",
        "precision-rms",
        f"kernels-{CASE.key}",
        "speedup-layer",
        "precision-layer",
        f"kernels-{LAYER.key}",
    ]


def test_the_largest_case_of_each_norm_that_has_times():
    small, strided = NormCase("rms", 64, 64), NormCase("rms", 1 << 20, 64, inputs="strided-x")
    rows = [row("quack", 60.0, small), *mixed().rows, row("quack", 60.0, strided)]
    rows.append(row("quack", case=NormCase("layer", 1 << 20, 64, bias=True), untimed="too large"))
    assert [case.case for case in largest(compare(results(*rows)))] == [CASE, LAYER]


def test_at_most_eight_plots_are_made_unless_all_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("reports.plots.draw.save", lambda figure, path: path.touch())
    cases = [NormCase(norm, 8192 // size, 1024 * size) for norm in ("rms", "layer") for size in (1, 2, 4)]
    rows = [profiled(row("quack", 60.0, case), ("a", 0.0, 40.0)) for case in cases]
    file = results(
        *rows, *(each for case in cases for each in (row("torch-eager", 90.0, case), *helpers(90.0, 14.0, case)))
    )
    reports.write(file, "plots", tmp_path / "few")
    assert len(list((tmp_path / "few").glob("*.png"))) == 8
    reports.write(file, "all-plots", tmp_path / "all")
    shown = {path.name for path in (tmp_path / "all").glob("*.png")}
    assert shown >= {f"kernels-{case.key}.png" for case in cases}
    assert len(shown) > 8


def test_plots_are_written_reproducibly_in_both_forms(tmp_path):
    digests = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        files = write([compare(mixed())], folder)
        assert [path.name for path in files] == [f"{name}.{form}" for name in names(mixed()) for form in ("svg", "png")]
        digests.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])
    assert digests[0] == digests[1]


def test_every_plot_says_device_dtype_and_date():
    for _, figure in [*draw(compare(mixed())), *draw(compare(careful()))]:
        title = figure.get_suptitle()
        assert title.startswith("NVIDIA H200, ")
        assert "bf16" in title
        assert title.endswith(", 2025-06-01")


@pytest.mark.parametrize("measured", [results(row("quack", status="missing", reason="not here"))])
def test_a_file_of_which_nothing_can_be_drawn_is_an_error(tmp_path, measured):
    with pytest.raises(UsageError, match=r"^nothing in these results can be drawn: [^\n]*$"):
        reports.write(measured, "plots", tmp_path / "plots")
    assert not (tmp_path / "plots").exists()


def test_without_a_folder_it_is_said(tmp_path):
    with pytest.raises(UsageError, match="give a folder with --out"):
        reports.write(mixed(), "plots")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*file: .*; give a writable folder with --out"):
        reports.write(mixed(), "plots", tmp_path / "file")
