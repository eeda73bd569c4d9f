"""`normbwd documents` writes what the published files give, and `--check` names what differs."""

import shutil
from dataclasses import replace

import pytest

from harness.errors import UsageError
from reports.published import sources as published_files
from reports.published.documents import documents, write_all
from tests.reports.published.small_checkout import CASES, make, publish, timed


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A checkout with results of one device and its documents; not to be changed."""
    checkout = make(tmp_path_factory.mktemp("written"))
    assert sorted(write_all(checkout=checkout)) == sorted(documents(checkout))
    return checkout


@pytest.fixture
def checkout(written, tmp_path):
    return shutil.copytree(written, tmp_path / "checkout")


def text(checkout, path):
    return (checkout / path).read_text("utf-8")


def test_what_was_written_is_not_written_again(written):
    assert write_all(check=True, checkout=written) == []
    assert text(written, "README.md").startswith("# Front\n\n<!-- written: fastest -->\n| library")
    assert text(written, "README.md").endswith("<!-- end -->\n\nThe rest.\n")


def test_changed_figures_are_named_and_nothing_is_written(checkout):
    figures = {
        "results/h200/timed.md": "2.00",
        "README.md": "2.00",
        "docs/results.md": "| 5 |",
        "site/index.html": '"1.996 [',
        "docs/plots/bandwidth-rms.svg": "1024",
    }
    before = {path: text(checkout, path) for path in figures}
    for path, figure in figures.items():
        assert figure in before[path]
        (checkout / path).write_text(before[path].replace(figure, "777", 1), "utf-8")
    assert sorted(write_all(check=True, checkout=checkout)) == sorted(figures)
    assert all("777" in text(checkout, path) for path in figures)
    assert sorted(write_all(checkout=checkout)) == sorted(figures)
    assert {path: text(checkout, path) for path in figures} == before


def test_readme_has_a_short_table_and_how_it_was_measured(written):
    lines = text(written, "README.md").splitlines()
    assert [line for line in lines if line.startswith("| ")] == [
        "| library | h200, RMSNorm | h200, LayerNorm | fastest in |",
        "| triton-inhouse | 2.00 | 2.00 | 3, tied in 1 |",
        "| quack (same bits in 0 of 5) | 1.90 | 1.46 | 1, tied in 1 |",
        "| liger | 1.33 | 1.33 | 0 |",
        "| torch-eager | 1.00 | 1.00 | 0 |",
    ]
    assert any(line.startswith("A few shapes: geometric mean speedups over torch-eager; ") for line in lines)
    (measured,) = [line for line in lines if line.startswith("Measured: ")]
    assert any(line.startswith("Best variant: chosen case by case") for line in lines)
    assert measured.startswith(
        "Measured: [NVIDIA H200](results/h200/timed.md), 2025-06-01, **stale**; engine version 0"
    )


def test_readme_has_every_device_beside_the_others(tmp_path):
    """A variant that is better stands in brackets; what is outside its purpose is named below the table."""
    checkout = make(tmp_path)
    fields = {"quack": {"family": "liger", "for_speed": ["compiled"]}, "compiled": {"outside": "not for here"}}
    run = timed(CASES[:2])
    impls = [impl.model_copy(update=fields.get(impl.name, {})) for impl in run.run.implementations]
    run = replace(run, run=run.run.model_copy(update={"implementations": sorted(impls, key=lambda impl: impl.name)}))
    publish(run, checkout / "results/acme-9000/timed.jsonl.bz2", "acme-9000")
    write_all(checkout=checkout)
    front = text(checkout, "README.md")
    assert "| library | h200, RMSNorm | h200, LayerNorm | acme-9000, RMSNorm | first in |" in front
    assert "| liger | 1.33 | 1.33 | 1.33 (2.14) | 1, tied in 1 |" in front
    assert "| torch-eager | 1.00 | 1.00 | 1.00 | 0 |" in front
    assert "Not every variant was measured, so none is called fastest." in front


def test_results_page_counts_the_places_of_the_in_house_kernel(written):
    page = text(written, "docs/results.md")
    assert "| [timed](../results/h200/timed.md) | 2025-06-01, stale | 5 | 3 | 1 | 1 | 0 |" in page
    assert "| [timed](../results/h200/timed.md), graph | 2025-06-01, stale | 5 | 3 | 1 | 1 | 0 |" in page
    assert "| verified | 2025-06-01, stale |" in page
    assert "Not measured: later." in page


def test_each_case_in_each_context_is_tallied_once(written):
    page = text(written, "docs/results.md")
    assert "| device, norm | ahead | tied | behind | no verdict | lead over the best other | measured |" in page
    assert "| NVIDIA H200, RMSNorm | 4 | 2 | 2 | 0 | 1.06 (0.88 to 1.25) | 2025-06-01, stale |" in page
    assert "| NVIDIA H200, LayerNorm | 2 | 0 | 0 | 0 | 1.38 (1.38 to 1.38) | 2025-06-01, stale |" in page
    assert "On the GPUs measured, with engine version 0, torch 2.11.0" in page
    assert "a lead whose interval reaches into ±3.56 %" in page


def test_new_device_stands_everywhere_behind_that_with_more_runs(tmp_path):
    checkout = make(tmp_path, devices=("acme-9000", "h200"))
    (checkout / "results/acme-9000/again.jsonl.bz2").unlink()
    write_all(checkout=checkout)
    page = text(checkout, "docs/results.md")
    assert page.index("## NVIDIA H200") < page.index("## NVIDIA ACME-9000")
    assert "NVIDIA ACME-9000" in text(checkout, "site/index.html")
    assert "NVIDIA H200](results/h200/timed.md), 2025-06-01, **stale**; [NVIDIA ACME" in text(checkout, "README.md")
    assert (checkout / "results/acme-9000/timed.md").exists()
    (checkout / "results/acme-9000/timed.jsonl.bz2").unlink()
    assert "results/acme-9000/timed.md" in write_all(check=True, checkout=checkout)
    assert "results/acme-9000/timed.md" in write_all(checkout=checkout)
    assert not (checkout / "results/acme-9000/timed.md").exists(), "no file gives it any more"


def test_each_file_is_loaded_and_compared_once(tmp_path, monkeypatch):
    checkout, calls = make(tmp_path), []
    load, compare = published_files.load, published_files.compare
    monkeypatch.setattr(published_files, "load", lambda path: calls.append(path.name) or load(path))
    monkeypatch.setattr(published_files, "compare", lambda run: calls.append(run.run.started_at) or compare(run))
    write_all(checkout=checkout)
    assert len(calls) == 2 * 3


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("README.md", "README.md: No such file"),
        ("results/plan.toml", "plan.toml"),
        ("results/h200/timed.jsonl.bz2", "the picture is of timed, which no device has; publish it first"),
    ],
)
def test_what_is_missing_is_one_clear_line(checkout, path, words):
    (checkout / path).unlink()
    with pytest.raises(UsageError, match=words) as error:
        write_all(checkout=checkout)
    assert "\n" not in str(error.value)


def test_unknown_section_is_one_clear_line(checkout):
    (checkout / "docs/results.md").write_text("<!-- written: nothing -->\n<!-- end -->\n", "utf-8")
    with pytest.raises(UsageError, match=r"no section 'nothing'; .* takes fastest, tallies, runs"):
        write_all(checkout=checkout)
