"""The reader's page in a headless Chromium: choose, see it change, take it away; on a phone and on a desk."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cases import NormCase
from reports.published.documents import write_all
from reports.published.run_facts import COLUMNS
from tests.reports.page_checks import is_readable_in_light_and_dark
from tests.reports.published.small_checkout import make, publish, timed
from tests.results_factory import in_processes, verification

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[3]
RANKING = "rows => rows.map(row => row.cells[0].firstChild.textContent)"


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
    assert ranking(page) == ["quack", "triton-inhouse", "liger", "torch-eager"]
    assert page.locator(".ranking .badge").all_inner_texts() == ["nondeterministic"]
    assert page.locator(".panel").get_by_text("A/A band ±1.92 %.").count() == 1
    assert page.locator("figcaption").all_inner_texts() == ["32 Mi elements"]
    assert page.title() == "RMSNorm backward, 32768 x 1024, bf16, cold on NVIDIA B200 - normbwd"


def test_other_bits_in_a_new_process_alone_have_a_badge_of_their_own(opener, tmp_path):
    checkout, run = make(tmp_path, devices=()), timed(SHUFFLED)
    rows = [
        each.model_copy(update={"verification": verification(each.case, fingerprint=str(each.process))})
        if each.impl == "liger"
        else each
        for each in in_processes(*run.rows, scales=(1.0, 1.0))
    ]
    twice = run.run.model_copy(update={"settings": run.run.settings.changed(processes=2)})
    publish(replace(run, run=twice, rows=rows), checkout / "results/h200/timed.jsonl.bz2", "h200")
    write_all(checkout=checkout)
    page = opener(checkout / "site/index.html")().page
    badges = dict(zip(ranking(page, "h200"), page.locator(".ranking tbody th").all_inner_texts(), strict=True))
    assert "other bits in a new process" in badges["liger"]
    assert "nondeterministic" in badges["quack"]


def test_context_is_named_where_the_run_has_several(opened, opener, tmp_path):
    """In the heading and over the means of all cases; where a run has the usual one alone, neither says it."""
    several, alone = opened.page, opener(shuffled(tmp_path, SHUFFLED, contexts=False))().page
    summary = "All cases of this run{}: geometric means"
    assert several.locator("summary", has_text=summary.format(", cold")).count() == 1
    field(several, "context").select_option("graph")
    assert several.locator("summary", has_text=summary.format(", graph")).count() == 1
    assert alone.locator("#case").inner_text() == "RMSNorm backward, 64 x 4096, bf16 on NVIDIA H200"
    assert alone.locator("summary", has_text=summary.format("")).count() == 1
    assert alone.locator("header").inner_text().count("cold") == 1
    assert alone.locator("#panels").inner_text().count("cold") == 0


def test_every_choice_changes_what_is_shown(opened):
    page = opened.page
    assert options(page, "shape") == ["32768 x 1024", "16384 x 2048", "8192 x 4096"]
    field(page, "shape").select_option("8192 x 4096")
    assert ranking(page) == ["triton-inhouse", "quack", "liger", "torch-eager"]
    field(page, "context").select_option("graph")
    assert ranking(page) == ["triton-inhouse", "quack", "torch-eager"]
    again = page.locator("#again").text_content()
    assert again.startswith("normbwd bench --shapes 8192x4096 --norm rms --impls torch-eager,")
    assert again.endswith(" --seed 7 --context cold,graph")
    field(page, "variant").select_option("residual")
    assert "8192 x 4096, bf16, residual, graph" in page.locator("#case").inner_text()
    field(page, "norm").select_option("layer")
    assert (
        page.locator("#case").inner_text() == "LayerNorm backward, 4096 x 4096, fp16, weight fp32, graph on NVIDIA B200"
    )
    assert options(page, "dtype") == ["fp16, weight fp32"]
    field(page, "norm").select_option("rms")
    assert "8192 x 4096, bf16, residual, graph" in page.locator("#case").inner_text(), "what was chosen is kept"


SHUFFLED = [NormCase("rms", *shape) for shape in [(64, 4096), (32768, 1024), (8192, 4096), (16384, 128), (1024, 2048)]]


def test_shapes_stand_by_size_whatever_was_measured_first(opener, tmp_path):
    """The largest first, as the pictures do; and the first to be shown is the first that was measured."""
    _has_shapes_by_size(opener(shuffled(tmp_path, SHUFFLED))().page)


def _has_shapes_by_size(page):
    assert options(page, "shape") == ["32768 x 1024", "8192 x 4096", "16384 x 128", "1024 x 2048", "64 x 4096"]
    assert field(page, "shape").input_value() == "64 x 4096"


def shuffled(folder, cases, contexts=True):
    """The page of one quick run of these cases, in this order; without `contexts` in the usual one alone."""
    checkout = make(folder, devices=())
    run = timed(cases)
    if not contexts:
        run = replace(run, rows=[row.model_copy(update={"contexts": None}) for row in run.rows])
    quick = run.run.model_copy(update={"settings": run.run.settings.changed(quick=True)})
    publish(replace(run, run=quick), checkout / "results/h200/timed.jsonl.bz2", "h200")
    write_all(checkout=checkout)
    return checkout / "site/index.html"


def test_what_holds_for_a_whole_run_is_said_once(opener, tmp_path):
    _says_once_what_holds_for_a_run(opener(shuffled(tmp_path, SHUFFLED))().page)


def _says_once_what_holds_for_a_run(page):
    for shape in options(page, "shape"):
        field(page, "shape").select_option(shape)
        text = page.locator("main").inner_text()
        assert text.count("A quick run: few blocks, wide intervals.") == 1
        assert text.count("seed 7 where the plan says 0") == 1
        assert page.locator(".panel .stale").inner_text().startswith("Run timed: stale, 1 warning.")
    page.get_by_role("button", name="Read why").click()
    assert page.evaluate("document.activeElement.id") == "run-h200-timed"
    assert "shape=" in page.url, "what was chosen stays in the address"


def test_run_leads_to_its_files(opened, small):
    page = opened.page
    row = page.locator("#runs tr", has=page.locator("#run-b200-timed"))
    links = row.locator("a").evaluate_all("links => links.map(link => link.href)")
    assert [link.rsplit("/", 3)[1:] for link in links] == [
        ["results", "b200", "timed.jsonl.bz2"],
        ["results", "b200", "timed.md"],
    ]
    assert all(Path(link.removeprefix("file://")).is_file() for link in links)


def test_age_of_a_run_is_what_documents_say(opener, small, tmp_path):
    """Of a run that is current, unlike the others."""
    age = "measured at revision abc1234"
    path = tmp_path / "index.html"
    path.write_text(re.sub(r'(?<="age":")[^"]+', age, small.read_text("utf-8"), count=1), "utf-8")
    rows = opener(path)().page.locator("#runs table").first.locator("tbody tr")
    said = [cells[-1] for cells in rows.evaluate_all("rows => rows.map(row => [...row.cells].map(c => c.textContent))")]
    assert said[0] == age
    assert all("stale: " in each and "seed 7 where the plan says 0" in each for each in said[1:])


def test_case_of_two_runs_offers_both(opened):
    page = opened.page
    assert field(page, "run").count() == 0
    field(page, "shape").select_option("16384 x 2048")
    assert options(page, "run") == ["timed", "again"]
    before = page.locator(".ranking tbody td").first.inner_text()
    field(page, "run").select_option("again")
    assert page.locator(".ranking tbody td").first.inner_text() != before


def test_choices_by_keyboard_keep_the_focus(opened):
    page = opened.page
    field(page, "shape").focus()
    page.keyboard.press("ArrowDown")
    assert "16384 x 2048" in page.locator("#case").inner_text()
    assert page.evaluate("document.activeElement.name") == "shape"
    assert all(field(page, name).evaluate("select => select.labels.length") for name in ("device", "norm", "shape"))


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


def test_curves_are_drawn_and_switched(opened):
    page = opened.page
    curves = page.locator(".charts polyline.curve")
    assert curves.count() == 4
    assert page.locator(".charts svg .mark").count() == 12
    page.get_by_label("quack", exact=True).uncheck()
    assert curves.count() == 3
    assert page.evaluate("document.activeElement.dataset.focus") == "curve-quack"
    page.locator(".charts svg .mark").nth(2).click()
    assert "8192 x 4096" in page.locator("#case").inner_text()


def test_precision_and_determinism_are_told(opened):
    page = opened.page
    rows = page.get_by_label("precision and determinism").locator("tbody tr").all_inner_texts()
    assert "triton-inhouse\t1.00\t1.00\texact\tbitwise n=50" in rows
    assert any(row.startswith("quack") and "2 of 50 differ, in dweight" in row for row in rows)
    page.locator("summary", has_text="On every kind of inputs").click()
    assert page.get_by_label("on every kind of inputs").is_visible()


def test_why_something_is_not_ranked(opened):
    page = opened.page
    page.get_by_text("not ranked, refused or with a remark").click()
    told = page.get_by_label("not ranked", exact=True).inner_text()
    assert "dweight is off by rho 4.2" in told
    assert "not installed: apex" in told


def downloaded(page, name):
    with page.expect_download() as download:
        page.get_by_role("button", name=name).click()
    return json.loads(Path(download.value.path()).read_text("utf-8"))


def test_json_can_be_taken_away(opened):
    page = opened.page
    case = downloaded(page, "JSON of this case")
    assert (case["device"], case["shape"], case["stale"][:8]) == ("NVIDIA B200", "32768 x 1024", "measured")
    fastest = case["implementations"][0]
    assert (fastest["impl"], fastest["standing"], fastest["verdict"]) == ("quack", "ranked", "faster")
    assert f"{fastest['us']} [{fastest['us_low']}, {fastest['us_high']}]" in page.locator(".ranking tbody").inner_text()
    assert (case["add_us"], case["gradients"], fastest["rho"]) == ("49.2", ["dx", "dw"], ["1.00", "1.00"])
    figures = ("us", "speedup", "gbps", "gbps_low", "percent_of_add", "why")
    found = {each["impl"]: [each[name] for name in figures] for each in case["implementations"]}
    assert found["torch-eager"] == ["140.6", None, "1433", "1398", "35.0", None]
    assert found["apex"] == [None, None, None, None, None, "not installed: apex"]
    assert all(list(each) == list(COLUMNS) for each in case["implementations"])
    every = downloaded(page, "JSON of everything")
    assert len(every) == 2 * (5 + 1) * 2
    assert case in every


@pytest.mark.parametrize("width", [320, 400, 800, 1400])
def test_nothing_is_wider_than_the_window(opener, small, width):
    page = opener(small)().page
    page.set_viewport_size({"width": width, "height": 800})
    field(page, "beside").select_option("h200")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_published_page_asks_for_nothing_and_complains_of_nothing(opener):
    found = opener(ROOT / "site/index.html")()
    page = found.page
    page.set_viewport_size({"width": 400, "height": 800})
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


FAULTS = {
    "shapes as they were measured": ('if (field === "shape") offered.shape = bySize(left);', ""),
    "warnings with every case": ("warned(run, stale),", 'run.caveats.map(caveat => el("p", {}, caveat)),'),
    "a choice that changes nothing": ("wanted[field] = value; show();", "show();"),
    "a wide picture": ("svg { display: block; width: 100%;", "svg { display: block; width: 900px;"),
    "another run than the address names": ("wanted[field] = first[field];", ""),
    "an address that is not met in silence": ('by("unmet").textContent = unmet(point);', ""),
    "a context that is not named": ("severalContexts(point.of) || point.context !==", "point.context !=="),
    "a request": ('"use strict";', '"use strict"; fetch("https://example.org").catch(() => {});'),
}


OF_ONE_RUN = ("shapes as they were measured", "warnings with every case")


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found(opener, small, tmp_path, fault):
    sound, faulty = FAULTS[fault]
    text = shuffled(tmp_path, SHUFFLED).read_text("utf-8") if fault in OF_ONE_RUN else small.read_text("utf-8")
    assert sound in text
    path = tmp_path / "index.html"
    path.write_text(text.replace(sound, faulty), "utf-8")
    checks = {
        "a choice that changes nothing": lambda: test_every_choice_changes_what_is_shown(opener(path)()),
        "shapes as they were measured": lambda: _has_shapes_by_size(opener(path)().page),
        "warnings with every case": lambda: _says_once_what_holds_for_a_run(opener(path)().page),
        "a wide picture": lambda: test_nothing_is_wider_than_the_window(opener, path, 400),
        "another run than the address names": lambda: _opens_the_run_that_is_named(opener, path),
        "an address that is not met in silence": lambda: test_address_that_no_case_meets_is_told(
            opener, path, "run=verified", "run verified"
        ),
        "a context that is not named": lambda: test_first_case_is_there_at_once(opener(path)()),
        "a request": lambda: _asks_for_nothing(opener(path)()),
    }
    with pytest.raises(AssertionError):
        checks[fault]()


def _opens_the_run_that_is_named(opener, path):
    case = "RMSNorm backward, 16384 x 2048, bf16, cold on NVIDIA B200"
    test_address_that_names_little_opens_the_first_case_that_has_it(opener, path, "run=again", case, "again")


def _asks_for_nothing(found):
    assert found.requests == [found.page.url.partition("#")[0]]
