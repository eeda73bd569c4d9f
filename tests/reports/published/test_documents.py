"""Documents are what the published files give, byte for byte, and a new device stands in them by itself."""

import gzip
import re
from functools import cache
from pathlib import Path

import matplotlib
import pytest

from harness.records.contexts import ALL_REDUCE, STEP, programs_beside
from harness.records.published_plan import published_files, read_plan
from harness.verify.error_classes import CLASSES
from reports.published.documents import documents, write_all
from reports.published.run_facts import FLUSHES
from reports.published.sources import sources
from tests.reports.published.small_checkout import make

ROOT = Path(__file__).parents[3]
DRAWN_WITH = next(
    line.removeprefix("matplotlib==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line.startswith("matplotlib==")
)
OF_ALL_RUNS = ("docs/results.md", "site/index.html")


@cache
def published():
    """The documents of this checkout by their paths."""
    return {document.path: document for document in documents()}


def one_process(path):
    """What is written from all runs stays in one process of the tests, where each run is compared once."""
    return pytest.param(path, marks=pytest.mark.xdist_group("documents") if path in OF_ALL_RUNS else ())


@pytest.mark.parametrize("path", [one_process(path) for path in published() if not path.endswith(".svg")])
def test_document_is_what_its_files_give(path):
    assert (ROOT / path).read_text("utf-8") == published()[path].text()


@pytest.mark.skipif(matplotlib.__version__ != DRAWN_WITH, reason="another matplotlib draws other bytes")
@pytest.mark.parametrize("path", [path for path in published() if path.endswith(".svg")])
def test_picture_is_what_its_file_gives(path):
    assert (ROOT / path).read_text("utf-8") == published()[path].text()
    assert (ROOT / path).stat().st_size < 150_000


def test_every_report_and_picture_is_written():
    here = [path for folder in ("results", "docs/plots") for path in (ROOT / folder).rglob("*") if path.is_file()]
    made = {path.relative_to(ROOT).as_posix() for path in here if path.suffix in (".md", ".svg")}
    assert made == {path for path in published() if path.startswith(("results/", "docs/plots/"))}


def test_page_is_small():
    page = (ROOT / "site/index.html").read_bytes()
    devices = len({device for device, _, _ in published_files()})
    assert len(page) < 1_250_000 * devices  # all runs of the plan on a device are about 1.2 MB
    assert len(gzip.compress(page)) < 350_000 * devices  # what a server that compresses sends


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A checkout of few results on one device, its documents written."""
    checkout = make(tmp_path_factory.mktemp("small"))
    assert sorted(write_all(checkout=checkout)) == sorted(document.path for document in documents(checkout))
    return checkout


def test_what_was_written_is_not_written_again(small):
    assert write_all(check=True, checkout=small) == []
    assert "The rest." in (small / "README.md").read_text("utf-8")


FIGURES = {
    "results/h200/timed.md": "2.00",
    "README.md": "2.00",
    "docs/peers.md": "0.50",
    "docs/results.md": "2.00",
    "results/README.md": "abc1234",
    "site/index.html": "|1.996 [",
    "docs/plots/bandwidth-rms.svg": "1024",
}


@pytest.mark.parametrize("path", FIGURES)
def test_changed_figure_is_found(small, path):
    before = (small / path).read_text("utf-8")
    figure = FIGURES[path]
    assert figure in before
    changed = before.replace(figure, figure.replace("0", "7").replace("1", "3"), 1)
    (small / path).write_text(changed, "utf-8")
    try:
        assert write_all(check=True, checkout=small) == [path]
        assert (small / path).read_text("utf-8") == changed, "a check writes nothing"
    finally:
        (small / path).write_text(before, "utf-8")


def test_what_is_not_measured_is_marked(small):
    assert "Planned and not measured: later." in (small / "docs/results.md").read_text("utf-8")
    assert '{"device":"h200","name":"later","about":"what nobody had the time for"}' in page(small)


def test_age_is_marked(small):
    age = "before hashes of the code were recorded"
    assert "| abc1234, stale |" in (small / "docs/results.md").read_text("utf-8")
    for path in ("results/README.md", "results/h200/timed.md", "site/index.html"):
        assert age in (small / path).read_text("utf-8"), path


AGE = "Measured on 2025-06-01 at revision abc1234"


def test_picture_says_that_it_is_stale(small, monkeypatch):
    """And does not where the code is the same."""
    assert f"{AGE}; **stale**: not of the code" in caption(small / "README.md")
    monkeypatch.setattr("reports.published.sources.stale_because", lambda *_, **__: ())
    (front,) = [each for each in documents(small) if each.path == "README.md"]
    assert f"{AGE}." in front.text()
    assert "stale" not in front.text()


def test_readme_has_a_table_of_the_device_with_most_runs_and_a_paragraph_of_every_other(tmp_path):
    """Which says how old it is, as the caption of the picture does for the table."""
    checkout = make(tmp_path, devices=("b200", "h200"))
    (checkout / "results/b200/again.jsonl.bz2").unlink()
    write_all(checkout=checkout)
    front = (checkout / "README.md").read_text("utf-8")
    assert caption(checkout / "README.md").startswith("The RMSNorm backward on NVIDIA H200; ")
    assert AGE in caption(checkout / "README.md")
    assert front.count("Speedup over torch-eager on NVIDIA H200: ") == front.count("Speedup over ") == 1
    (other,) = [line for line in front.splitlines() if line.startswith("On NVIDIA B200: ")]
    assert "Geometric means of triton-inhouse: cold: rms 2.00, layer 2.00, over torch-eager." in other
    assert other.count(AGE) == 1
    assert other.endswith(" [Every shape](results/b200/timed.md).")


def test_devices_with_as_many_runs_stand_by_name(tmp_path):
    checkout = make(tmp_path, devices=("h200", "b200"))
    write_all(checkout=checkout)
    text = (checkout / "docs/results.md").read_text("utf-8")
    assert text.index("## NVIDIA B200") < text.index("## NVIDIA H200")
    assert caption(checkout / "README.md").startswith("The RMSNorm backward on NVIDIA B200; ")


def caption(path):
    """What stands under the picture of a front page."""
    return path.read_text("utf-8").partition(".svg)\n\n")[2].partition("\n<!-- end -->")[0]


def test_published_picture_is_marked_as_its_run_is():
    source = next(source for source in sources(read_plan()) if source.name == "fast-llm")
    said = caption(ROOT / "README.md")
    assert said.count("\n") == 0
    assert said.endswith(source.age)
    assert ("**stale**" in said) == source.stale


PAGES = [path for path in published() if re.fullmatch(r"results/[^/]+/.*", path)]


@pytest.mark.parametrize("path", PAGES)
def test_page_says_of_each_of_its_files_whether_it_is_stale(path):
    found = {source.name: source for source in sources(read_plan()) if source.device == Path(path).parent.name}
    files = [found[name] for name in read_plan().pages[Path(path).name].of]
    lines = (ROOT / path).read_text("utf-8").splitlines()
    for source in files:
        (line,) = [line for line in lines if line.startswith(f"- [{source.name}.jsonl.bz2]({source.name}.jsonl.bz2): ")]
        assert source.about in line
        assert (f"**{source.mark}**" in line) == source.stale
        assert (source.planned_now or "The plan now asks") in line or not source.planned_now


def test_page_of_a_current_file_is_not_marked(small, monkeypatch):
    """A file with hashes of the code as it is, and the same file after a change of that code."""
    text = (small / "results/h200/timed.md").read_text("utf-8")
    assert "**measured at revision abc1234; stale: " in text
    monkeypatch.setattr("reports.published.sources.stale_because", lambda *_, **__: ())
    monkeypatch.setattr("reports.published.sources.mark", lambda *_: "measured at revision abc1234")
    (page,) = [each for each in documents(small) if each.path == "results/h200/timed.md"]
    assert "stale" not in page.text().partition("|")[0]


def test_new_device_stands_everywhere(tmp_path):
    """One that has a profile and one that has none."""
    checkout = make(tmp_path, devices=("b200", "h200", "acme-9000"))
    write_all(checkout=checkout)
    for device in ("b200", "acme-9000"):
        assert (checkout / f"results/{device}/timed.md").exists()
        for path in ("README.md", "docs/peers.md", "docs/results.md", "results/README.md", "site/index.html"):
            assert f"NVIDIA {device.upper()}" in (checkout / path).read_text("utf-8"), path


def test_speedups_of_a_run_in_several_contexts_name_theirs(small):
    text = (small / "docs/results.md").read_text("utf-8")
    assert text.count("| cold: rms 2.00, layer 2.00, over torch-eager |") == 1


AGES = {
    "changed in vain": ("measured at revision abc1234; what has changed since changes no figure here", ()),
    "a part": ("measured at revision abc1234; 1 of 5 processes so far", ()),
    "stale": ("measured at revision abc1234; stale: the code has changed", ("the code has changed",)),
}


@pytest.mark.parametrize("age", AGES)
def test_page_says_of_a_run_what_documents_say(small, monkeypatch, age):
    said, reasons = AGES[age]
    monkeypatch.setattr("reports.published.sources.mark", lambda *_: said)
    monkeypatch.setattr("reports.published.sources.stale_because", lambda *_, **__: reasons)
    by_path = {each.path: each.text() for each in documents(small)}
    assert f'"age":"{said}"' in by_path["site/index.html"]
    assert f'"stale":{"true" if reasons else "false"}' in by_path["site/index.html"]
    assert said in by_path["results/h200/timed.md"]
    assert "with the code as it is" not in by_path["site/index.html"]


def test_page_explains_every_context_that_it_offers():
    """Those of a run, those that are of a flush, and that of two GPUs, which no option asks for."""
    names = {"beside:N" if programs_beside(name) else name for name in (*STEP, ALL_REDUCE)}
    (said,) = re.findall("<dt>context</dt><dd>(.*)</dd>", (ROOT / "reports/templates/site.html").read_text("utf-8"))
    assert set(re.findall("<b>([^<]+)</b>: ", said)) == names | set(filter(None, FLUSHES.values()))


def test_page_states_the_bounds_of_rho():
    bounds = (f"{bound:g} {name}" for bound, name in CLASSES[1:])
    said = (ROOT / "reports/templates/site.html").read_text("utf-8")
    assert f"up to {CLASSES[0][0]:g} is exact, {', '.join(bounds)}, and beyond wrong." in said


def page(checkout):
    return (checkout / "site/index.html").read_text("utf-8")
