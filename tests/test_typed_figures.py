"""A figure that a document has in its own words is what the published file gives."""

import math
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from harness.analysis.joining import by_case
from harness.analysis.outcomes import outcomes
from harness.analysis.spending import spending
from harness.analysis.statistics import beyond_processes, geomean
from harness.analysis.step import every_context, training_step
from harness.cases.models import MODELS
from harness.records.contexts import GRAPH
from harness.records.file import load as load_file
from harness.records.published_plan import published_files, read_plan
from reports.studies import flushes
from reports.studies.engines import other_engines
from reports.studies.processes import agreements_of, process_bound
from tests.fleet.makespans import whole
from tests.published_files import PUBLISHED, compared, load
from tests.simulated_runs import ALIKE, H200

ROOT = Path(__file__).parent.parent
OURS = "triton-inhouse"
MI = 1 << 20
COUNTS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 10: "tenth"}


def in_context(name, context):
    return next(each for each in every_context(compared(name)) if each.context == context)


@cache
def text_of(document):
    return " ".join((ROOT / "docs" / document).read_text("utf-8").split())


def size(case):
    return case.rows * case.cols


def shape(case):
    return f"{case.rows} x {case.cols}"


def listed(names):
    """As a sentence has them: a, b and c."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def percent(ratio):
    return f"{100 * (ratio - 1):.0f}"


def part(share):
    """The part of a whole that is nearest, in a word."""
    return PARTS[round(1 / share)]


def times(name, impl=OURS, context="cold"):
    """Median us of each case that has one."""
    entries = {each.case: each.entry(impl) for each in in_context(name, context).cases}
    return {case: entry.median_us for case, entry in entries.items() if entry and entry.median_us}


def over_add(name, norm):
    cases = [each for each in compared(name).cases if each.case.norm == norm]
    return {each.case: 100 / percent for each in cases if (percent := each.entry(OURS).percent_of_add)}


# docs/kernel.md


def fleet_none_over_the_add():
    return [f"{geomean(list(over_add('fleet-none', norm).values())):.3f}" for norm in ("rms", "layer")]


def layer_norm_without_a_bias_over_rms_norm():
    rms = {shape(case): us for case, us in times("fast-llm-all").items() if case.norm == "rms"}
    ratios = [us / rms[shape(case)] for case, us in times("no-bias").items()]
    return percent(min(ratios)), percent(max(ratios)), COUNTS[len(ratios)]


def gated_over_the_add():
    return [part(max(over_add("gated", norm).values()) - 1) for norm in ("layer", "rms")]


def rows_at_which_shared_rows_come_near_the_add():
    ratios = {case.rows: ratio for case, ratio in over_add("llm", "rms").items() if case.cols > 8192}
    near = {rows for rows, ratio in ratios.items() if ratio <= 1.12}
    assert near == {rows for rows in ratios if rows >= min(near)}
    return [str(min(near))]


def columns_at_which_layer_norm_loses_the_most_beside_8():
    alone, columns = times("contexts"), {}
    for case, us in times("contexts", context="beside:8").items():
        if case.norm == "layer":
            columns.setdefault(case.cols, []).append(us / alone[case])
    return [str(cols) for cols in sorted(sorted(columns, key=lambda cols: geomean(columns[cols]))[-2:])]


def rows_wider_than_16384_over_the_add():
    """The largest of a few rows in each norm, then the smallest and the largest of many."""

    def wide(name, norm):
        return [ratio for case, ratio in over_add(name, norm).items() if case.cols > 16384]

    few = [max(wide("te-rocm", norm)) for norm in ("rms", "layer")]
    many = [*wide("quack", "rms"), *wide("quack", "layer")]
    return [percent(ratio) for ratio in (*few, min(many), max(many))]


def who_else_takes_longer_in_a_graph():
    column = [each.context for each in every_context(compared("contexts"))].index(GRAPH)
    longer = {row.impl for row in training_step(compared("contexts")) if row.cells[column].time > 1.01}
    return sorted(longer - {OURS})


# docs/method.md


def processes_are_off_by():
    on_h100 = load_file(PUBLISHED.parent / "h100-sxm/fast-llm.jsonl.bz2")
    found = [agreements_of(run) for run in (load("fast-llm"), on_h100)]
    half = median(off for each in found for agreement in each for off in beyond_processes(agreement.ratios))
    sizes = {case.key: size(case) // MI for case in by_case(load("fast-llm"))}
    by_size = [[each for each in found[0] if sizes[each.case] == mi] for mi in (8, 32)]
    bounds = [*map(process_bound, (*found, *by_size))]
    of_runs, of_sizes = [f"{100 * bound:.2f}" for bound in bounds[:2]], [f"{100 * bound:.2f}" for bound in bounds[2:]]
    return *of_runs, f"{100 * half:.2f}", *of_sizes


def sizes_of_an_implementation_against_itself():
    sizes = [size(each.case) // MI for each in compared("bands-clean").cases]
    return str(min(sizes)), str(max(sizes))


def do_bench_over_ours():
    (joined,) = (joined for case, joined in by_case(load("engines")).items() if shape(case) == "8192 x 1024")
    read = {impl: (other_engines(each), each.median_us) for (impl, role), each in joined.items() if role == "impl"}
    over = {impl: engines["do_bench"] / us for impl, (engines, us) in read.items() if engines}
    assert round(over["quack"]) == round(over["cudnn"])
    return COUNTS[round(over["torch-compiled"])], COUNTS[round(over["quack"])], f"{over[OURS]:.2f}"


def scatter_that_is_simulated():
    return [f"{100 * share:g}" for share in (H200.block, H200.process, ALIKE.process)]


# docs/peers.md


@cache
def verdicts(impl, norm):
    """Beside torch-eager in fast-llm, of each case that has one."""
    entries = {each.case: each.entry(impl) for each in compared("fast-llm").cases if each.case.norm == norm}
    return {case: entry.verdict for case, entry in entries.items() if entry and entry.verdict}


def slower(impl, norm):
    """Where it is slower than torch-eager: the columns at which every shape is, and the other shapes."""
    found = verdicts(impl, norm)
    faster = {case.cols for case, verdict in found.items() if verdict != "slower"}
    columns = sorted({case.cols for case in found} - faster)
    return columns, [shape(case) for case, verdict in found.items() if verdict == "slower" and case.cols in faster]


def up_to_which_columns(impl):
    columns, others = slower(impl, "rms")
    assert columns == [1024, 2048]
    return "2048", *others


def at_which_columns(impl):
    columns, others = slower(impl, "layer")
    return str(*columns), listed(others)


def another_plan_of_cudnn():
    """By which another plan takes less, and where: in LayerNorm, and in RMSNorm, where it is too short to be ranked."""
    tuned = times("fast-llm-all", "cudnn-tuned")
    less = {case: 1 - tuned[case] / us for case, us in times("fast-llm-all", "cudnn").items()}
    layer, rms = sorted((case for case, share in less.items() if share > 0.01), key=lambda case: case.norm)
    ranked = {each.case for each in compared("fast-llm-all").cases if each.lead}
    assert (layer.norm, rms.norm, layer in ranked, rms in ranked) == ("layer", "rms", True, False)
    told = (text for case in (layer, rms) for text in (f"{100 * less[case]:.0f}", shape(case)))
    return *told, COUNTS[len(less) - 2]


def where_cudnn_is_near_the_first():
    leads = {each.case: each.lead for each in compared("fast-llm").cases if each.lead.runner_up == "cudnn"}
    assert len(leads) > 15
    near = {case for case, lead in leads.items() if lead.ratio.value < 1.05}
    assert {case.norm for case in near} == {"rms"}
    return [*map(shape, sorted(near, key=lambda case: (case.cols, -case.rows))), "5"]


def where_the_fused_sum_is_level():
    """In models and in llm the rows and the columns from and to, at the most rows; in llm elsewhere too."""
    in_models, elsewhere = level_fused_sums("models")
    assert not elsewhere
    in_llm, elsewhere = level_fused_sums("llm")
    return [*in_models, *in_llm, *map(shape, elsewhere)]


def level_fused_sums(run):
    """The rows, and the columns from and to, of most rows where it is level or ahead; its cases of fewer rows."""
    quack, fused = (times(run, f"{name} + torch") | times(run, name) for name in ("quack", "quack-fused-sum"))
    level = {case for case in fused if case in quack and fused[case] / quack[case] < 1.01}
    assert not any("residual" in case.features for case in level)
    rows = max(case.rows for case in level)
    columns = {case.cols for case in level if case.rows == rows}
    assert {case.cols for case in fused if case.rows == rows and min(columns) <= case.cols <= max(columns)} == columns
    return (str(rows), str(min(columns)), str(max(columns))), [case for case in level if case.rows != rows]


def flag_gems_in_qk():
    rows = [row for row in load("qk").rows if row.impl.startswith("flag-gems") and row.case.norm == "layer"]
    answered = [row.status for row in rows if row.role == "impl" and row.status != "unsupported"]
    return str(answered.count("ok")), str(len(answered))


def fla_is_the_second_with_a_gate():
    seconds = {each.case: each.ranked[1].impl for each in compared("gated").cases}
    wide = [impl for case, impl in seconds.items() if case.cols >= 4096]
    narrow = {(shape(case), case.features) for case, impl in seconds.items() if case.cols < 4096 and impl == "fla"}
    assert narrow == {("262144 x 128", ("gated-norm-first",))}
    return part(wide.count("fla") / len(wide)), "4096", "262144 x 128"


def where_flash_attn_triton_is_the_slowest():
    speedups = {each.case: each.entry("flash-attn-triton").speedup.value for each in compared("fast-llm").cases}
    slowest = min(speedups, key=speedups.__getitem__)
    (entry,) = (each.entry("flash-attn-triton") for each in compared("fast-llm").cases if each.case == slowest)
    us = {kernel: kernel.median_us for kernel in entry.kernels}
    assert 0.4 < sum(each for kernel, each in us.items() if "reduce_kernel" in kernel.name) / sum(us.values()) < 0.5
    return {"rms": "RMSNorm", "layer": "LayerNorm"}[slowest.norm], shape(slowest), "two fifths"


def what_tuning_brings_quack():
    default, tuned = times("tuned", "quack"), times("tuned", "quack-tuned")
    gains = {case: default[case] / us for case, us in tuned.items()}
    most = [max((case for case in gains if case.norm == norm), key=gains.__getitem__) for norm in ("rms", "layer")]
    shapes = COUNTS[len({shape(case) for case in gains})]
    return shapes, *map(shape, most), *map(percent, (min(gains.values()), max(gains.values())))


# docs/model.md and docs/results.md


def margins(told):
    """By how many per cent the kernel takes longer with a margin of 8 and of 32, alone or beside as much."""
    alone = times("margin")
    found = {
        margin: [us / alone[case] for case, us in times("margin", f"{OURS}-margin{margin}", told(margin)).items()]
        for margin in (8, 32)
    }
    return [percent(each(ratios)) for ratios in found.values() for each in (min, max)]


def torchs_own_kernels_lose():
    rows = [row for row in training_step(compared("contexts")) if row.impl == "torch-eager"]
    names = [each.context for each in every_context(compared("contexts"))]
    beside = [place for place, name in enumerate(names) if name.startswith("beside")]
    return [percent(max(row.cells[place].time for row in rows for place in beside))]


def flushed(mode, least=0, below=math.inf):
    """Time with this flush over that with a clean cache: the means that the page shows, of so many elements."""
    quotients = flushes.changes(compared("bands-clean"), compared(f"bands-{mode}"))
    return [geomean(ratios) for (_, elements, _), ratios in quotients.items() if least * MI <= elements < below * MI]


def a_write_only_flush():
    added, small = flushed("dirty", least=8), flushed("dirty", below=8)
    assert min(added) > 1
    assert min(small) > 0.99
    return "8", part(max(added) - 1), *sizes_below_8_mi(), part(max(small) - 1)


def no_flush():
    large, middle, small = (flushed("none", *sizes) for sizes in ((16,), (8, 16), (0, 8)))
    assert min(large) > 0.99
    assert 0.9 < min(middle) < 1 < max(middle) < 1.1
    return part(max(large) - 1), *sizes_below_8_mi(), part(1 - min(small))


def sizes_below_8_mi():
    """Which sizes below 8 Mi elements the runs with another flush have, in Mi elements."""
    return sorted({str(size(each.case) // MI) for each in compared("bands-dirty").cases if size(each.case) < 8 * MI})


def t0_of_hosts():
    t0 = [load(path.name.partition(".")[0]).budget for path in PUBLISHED.glob("*.jsonl.bz2")]
    t0 = sorted(budget.t0_us for budget in t0 if budget)
    below, above = max(us for us in t0 if us < 2), min(us for us in t0 if us > 2)
    return {2: ["twice"]}[int(above / below)]


@cache
def timed_on(device):
    """The timed runs of the plan on a device, by name and in the plan's order."""
    paths = {name: path for where, name, path in published_files() if where == device}
    runs = {name: load_file(paths[name]) for name in read_plan().runs if name in paths}
    return {name: run for name, run in runs.items() if run.run.settings.timed}


def runs_of_a_small_t0():
    """On each device; a run of hosts of both kinds has the larger t0."""
    return [
        listed([name for name, run in timed_on(device).items() if run.budget.t0_us < 2])
        for device in ("h200", "h100-sxm")
    ]


def runs_that_have_transformer_engine_on_rocm():
    """None of an H200 without it, and those of an H100 with it; all that it takes is right."""
    found = {"ok": set(), "unsupported": set(), "missing": set()}
    for device in ("h200", "h100-sxm"):
        for name, run in timed_on(device).items():
            for row in run.rows:
                if row.impl.startswith("transformer-engine-rocm"):
                    found[row.status].add((device, name))
    assert not any(device == "h200" for device, _ in found["missing"])
    return "no run", listed([name for name in timed_on("h100-sxm") if ("h100-sxm", name) in found["ok"]])


def nexts_by_columns(run, norm):
    """Who is next to the first in the cases of so many columns that have a verdict."""
    found = defaultdict(set)
    for each in compared(run).cases:
        if each.lead and each.case.norm == norm:
            found[each.case.cols].add(each.ranked[1].impl)
    return dict(sorted(found.items()))


def next_with_a_residual():
    """Columns of the next in RMSNorm, and up to which flash-attention's CUDA kernel is it in LayerNorm."""
    in_rms, in_layer = nexts_by_columns("residual", "rms"), nexts_by_columns("residual", "layer")
    names = {"transformer-engine"}, {"quack"}, {"fla", "mamba"}
    at = [listed([str(cols) for cols, impls in in_rms.items() if impls == each]) for each in names]
    flash = max(cols for cols, impls in in_layer.items() if impls == {"flash-attn-cuda"})
    assert all((impls == {"flash-attn-cuda"}) == (cols <= flash) for cols, impls in in_layer.items())
    return [*at, str(flash)]


def next_with_two_norms():
    """In RMSNorm up to which columns flash-attention's Triton kernel alone is next, and from which Mamba's most often.

    In LayerNorm up to which flash-attention's CUDA kernel alone is, and where torch's addition or torch.compile.
    """
    nexts = {norm: nexts_by_columns("parallel", norm) for norm in ("rms", "layer")}
    narrow = max(cols for cols, impls in nexts["rms"].items() if impls == {"flash-attn-triton"})
    wide = [each for each in compared("parallel").cases if each.lead and each.case.cols > narrow]
    of_rms = [each.ranked[1].impl for each in wide if each.case.norm == "rms"]
    assert of_rms.count("mamba") > len(of_rms) / 2
    flash = max(cols for cols, impls in nexts["layer"].items() if impls == {"flash-attn-cuda"})
    (unfused,) = (cols for cols, impls in nexts["layer"].items() if impls == {"cudnn + torch", "torch-compiled"})
    assert not any("flash-attn-triton" in impls for impls in nexts["layer"].values())
    return [str(cols) for cols in (narrow, min(each.case.cols for each in wide), flash, unfused)]


def what_a_gate_of_inductor_costs():
    """In % of the time at the rows that it lets pass, in RMSNorm and LayerNorm."""
    strict, without, unmixed = (
        {(case.norm, shape(case)): us for case, us in times("inductor", f"torch-compiled{variant}").items()}
        for variant in ("", "-nonstrict", "-unmixed")
    )
    found = []
    for refused, passed in (
        ("8176 x 4096", "8192 x 4096"),
        ("4080 x 1536", "4096 x 1536"),
        ("5104 x 1024", "5120 x 1024"),
    ):
        for norm in ("rms", "layer"):
            found.append(100 * (strict[norm, refused] / strict[norm, passed] - 1))
            assert abs(without[norm, refused] / without[norm, passed] - 1) < 0.02
            assert abs(strict[norm, refused] / unmixed[norm, refused] - 1) < 0.02
    return [f"{percent:.0f}" for percent in found]


def where_gates_of_inductor_save_time():
    """In % in LayerNorm: nonstrict over strict where gates refuse, and strict over unmixed where all let pass."""

    def over(run, variant, other, where):
        mine, others = (times(run, f"torch-compiled{name}") for name in (variant, other))
        (case,) = (case for case in mine if case.norm == "layer" and shape(case) == where)
        return f"{100 * (mine[case] / others[case] - 1):.0f}"

    return [
        over("fast-llm-all", "-nonstrict", "", "2048 x 16384"),
        over("inductor", "", "-unmixed", "5120 x 1024"),
        over("fast-llm-all", "", "-unmixed", "8192 x 1024"),
    ]


def training_steps():
    """Of eager steps: the backward of in-house norms in % of torch's, and how much longer a step takes with torch's."""
    parts, steps = set(), []
    for norm in ("rms", "layer"):
        printed = (PUBLISHED / f"training-{norm}.txt").read_text("utf-8")
        (times_as_long,) = re.findall(r"torch's backward of norms takes ([\d.]+) times as long", printed)
        parts.add(round(100 / float(times_as_long)))
        steps += map(float, re.findall(r"with torch's norms a step takes ([\d.]+) times as long", printed))
    return str(min(parts)), str(max(parts)), f"{100 * (max(steps) - 1):.1f}"


def level_with_a_residual():
    tied = {
        shape(each.case): each.lead.tied_with
        for each in compared("models").cases
        if "residual" in each.case.features and each.lead
    }
    (where,) = (each for each, names in tied.items() if names)
    assert tied[where] == ("transformer-engine",)
    return [where]


def next_with_a_gate():
    seconds = {each.case: each.ranked[1].impl for each in compared("gated").cases}
    (cols,) = {
        case.cols
        for case in seconds
        if all(impl == "torch-compiled" for other, impl in seconds.items() if other.cols == case.cols)
        and case.norm == "layer"
        and case.cols != 128
    }
    others = [impl for case, impl in seconds.items() if case.cols != cols]
    assert sum(impl in ("mamba", "fla") for impl in others) > len(others) / 2
    return [str(cols)]


def rows_of_fast_llm_with_a_gate():
    reasons = {
        row.case: row.reason for row in load("gated").rows if row.impl == "fast-llm + torch" and row.status == "wrong"
    }
    rhos = [
        float(rho) for case, why in reasons.items() for rho in re.findall(r"a row of \w+ is off by rho ([\d.]+)", why)
    ]
    assert {shape(case) for case, why in reasons.items() if "a row of" in why} == {"262144 x 128"}
    return [str(int(min(rhos)))]


# docs/verification.md, docs/findings/README.md and docs/fleet.md


def other_bits_with_rows_appended():
    found = [each.checked.invariance for each in outcomes([load("verify-inhouse-variants")]) if each.checked.invariance]
    changed = [each for each in found if each["dweight with zero rows appended"] != ("same bits",)]
    return str(len(changed)), str(len(found))


def runs_beside_the_others():
    rows = [
        row.verification for name in ("verify-peers", "verify-variants") for row in load(name).rows if row.verification
    ]
    return [str(max(each.repeats for each in rows))]


def slower_than_eager(run, impl, where):
    """How many times as long as torch-eager it takes at one shape: in the norm in which that is less."""
    return min(us / times(run, "torch-eager")[case] for case, us in times(run, impl).items() if shape(case) == where)


def columns_at_which_helion_is_wrong():
    rows = [row for name in ("models", "gated", "llm") for row in load(name).rows if row.impl.startswith("helion")]
    columns = {row.case.cols for row in rows if row.status == "wrong" and row.case.norm == "rms" and row.role == "impl"}
    return [listed(map(str, sorted(columns)))]


def rho_of_dx(name, impl, norm, *columns):
    """That of the fewest rows of so many columns, without anything around the norm where there is such a case."""
    rows = [row for row in load(name).rows if row.impl == impl and row.case.norm == norm and row.verification]
    rows.sort(key=lambda row: (row.case.rows, len(row.case.features)))
    return [
        f"{next(row for row in rows if row.case.cols == cols).verification.tensors['dx'].rho:.2f}" for cols in columns
    ]


def helion_in_models():
    return rho_of_dx("models", "helion", "rms", 1536) + rho_of_dx("models", "helion + torch", "rms", 5376)


def starting_and_the_longest_job():
    took, jobs, _ = whole()
    return str(round(took.process_s, -1))[:2], COUNTS[round(max(map(took.of, jobs)) / 60)]


FIGURES = [  # a document, what it says, and what the file gives
    ("kernel.md", r"version 17 ([\d.]+) and ([\d.]+) over all shapes \(fleet-none\)", fleet_none_over_the_add),
    (
        "kernel.md",
        r"LayerNorm takes (\d+) to (\d+) % more .* fast-llm-all, at (\w+) shapes",
        layer_norm_without_a_bias_over_rms_norm,
    ),
    ("kernel.md", r"LayerNorm takes up to (\w+) as long again as the add, RMSNorm up to a (\w+) ", gated_over_the_add),
    ("kernel.md", r"within about a tenth of the add from (\d+) rows on", rows_at_which_shared_rows_come_near_the_add),
    (
        "kernel.md",
        r"take (\d+) % longer than the add in RMSNorm and (\d+) % in LayerNorm, with 32768 rows (\d+) to (\d+) %",
        rows_wider_than_16384_over_the_add,
    ),
    (
        "kernel.md",
        r"misses its target, most at (\d+) and (\d+) columns",
        columns_at_which_layer_norm_loses_the_most_beside_8,
    ),
    ("kernel.md", r"takes longer than the call alone, as (\w+)'s does", who_else_takes_longer_in_a_graph),
    (
        "method.md",
        r"([\d.]+) and ([\d.]+) %, rounded up\. Half of them are off by less than ([\d.]+) %\. .* at 8 Mi elements "
        r"95 % of the H200's by ([\d.]+) %, at 32 Mi by ([\d.]+) %",
        processes_are_off_by,
    ),
    ("method.md", r"sizes from (\d+) to (\d+) Mi elements, and", sizes_of_an_implementation_against_itself),
    (
        "method.md",
        r"reads (\w+) times its own time, QuACK and cuDNN (\w+) times, the in-house kernel ([\d.]+) times",
        do_bench_over_ours,
    ),
    (
        "method.md",
        r"by ([\d.]+) % from block .* another ([\d.]+) % between .* same kernel: ([\d.]+) %",
        scatter_that_is_simulated,
    ),
    (
        "peers.md",
        r"another took (\d+) % less in LayerNorm at (\d+ x \d+), and (\d+) % less in RMSNorm at (\d+ x \d+), "
        r"which is too\s+short to be ranked; in the other (\w+) cases none did",
        another_plan_of_cudnn,
    ),
    (
        "peers.md",
        r"RMSNorm at (\d+ x \d+), (\d+ x \d+) and (\d+ x \d+) within (\d+) % of the first",
        where_cudnn_is_near_the_first,
    ),
    (
        "peers.md",
        r"level or ahead in models at (\d+) rows of (\d+) to (\d+) columns, "
        r"and in llm at (\d+) rows of (\d+) to (\d+) columns and at (\d+ x \d+)\.",
        where_the_fused_sum_is_level,
    ),
    (
        "peers.md",
        r"At 32768 x 32768 it takes more than (\w+) times as long as torch-eager",
        lambda: [COUNTS[int(slower_than_eager("quack", "fla", "32768 x 32768"))]],
    ),
    (
        "peers.md",
        r"At 32768 x 32768 both take more than (\w+) times as long as torch-eager",
        lambda: [
            COUNTS[int(min(slower_than_eager("quack", n, "32768 x 32768") for n in ("flash-attn-triton", "mamba")))]
        ],
    ),
    (
        "peers.md",
        r"its RMSNorm was slower than torch-eager up to (\d+) columns\.",
        lambda: up_to_which_columns("liger"),
    ),
    (
        "peers.md",
        r"plain norms were slower than torch-eager up to (\d+) columns in RMSNorm, and",
        lambda: up_to_which_columns("mamba"),
    ),
    (
        "peers.md",
        r"it was slower than torch-eager up to (\d+) columns, and in most",
        lambda: up_to_which_columns("fla"),
    ),
    (
        "peers.md",
        r"Its LayerNorm was slower at (\d+) columns, where that is Triton, and at ([\dx, and]+)\.",
        lambda: at_which_columns("liger"),
    ),
    (
        "peers.md",
        r"slower than torch-eager in LayerNorm at (\d+) columns and at (\d+ x \d+)\.",
        lambda: at_which_columns("helion"),
    ),
    ("peers.md", r"slower than torch-eager at (\d+ x \d+) alone", lambda: slower("apex-fast", "layer")[1]),
    (
        "peers.md",
        r"in all but (\w+) shapes",
        lambda: [COUNTS[[*verdicts("flag-gems", "rms").values()].count("faster")]],
    ),
    ("peers.md", r"so that (\d+) of (\d+) cases pass", flag_gems_in_qk),
    (
        "peers.md",
        r"second in (\w+) of the cases of (\d+) columns and more, and at (\d+ x \d+)",
        fla_is_the_second_with_a_gate,
    ),
    (
        "peers.md",
        r"most so in (\w+) at (\d+ x \d+)\. .* more than (two fifths) of",
        where_flash_attn_triton_is_the_slowest,
    ),
    (
        "peers.md",
        r"Of the (\w+) shapes of .*tuned\S*, of 32 Mi elements, quack-tuned gains most at (\d+ x \d+) in RMSNorm "
        r"and at (\d+ x \d+) in LayerNorm. quack takes (\d+) to (\d+) % longer than it",
        what_tuning_brings_quack,
    ),
    (
        "model.md",
        r"up to (\d+) % more than without one with a margin of 8, and (\d+) to (\d+) % with 32",
        lambda: margins(lambda _: "cold")[1:],
    ),
    (
        "results.md",
        r"\[(\d+) to (\d+) % longer than alone beside 8, and (\d+) to (\d+) % beside 32\]",
        lambda: margins("beside:{}".format),
    ),
    (
        "results.md",
        r"From (\d+) Mi .* up to a (\w+) to what is fast\. .* At (\d+) Mi elements it adds a (\w+) at the most",
        a_write_only_flush,
    ),
    (
        "results.md",
        r"as long or up to a (\w+) longer: .* At (\d+) Mi up to a (\w+) of the time is gone",
        no_flush,
    ),
    ("results.md", r"torch's own kernels lose (\d+) % at most", torchs_own_kernels_lose),
    ("results.md", r"t0 was more than (\w+) that of others", t0_of_hosts),
    (
        "results.md",
        r"Of the runs of the plan, ([^.]+) on the H200 and ([^.]+) on the H100 were measured with the smaller t0",
        runs_of_a_small_t0,
    ),
    (
        "peers.md",
        r"On an H200 (no run) is without them; on an H100 ([^.;]+) alone have them\.",
        runs_that_have_transformer_engine_on_rocm,
    ),
    (
        "results.md",
        r"Next in RMSNorm are Transformer Engine at ([\d, and]+) columns, QuACK at (\d+), FLA and Mamba at (\d+); "
        r"in LayerNorm up to (\d+) columns flash-attention",
        next_with_a_residual,
    ),
    (
        "results.md",
        r"Triton kernel up to (\d+) columns, and most often Mamba's, .*? from (\d+) on; "
        r"in LayerNorm .*? up to (\d+) columns, and at (\d+) cuDNN",
        next_with_two_norms,
    ),
    (
        "model.md",
        r"takes (\d+) to (\d+) % of the time of torch's\. .* takes up to ([\d.]+) % longer, which",
        training_steps,
    ),
    ("results.md", r"in models Transformer Engine is level with it at (\d+ x \d+)", level_with_a_residual),
    ("results.md", r"Next are torch-compiled at (\d+) columns", next_with_a_gate),
    ("results.md", r"At 262144 x 128 single rows of .* off by more than (\d+) roundings", rows_of_fast_llm_with_a_gate),
    ("verification.md", r"other bits in (\d+) of (\d+) variants", other_bits_with_rows_appended),
    ("verification.md", r"with (\d+) runs a case beside the others", runs_beside_the_others),
    (
        "verification.md",
        r"with (\w+) kinds of inputs, and",
        lambda: [COUNTS[len({row.case.inputs for row in load("verify-variants").rows})]],
    ),
    (
        "verification.md",
        r"Of \[(\w+) shapes\]",
        lambda: [COUNTS[len({shape(each.case) for each in compared("odd").cases})]],
    ),
    (
        "findings/README.md",
        r"is `wrong` by it at ([\d, and]+) columns, the hidden sizes",
        columns_at_which_helion_is_wrong,
    ),
    (
        "findings/README.md",
        r"by ([\d.]+) roundings at 1536 and ([\d.]+) at 5376",
        helion_in_models,
    ),
    (
        "findings/README.md",
        r"off by ([\d.]+) roundings at 640 columns, ([\d.]+) at 896, ([\d.]+) at 2880 and ([\d.]+) at 768 and 5120",
        lambda: rho_of_dx("odd", "liger", "layer", 640, 896, 2880, 768),
    ),
    (
        "results.md",
        r"take (\d+) and (\d+) % longer; fewer rows .*, (\d+) and (\d+) %; fewer elements .*, (\d+) and (\d+) %",
        what_a_gate_of_inductor_costs,
    ),
    (
        "results.md",
        r"nonstrict takes (\d+) % longer than torch-compiled; .* takes (\d+) and (\d+) % longer than \S+-unmixed",
        where_gates_of_inductor_save_time,
    ),
    (
        "findings/README.md",
        r"odd.md\)\), and ([\d.]+) at 384",
        lambda: rho_of_dx("inductor", "liger", "layer", 384),
    ),
    (
        "fleet.md",
        r"about (\d+) seconds on an H200, and the longest job takes about (\w+) minutes,",
        starting_and_the_longest_job,
    ),
]


@pytest.mark.parametrize(
    ("document", "pattern", "given"), FIGURES, ids=[f"{page}-{number}" for number, (page, *_) in enumerate(FIGURES)]
)
def test_figure_is_what_the_file_gives(document, pattern, given):
    places = re.findall(pattern, text_of(document))
    assert len(places) == 1, pattern
    said = places[0] if isinstance(places[0], tuple) else places
    assert [each.casefold() for each in said] == [each.casefold() for each in given()]


@pytest.mark.parametrize(
    ("impl", "sentence"),
    [
        ("quack", "In the published run quack was slower than torch-eager nowhere."),
        ("fast-llm", "In the published run it was faster than torch-eager everywhere."),
        ("flash-attn-cuda", "In fast-llm it was faster than torch-eager in every shape that it takes."),
    ],
)
def test_peers_page_says_who_is_slower_than_torch_nowhere(impl, sentence):
    assert sentence in text_of("peers.md")
    assert {verdict for norm in ("rms", "layer") for verdict in verdicts(impl, norm).values()} == {"faster"}


@pytest.mark.parametrize(
    ("impl", "norm", "sentence"),
    [
        ("apex-fused", "rms", "The plain mode was slower than torch-eager in most shapes of the published run"),
        ("apex-fused", "layer", "The plain mode was slower than torch-eager in most shapes of the published run"),
        ("fla", "layer", "and in most shapes of LayerNorm. With a gate"),
        ("mamba", "layer", "columns in RMSNorm, and in most shapes of LayerNorm."),
    ],
)
def test_peers_page_says_who_is_slower_than_torch_in_most_shapes(impl, norm, sentence):
    assert sentence in text_of("peers.md")
    found = list(verdicts(impl, norm).values())
    assert found.count("slower") > len(found) / 2


def test_results_page_names_who_spends_the_most_but_one():
    """In a step of each model the in-house kernel spends the least, and next is who the page says."""
    assert (
        "It spends the least in each of nine models at 8192 and at 32768 tokens, but Llama 3 8B at 32768 tokens, "
        "where Transformer Engine spends as much. Next is QuACK, but Transformer Engine in Llama 3 8B, and "
        "torch-compiled in nanochat and in Mamba2 (cuDNN + torch and Mamba level with it at 8192 tokens). At 8192 "
        "tokens nanochat's norms are too short to be ranked, and the three sums differ by less than t0 leaves open."
        in text_of("results.md")
    )
    comparison, seconds = compared("models"), {}
    for step in spending(comparison.cases, comparison.budget):
        assert list(step.models) == [model.name for model in MODELS]
        for model in step.models:
            least = sorted((spender for spender in step.spenders if spender.ms[model]), key=lambda each: each.ms[model])
            assert least[0].impl == OURS
            near = [each.impl for each in least[1:] if each.ms[model] < 1.01 * least[1].ms[model]]
            if near != ["quack"]:
                seconds[model, step.tokens] = near
        if step.tokens == 8192:
            timed = [each for each in step.spenders if each.ms["nanochat d20"]]
            first, _, third = sorted(timed, key=lambda each: each.ms["nanochat d20"])[:3]
            off = third.ms["nanochat d20"] - first.ms["nanochat d20"]
            assert off < min(each.error_ms["nanochat d20"] for each in (first, third))
    assert seconds == {
        ("Llama 3 8B", 8192): ["transformer-engine"],
        ("Llama 3 8B", 32768): ["transformer-engine"],
        ("nanochat d20", 8192): ["torch-compiled"],
        ("nanochat d20", 32768): ["torch-compiled"],
        ("Mamba2 2.7B", 8192): ["cudnn", "torch-compiled", "mamba"],
        ("Mamba2 2.7B", 32768): ["torch-compiled"],
    }


def test_hosts_of_a_large_t0_rank_no_small_case():
    for name in ("qk", "models", "odd", "gated", "llm", "fp16", "fp32", "weight-fp32", "no-bias"):
        assert load(name).budget.t0_us > 2
        assert not any(each.lead for each in compared(name).cases if size(each.case) == 8 * MI), name


@pytest.mark.parametrize(
    ("name", "sentence", "verdict"),
    [
        ("compare-comment-only", "compiled anew to the same work. Every case is `same`.", "same"),
        ("compare-planted", "head reads 3 % more bytes. Every case is `slower`.", "slower"),
    ],
)
def test_pairs_of_revisions_have_the_known_answer(name, sentence, verdict):
    assert sentence in text_of("pull-requests.md")
    assert {entry.verdict for each in compared(name).cases for entry in each.entries if entry.verdict} == {verdict}
