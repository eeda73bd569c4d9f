"""The reader's page in a headless Chromium: choose, see it change, take it away; on a phone and on a desk."""

from itertools import product
from pathlib import Path

import pytest

from reports.published.documents import write_all
from tests.reports.page_checks import is_readable_in_light_and_dark
from tests.reports.published.small_checkout import make

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[3]
RANKING = "rows => rows.filter(row => row.cells[3].textContent).map(row => row.cells[0].firstChild.textContent)"
CUT = """selects => selects.filter(select => {
  const pen = document.createElement("canvas").getContext("2d"), style = getComputedStyle(select);
  pen.font = style.font;
  const text = pen.measureText(select.selectedOptions[0].textContent).width;
  return select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) < text;
}).map(select => select.name)"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The page of two devices with the same few results."""
    checkout = make(tmp_path_factory.mktemp("site"), devices=("b200", "h200"))
    write_all(checkout=checkout)
    return checkout / "site/index.html"


@pytest.fixture
def opened(opener, small):
    return opener(small)()


def field(page, name):
    page.evaluate("document.getElementById('rest').open = true")
    return page.locator(f"#choose select[name={name}]")


def options(page, name):
    return field(page, name).locator("option").all_inner_texts()


def ranking(page, device="b200"):
    """The names in the ranking of a device, the fastest first."""
    return page.locator(f"[data-device={device}] .ranking tbody tr").evaluate_all(RANKING)


def test_first_case_is_there_at_once(opened):
    page = opened.page
    assert page.locator("#case").inner_text() == "RMSNorm backward, 32768 x 1024, bf16, cold on NVIDIA B200"
    assert page.locator(".answer").inner_text().startswith("quack is fastest: 1.1")
    cells = page.locator(".ranking tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].slice(0, 3).map(cell => cell.textContent))"
    )
    assert cells == [
        ["quack", "yes", "no"],
        ["triton-inhouse", "yes", "yes"],
        ["liger", "yes", "yes"],
        ["torch-eager", "yes", "yes"],
        ["compiled", "wrong", ""],
    ]
    assert page.locator(".panel").get_by_text("A/A band ±1.92 %.").count() == 1
    assert page.title() == "RMSNorm backward, 32768 x 1024, bf16, cold on NVIDIA B200 - normbwd"


def test_every_choice_changes_what_is_shown(opened):
    page = opened.page
    assert options(page, "shape") == ["32768 x 1024", "16384 x 2048", "8192 x 4096"]
    field(page, "shape").select_option("8192 x 4096")
    assert ranking(page) == ["triton-inhouse", "quack", "liger", "torch-eager"]
    field(page, "context").select_option("graph")
    assert ranking(page) == ["triton-inhouse", "quack", "torch-eager"]
    assert page.locator("#again").text_content() == "normbwd bench --device b200 --shapes 32768x1024"
    field(page, "variant").select_option("residual")
    assert "8192 x 4096, bf16, residual, graph" in page.locator("#case").inner_text()
    field(page, "norm").select_option("layer")
    assert (
        page.locator("#case").inner_text() == "LayerNorm backward, 4096 x 4096, fp16, weight fp32, graph on NVIDIA B200"
    )
    assert options(page, "dtype") == ["fp16, weight fp32"]
    field(page, "norm").select_option("rms")
    assert "8192 x 4096, bf16, residual, graph" in page.locator("#case").inner_text(), "what was chosen is kept"


@pytest.mark.parametrize(
    "typed",
    ["8192x4096", "8192 x 4096", "8192×4096", "8192,4096", "8,192 by 4,096", " 8192X4096 ", "8192*4096", "8192 4096"],
)
def test_size_is_found_in_any_spelling(opened, typed):
    page = opened.page
    field(page, "context").select_option("graph")
    page.get_by_label("rows x columns").fill(typed)
    page.get_by_role("button", name="Show").click()
    assert page.locator("#case").inner_text() == "RMSNorm backward, 8192 x 4096, bf16, graph on NVIDIA B200"
    assert page.locator("#unmet").inner_text() == ""


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("8192x5000", "8192 x 5000 was not measured here. The nearest size is shown: 8192 x 4096."),
        (
            "4096x4096",
            "4096 x 4096 was not measured here. The nearest size is shown: 8192 x 4096.",
        ),  # as LayerNorm it was
        ("large", "Write rows x columns, such as 4096x2048."),
    ],
)
def test_size_that_is_not_there_is_told(opened, typed, said):
    opened.page.get_by_label("rows x columns").fill(typed)
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("#unmet").inner_text() == said


def test_run_leads_to_its_files(opened, small):
    page = opened.page
    row = page.locator("#runs tr", has=page.locator("#run-b200-timed"))
    links = row.locator("a").evaluate_all("links => links.map(link => link.href)")
    assert [link.rsplit("/", 3)[1:] for link in links] == [
        ["results", "b200", "timed.jsonl.bz2"],
        ["results", "b200", "timed.md"],
    ]
    assert all(Path(link.removeprefix("file://")).is_file() for link in links)


def test_address_brings_back_what_was_chosen(opener, small):
    page = opener(small)().page
    field(page, "shape").select_option("8192 x 4096")
    field(page, "context").select_option("graph")
    shown, address = page.locator("#panels").inner_text(), page.url
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("#panels").inner_text() == shown


@pytest.mark.parametrize(
    ("address", "case", "run"),
    [
        ("run=again", "RMSNorm backward, 16384 x 2048, bf16, cold on NVIDIA B200", "again"),
        ("run=again&device=h200", "RMSNorm backward, 16384 x 2048, bf16, cold on NVIDIA H200", "again"),
        ("shape=4096 x 4096", "LayerNorm backward, 4096 x 4096, fp16, weight fp32, cold on NVIDIA B200", None),
        ("context=graph", "RMSNorm backward, 32768 x 1024, bf16, graph on NVIDIA B200", None),
    ],
)
def test_address_that_names_little_opens_the_first_case_that_has_it(opener, small, address, case, run):
    page = opener(small)().page
    page.goto(f"{small.as_uri()}#{address}")
    assert page.locator("#case").inner_text() == case
    assert field(page, "run").count() == (run is not None)
    assert run is None or field(page, "run").input_value() == run
    assert page.locator("#unmet").inner_text() == ""


@pytest.mark.parametrize(
    ("address", "left_out"),
    [
        ("run=verified", "run verified"),
        ("run=nothing", "run nothing"),
        ("run=again&shape=8192 x 4096", "run again"),
        ("norm=layer&context=host", "context host"),
    ],
)
def test_address_that_no_case_meets_is_told(opener, small, address, left_out):
    page = opener(small)().page
    page.goto(f"{small.as_uri()}#{address}")
    said = f"No case here has all that the address asks for: left out is {left_out}. This case is of run timed."
    assert page.locator("#unmet").inner_text() == said
    field(page, "norm").select_option("layer")
    assert page.locator("#unmet").inner_text() == "", "what a reader chooses is there"


def test_two_devices_stand_beside_each_other(opened):
    page = opened.page
    field(page, "beside").select_option("h200")
    assert page.locator("#panels h3").first.inner_text() == "NVIDIA B200"
    assert ranking(page, "b200") == ranking(page, "h200") == ["quack", "triton-inhouse", "liger", "torch-eager"]
    field(page, "device").select_option("h200")
    assert page.locator(".panel").count() == 1


def test_bandwidths_of_all_sizes_are_a_table(opened):
    page = opened.page
    page.get_by_text("Bandwidth by size").click()
    rows = page.get_by_label("bandwidth in GB/s", exact=True).locator("tbody tr")
    assert "quack" in page.get_by_label("bandwidth in GB/s", exact=True).locator("thead").inner_text()
    assert [row.split()[0] for row in rows.all_inner_texts()] == ["32768", "16384", "8192"]


def test_why_something_is_not_ranked(opened):
    page = opened.page
    page.get_by_text("not ranked, refused or with a remark").click()
    told = page.get_by_label("not ranked", exact=True).inner_text()
    assert "dweight is off by rho 4.2" in told
    assert "not installed: apex" in told


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_window(opener, small, width):
    page = opener(small)().page
    page.set_viewport_size({"width": width, "height": 800})
    field(page, "beside").select_option("h200")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [400, 1400])
def test_right_same_bits_and_speedup_are_in_sight(opener, small, width):
    page = opener(small)().page
    page.set_viewport_size({"width": width, "height": 800})
    for head in ("right", "same bits", "speedup [95 %]"):
        box = page.get_by_role("columnheader", name=head, exact=True).first.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def test_published_page_asks_for_nothing_and_complains_of_nothing(opener):
    found = opener(ROOT / "site/index.html")()
    page = found.page
    for place, width in product(range(len(options(page, "device"))), (1400, 400)):
        page.set_viewport_size({"width": width, "height": 800})
        field(page, "device").select_option(index=place)
        assert page.locator("select").evaluate_all(CUT) == [], "no select cuts its text"
    for name in ("norm", "dtype", "context", "shape"):
        for place in range(len(options(page, name))):
            field(page, name).select_option(index=place)
            assert page.locator(".ranking tbody tr").count() > 0
            assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert found.complaints == []
    assert found.requests == [page.url.partition("#")[0]]


def test_page_is_readable_in_light_and_dark(opener, small):
    is_readable_in_light_and_dark(opener(small))


def test_without_scripts_it_says_where_the_figures_are(opener, small):
    page = opener(small)(java_script_enabled=False).page
    assert page.get_by_text("docs/results.md").is_visible()
    assert not page.locator("main").is_visible()
