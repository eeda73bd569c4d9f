import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from harness.errors import UsageError
from reports.formats.grid import render
from reports.labels import counted_label, determinism, entry_label
from reports.parts.libraries import tables
from tests.results_factory import CASE, helpers, in_processes, mixed, results, row, timing, verification
from tests.wording import worded


def only_case(*rows, baseline=None, **more):
    return compare(results(*rows, **more), baseline).cases[0]


def impls(entries):
    return [entry.impl for entry in entries]


def test_entries_stand_in_order_of_time_then_of_standing():
    case = compare(mixed()).cases[0]
    assert impls(case.entries) == ["quack", "triton-inhouse", "liger", "torch-eager", "compiled", "apex"]
    assert [entry.standing for entry in case.entries] == [*["ranked"] * 4, "unranked", "absent"]


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "oom"])
def test_a_planted_fast_failure_never_ranks(status):
    case = only_case(row("torch-eager", 100.0), row("quack", 1.0, status=status), *helpers(100.0, 46.0))
    assert impls(case.ranked) == ["torch-eager"]
    assert case.lead.impl == "torch-eager"
    failed = case.entry("quack")
    assert (failed.standing, failed.median_us, failed.speedup, failed.bandwidth_gbps) == ("failed", None, None, None)


def test_an_unproven_row_is_shown_but_not_ranked():
    compiled = compare(mixed()).cases[0].entry("compiled")
    assert compiled.median_us == pytest.approx(43.9, rel=0.01)
    assert (compiled.standing, compiled.speedup, entry_label(compiled)) == ("unranked", None, "compiled (unproven)")


@pytest.mark.parametrize("other", [timing(1.0, group="g2"), timing(1.0, flush="dirty")])
def test_row_timed_without_baseline_has_no_ratio(other):
    """It has no rank either."""
    case = only_case(row("torch-eager", 100.0), row("quack", 1.0, timed=other), *helpers(100.0, 46.0))
    quack = case.entry("quack")
    assert (quack.standing, quack.speedup, quack.percent_of_add) == ("unranked", None, None)
    assert "timed apart" in worded(quack.reason)


def test_nondeterministic_ranks_but_only_under_its_mark():
    comparison = compare(mixed())
    liger = comparison.cases[0].entry("liger")
    assert (liger.standing, entry_label(liger)) == ("ranked", "liger (nondeterministic)")
    assert determinism(liger.checked) == "2 of 50 differ, in dweight"
    assert counted_label(next(mean for mean in comparison.summary.geomeans if mean.impl == "liger")).endswith("in 1)")


@pytest.mark.parametrize(
    ("differing_in", "mark"), [((), "other bits in a new process"), (("dweight",), "nondeterministic")]
)
def test_what_keeps_its_bits_within_each_process_has_a_mark_of_its_own(differing_in, mark):
    status = "nondeterministic" if differing_in else "ok"
    first, second = (verification(fingerprint=bits, differing_in=differing_in) for bits in ("aa", "bb"))
    quack = row("quack", 50.0, status=status, verification=first)
    rows = in_processes(row("torch-eager", 100.0), quack, *helpers(100.0, 46.0), scales=(1.0, 1.0))
    there = next(place for place, each in enumerate(rows) if (each.impl, each.process) == ("quack", 1))
    rows[there] = rows[there].model_copy(update={"verification": second})
    comparison = compare(results(*rows, processes=2))
    quack = comparison.cases[0].entry("quack")
    assert (quack.standing, quack.status, entry_label(quack)) == ("ranked", "nondeterministic", f"quack ({mark})")
    assert counted_label(comparison.summary.geomeans[0]) == f"quack ({mark} in 1)"
    assert counted_label(comparison.summary.wins[0]) == f"quack ({mark} in 1)"
    assert tables(comparison)[0].rows[0][0].text == "quack (same bits in 0 of 1)"
    legend = {
        "nondeterministic": " †: other bits from run to run",
        "other bits in a new process": f" §: {mark}, the same",
    }
    assert [text in render(comparison) for text in legend.values()] == [of == mark for of in legend]
    assert f"**54.9{legend[mark][:2]}**" in render(comparison)


def test_verdict_is_same_inside_the_aa_band():
    rows = [row("torch-eager", 100.0), row("quack", 98.0), row("liger", 90.0)]
    case = only_case(*rows, *helpers(100.0, 46.0, again_off=0.03))
    assert [case.entry(name).verdict for name in ("quack", "liger")] == ["same", "faster"]
    sharp = only_case(*rows, *helpers(100.0, 46.0))
    assert sharp.entry("quack").verdict == "faster"


def test_without_an_aa_pair_nothing_is_claimed():
    case = only_case(row("torch-eager", 100.0), row("quack", 50.0))
    assert (case.aa_band, case.entry("quack").verdict) == (None, None)
    assert case.lead.tied_with == ("torch-eager",)


def test_lead_is_a_tie_unless_it_clears_the_band():
    rows = [row("torch-eager", 100.0), row("quack", 50.0), row("liger", 49.9)]
    tie = compare(results(*rows, *helpers(100.0, 46.0, again_off=0.01)))
    assert (tie.cases[0].lead.impl, tie.cases[0].lead.tied_with) == ("liger", ("quack",))
    assert [(wins.impl, len(wins.alone), len(wins.tied)) for wins in tie.summary.wins] == [
        ("liger", 0, 1),
        ("quack", 0, 1),
    ]
    clear = compare(results(*rows[:2], row("liger", 45.0), *helpers(100.0, 46.0)))
    assert [(wins.impl, wins.alone) for wins in clear.summary.wins] == [("liger", (CASE.key,))]


def test_another_baseline_and_an_unknown_one():
    case = only_case(row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0), baseline="quack")
    assert case.entry("torch-eager").verdict == "slower"
    with pytest.raises(UsageError, match="torch-eager, triton-inhouse, quack"):
        compare(mixed(), "nonesuch")


def test_geomeans_compare_on_common_cases():
    other = NormCase("rms", 1024, 1024)
    comparison = compare(
        results(
            *[row("torch-eager", 100.0), row("quack", 50.0), row("liger", 50.0), *helpers(100.0, 46.0)],
            *[row("torch-eager", 100.0, other), row("quack", 12.5, other), row("liger", case=other, status="oom")],
            *helpers(100.0, 46.0, other),
        )
    )
    means = {mean.impl: mean for mean in comparison.summary.geomeans}
    assert (means["quack"].value, means["quack"].cases) == (pytest.approx(4.0, rel=0.01), 2)
    assert (means["quack"].common, means["quack"].common_cases) == (pytest.approx(2.0, rel=0.01), 1)
    assert (means["liger"].cases, means["liger"].total) == (1, 2)
    assert [(failure.impl, failure.status, failure.cases) for failure in comparison.summary.failures] == [
        ("liger", "oom", (other.key,))
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, None),
        ({"ended": False}, "cut short"),
        ({"interrupted": True}, "interrupted"),
        ({"jobs": 5}, "1 of 5 cases"),
    ],
)
def test_an_unfinished_run_says_so(more, expected):
    unfinished = compare(results(row("torch-eager", 100.0), **more)).unfinished
    assert unfinished is None if expected is None else expected in worded(unfinished)


def test_a_case_that_was_interrupted_is_not_counted():
    names = [impl.name for impl in results().run.implementations]
    first, second = ([row(name, 100.0, NormCase("rms", rows, 64)) for name in names] for rows in (64, 128))
    for missing, whole in ((1, 1), (0, 2)):
        rows = first + second[missing:]
        assert f"{whole} of 2 cases" in worded(compare(results(*rows, interrupted=True, jobs=2)).unfinished)
