import pytest

import reports
from harness.analysis.comparison import compare
from harness.cases import NormCase
from harness.errors import UsageError
from reports.studies.flushes import changes, render
from reports.studies.flushes import turned as turned_of
from reports.studies.orders import clear_orders
from tests.results_factory import flushed, helpers, results, row

CLEAN = flushed("clean")


def turned(clean, other):
    return turned_of(clear_orders(clean), other)


def test_golden(golden):
    runs = [flushed("dirty", quack=70.0, liger=63.0), CLEAN, flushed("none", quack=60.0)]
    golden("flushes.md", render(runs))


def test_change_of_a_size_band_is_a_geometric_mean():
    shapes = [NormCase("rms", 4096, 2048), NormCase("rms", 4096, 3072), NormCase("rms", 4096, 4096)]

    def run(*times):
        return compare(results(*(row("quack", us, case) for us, case in zip(times, shapes, strict=True))))

    found = changes(run(10.0, 10.0, 10.0), run(11.0, 12.1, 9.0))
    assert set(found) == {("rms", 8 << 20, "quack"), ("rms", 16 << 20, "quack")}
    assert found["rms", 8 << 20, "quack"] == pytest.approx([1.1, 1.21])
    assert found["rms", 16 << 20, "quack"] == pytest.approx([0.9])


def test_reversed_order_is_listed_lost_one_counted():
    (found,) = turned(CLEAN, flushed("dirty", quack=70.0))
    assert (found.clean.first, found.clean.second, found.reversed) == ("quack", "liger", True)
    assert (found.clean.speedup.value, found.other.value) == pytest.approx((1.2, 60 / 70), rel=0.01)
    (lost,) = turned(CLEAN, flushed("dirty", quack=60.0))
    assert (lost.clean.first, lost.reversed) == ("quack", False)
    assert turned(CLEAN, flushed("dirty", quack=52.0)) == []
    (back,) = turned(flushed("clean", quack=70.0), flushed("dirty"))
    assert (back.clean.first, back.clean.second, back.reversed) == ("liger", "quack", True)


def test_what_was_no_order_before_cannot_be_turned():
    assert turned(flushed("clean", quack=60.0), flushed("dirty", quack=50.0)) == []


def test_without_an_aa_pair_nothing_is_turned():
    rows = [each for each in flushed("dirty", quack=70.0).rows if each.role != "again"]
    assert turned(CLEAN, results(*rows, flush="dirty", suite="llm")) == []


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([CLEAN], "needs a file with the flush clean, and one or two others"),
        ([flushed("dirty"), flushed("none")], "needs a file with the flush clean"),
        ([CLEAN, flushed("dirty"), flushed("dirty")], "two of the files have the flush dirty; give one file a flush"),
        ([CLEAN, flushed("dirty", suite="quick")], "different suites (llm, quick); give runs of one"),
        (
            [CLEAN, results(row("quack", 5.0), flush="none", suite="llm", cpu=True)],
            "different devices (NVIDIA H200, Some",
        ),
        (
            [CLEAN, results(row("quack", 5.0, NormCase("rms", 8, 8)), flush="none", suite="llm")],
            "no case in common; give runs of the same cases",
        ),
    ],
)
def test_files_that_cannot_stand_beside_each_other(runs, why):
    with pytest.raises(UsageError) as caught:
        reports.render(runs, "flush")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_failure_is_in_no_quotient():
    wrong = results(row("quack", 1.0, status="wrong"), *helpers(100.0, 46.0), flush="dirty")
    assert not any(impl == "quack" for _, _, impl in changes(compare(CLEAN), compare(wrong)))
