"""What documents claim in their own words is so in the published files."""

import itertools
import re
import shlex
from collections import defaultdict
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

import reports
from harness.analysis import figures
from harness.analysis.joining import by_case
from harness.analysis.statistics import PROCESS_BAND, geomean
from harness.analysis.step import every_context, training_step
from tests.published_files import compared, load

ROOT = Path(__file__).parent.parent
PUBLISHED = sorted((ROOT / "results").rglob("*.jsonl.bz2"))
COMMANDS = re.compile(r"(?:`|^    )normbwd report (results/[^`\n]+)", re.MULTILINE)


def test_reports_page_shows_every_format():
    """Each with a command on published files, so that a reader can try it."""
    shown = set()
    for command in COMMANDS.findall((ROOT / "docs/reports.md").read_text("utf-8")):
        words = shlex.split(command)
        files = list(takewhile(lambda word: not word.startswith("--"), words))
        options = dict(zip(words[len(files) :: 2], words[len(files) + 1 :: 2], strict=True))
        assert all((ROOT / path).is_file() for path in files), command
        assert set(options) <= {"--format", "--out", "--impl"}, command
        shown.add(options.get("--format", "console"))
    assert shown == set(reports.FORMATS)


def test_documents_say_the_least_band_of_one_process_as_reports_do():
    least = figures.band(PROCESS_BAND).removeprefix("±")
    for name, after in (
        ("README.md", " in a run of one"),
        ("docs/architecture.md", " in a run"),
        ("docs/method.md", ","),
    ):
        assert f"at least {least}{after}" in words_of(name), name
    rounded = f"{100 * PROCESS_BAND:g} %"
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        prose = "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.startswith("|"))
        assert not re.search(rf"(?<![\d.]){re.escape(rounded)}", prose), path


def test_there_are_published_runs():
    assert PUBLISHED


@cache
def words_of(page):
    """The text of a page, as if it had no line ends."""
    return " ".join((ROOT / page).read_text("utf-8").split())


def turned_rows(page, heading):
    """The rows of a page's table of orders that turn."""
    text = (ROOT / page).read_text("utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| case")]


def test_another_kernel_beside_and_do_bench_turn_orders_and_another_flush_none():
    by_do_bench = turned_rows("results/h200/engines.md", "Orders that do_bench turns")
    assert by_do_bench
    assert not any("triton-inhouse" in row for row in by_do_bench), "docs/peers.md says that it keeps its place"
    assert not any(turned_rows("results/h200/flush.md", f"Rankings that {mode} turns") for mode in ("dirty", "none"))
    beside = [context for context in compared("contexts").contexts if context.context.startswith("beside")]
    leads = [case.lead for context in beside for case in context.cases if case.lead]
    assert any("triton-inhouse" not in (lead.impl, *lead.tied_with) for lead in leads)


def medians_us(name):
    """Of each case in a published file: the times of the in-house kernel, of the add and of all others, us."""
    for case, rows in by_case(load(name)).items():
        medians = {key: row.median_us for key, row in rows.items() if row.median_us is not None}
        if ("triton-inhouse", "impl") not in medians:
            continue  # where a run was interrupted
        (add,) = (us for (_, role), us in medians.items() if role == "floor")
        others = {impl: us for (impl, role), us in medians.items() if role == "impl" and impl != "triton-inhouse"}
        yield case, medians["triton-inhouse", "impl"], add, others


@pytest.mark.parametrize(("name", "cases"), [("odd", 24), ("tuned", 6)])
def test_nobody_is_ahead_of_the_in_house_kernel(name, cases):
    leads = {case.key: min(others.values()) / ours for case, ours, _, others in medians_us(name)}
    assert len(leads) == cases
    assert all(lead > 1 for lead in leads.values())


def test_results_page_names_where_llm_is_not_led_by_the_in_house_kernel():
    said = re.search(
        r"in all but three of (\d+) rows, .* cuDNN at (\d+) columns, Oink at (\d+), FLA at (\d+)\.",
        words_of("docs/results.md"),
    )
    leads = {case.case.key: {case.lead.impl, *case.lead.tied_with} for case in compared("llm").cases if case.lead}
    others = {key: names for key, names in leads.items() if names != {"triton-inhouse"}}
    level = zip(said.groups()[1:], ("cudnn", "oink", "fla"), strict=True)
    assert others == {f"rms-{said[1]}x{cols}-bf16": {"triton-inhouse", impl} for cols, impl in level}


def test_verification_page_names_who_is_wrong_at_columns_that_are_no_power_of_two():
    wrong = defaultdict(set)
    for row in load("odd").rows:
        if row.role == "impl" and row.status == "wrong":
            wrong[row.impl, row.case.norm].add(row.case.cols)
    text = words_of("docs/verification.md")
    said = re.search(r"wrong at (\d+) and (\d+) columns \(.*Helion's RMSNorm at all but one", text)
    assert wrong["liger", "layer"] == {int(cols) for cols in said.groups()}
    assert len(wrong["helion", "rms"]) == 11
    assert len(compared("odd").cases) == 24


def test_results_page_names_how_far_cudnn_is_behind():
    """At the hidden size of gpt-oss in both norms, and in RMSNorm at those of other models."""
    at_2880, elsewhere = [], []
    for name in ("llm", "odd"):
        for case, ours, _, others in medians_us(name):
            if case.cols == 2880:
                at_2880.append(others["cudnn"] / ours)
            elif name == "llm":
                elsewhere.append(100 * (others["cudnn"] / ours - 1))
    text = words_of("docs/results.md")
    assert f"(gpt-oss) cuDNN takes {min(at_2880):.0f} to {max(at_2880):.0f} times as long" in text
    said = f"of llm it takes {min(elsewhere):.0f} to {max(elsewhere):.0f} % longer, the tie included."
    assert said in text


@pytest.mark.parametrize("name", ["inhouse", "few"])
def test_in_house_kernel_is_right_where_it_answers(name):
    rows = load(f"verify-{name}").rows
    assert {row.status for row in rows} == {"ok", "unsupported"}
    verified = [row.verification for row in rows if row.verification]
    assert {tensor.error_class for verification in verified for tensor in verification.tensors.values()} == {"exact"}
    assert max(verification.repeats for verification in verified) == 3000
    assert all(verification.differing == 0 for verification in verified)


@pytest.mark.parametrize(("name", "cases"), [("fp16", 6), ("fp32", 6), ("weight-fp32", 6), ("no-bias", 3)])
def test_other_dtypes_stay_near_their_add(name, cases):
    """Over the add of its own dtype, at most a tenth above bf16."""
    assert "no case of the in-house kernel takes more than a tenth longer than bf16" in words_of("docs/results.md")
    bf16 = {(case.norm, case.rows, case.cols): ours / add for case, ours, add, _ in medians_us("fast-llm")}
    ratios = {(case.norm, case.rows, case.cols): ours / add for case, ours, add, _ in medians_us(name)}
    assert len(ratios) == cases
    assert max(ratio / bf16[case] for case, ratio in ratios.items()) < 1.1


@pytest.mark.parametrize(("name", "cases"), [("fp16", 6), ("weight-fp32", 6), ("no-bias", 3)])
def test_in_fp16_with_fp32_weights_and_without_a_bias_the_in_house_kernel_is_first(name, cases):
    leads = [case.lead for case in compared(name).cases]
    assert [(lead.impl, lead.tied_with) for lead in leads] == [("triton-inhouse", ())] * cases


def test_results_page_names_who_is_level_and_who_is_ahead_in_fp32():
    said = "first in three of six cases, cuDNN is level with it in two, and cuDNN is ahead in RMSNorm at 2048 x 16384:"
    assert said in words_of("docs/results.md")
    leads = {case.case.key: {case.lead.impl, *case.lead.tied_with} for case in compared("fp32").cases}
    level = {key: names - {"triton-inhouse"} for key, names in leads.items() if "triton-inhouse" in names}
    level = {key: names for key, names in level.items() if names}
    assert (len(leads), len(level)) == (6, 2)
    assert set.union(*level.values()) == {"cudnn"}
    assert {key: names for key, names in leads.items() if "triton-inhouse" not in names} == {
        "rms-2048x16384-fp32": {"cudnn"}
    }


def test_results_page_names_who_is_wrong_beside_an_fp32_weight_and_who_refuses_it():
    said = defaultdict(set)
    for row in load("weight-fp32").rows:
        if row.role == "impl":
            said[row.status].add((row.impl, row.case.norm))
    assert said["wrong"] == {
        *itertools.product(["fast-llm"], ["rms", "layer"]),
        ("liger", "rms"),
        *itertools.product(["tilegym", "flag-gems"], ["layer"]),
    }
    both = ["torch-eager", "apex-fused", "transformer-engine"]
    refusing = {
        *itertools.product(both, ["rms", "layer"]),
        ("apex-fast", "layer"),
        ("cudnn", "rms"),
        ("flag-gems", "rms"),
    }
    assert refusing <= said["unsupported"]


@pytest.mark.parametrize("beside", ["beside:8", "beside:32"])
@pytest.mark.parametrize(
    ("norm", "most"),
    [("rms", {"tilegym", "flash-attn-cuda", "cudnn"}), ("layer", {"cudnn", "triton-inhouse", "flash-attn-cuda"})],
)
def test_results_page_names_who_loses_the_most_beside_another_kernel(norm, most, beside):
    comparison = compared("contexts")
    column = [context.context for context in every_context(comparison)].index(beside)
    cells = {row.impl: row.cells[column] for row in training_step(comparison) if row.norm == norm}
    times = {impl: cell.time for impl, cell in cells.items() if cell.time and not cell.waits}
    assert set(sorted(times, key=times.__getitem__)[-3:]) == most
    assert {impl for impl, cell in cells.items() if cell.waits} <= {"transformer-engine", "apex-fast"}


def test_nothing_passes_the_in_house_kernel_in_a_graph_or_with_dy_in_the_cache():
    contexts = {context.context: context for context in compared("contexts").contexts}
    leads = [case.lead for name in ("graph", "hot-dy") for case in contexts[name].cases if case.lead]
    assert len(leads) == 60
    assert all("triton-inhouse" in (lead.impl, *lead.tied_with) for lead in leads)


@pytest.mark.parametrize(("norm", "column"), [("rms", 3), ("layer", 6)])
def test_kernel_page_has_the_newest_version_as_the_file_does(norm, column):
    """In its table of versions, which has older files beside it."""
    lines = (ROOT / "docs/kernel.md").read_text("utf-8").splitlines()
    said = {cells[1]: cells[column + 1] for line in lines if len(cells := line.replace(" ", "").split("|")) == 9}
    over_add = {}
    for case in compared("fast-llm").cases:
        if case.case.norm == norm:
            ratio = 100 / case.entry("triton-inhouse").percent_of_add
            over_add.setdefault((case.case.rows * case.case.cols) >> 20, []).append(ratio)
    found = {"32Mielements": over_add[32], "16Mi": over_add[16], "8Mi": over_add[8]}
    found["all15shapes"] = [ratio for ratios in over_add.values() for ratio in ratios]
    assert {name: said[name] for name in found} == {name: f"{geomean(found[name]):.3f}" for name in found}


def test_peers_page_says_how_the_quack_that_sums_by_itself_does():
    both = [others for _, _, _, others in medians_us("fast-llm") if {"quack", "quack-fused-sum"} <= others.keys()]
    assert len(both) == 12
    assert all(others["quack-fused-sum"] > others["quack"] for others in both)


def test_tilegyms_rows_are_off_as_flag_gems_are():
    reasons = {"flag-gems": {}, "tilegym": {}}
    for row in load("fast-llm").rows:
        if row.impl in reasons and row.status == "wrong":
            reasons[row.impl][row.case.key] = row.reason
    assert len(reasons["tilegym"]) == 15
    assert reasons["tilegym"] == reasons["flag-gems"]
