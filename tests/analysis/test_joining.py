from collections import Counter
from itertools import pairwise

import pytest

from harness.analysis.comparison import compare
from harness.analysis.joining import GRAVEST_FIRST, aa_ratio, band, by_case, comparable, interleaved, join, pairs, ratio
from harness.analysis.statistics import PROCESS_BAND, IncomparableError, aa_band
from harness.records.schema import RowRecord
from tests.results_factory import CASE, LAYER, helpers, in_processes, results, row, selftest, timing, twin, verification
from tests.wording import worded


def joined(*rows):
    """The first implementation of these rows."""
    return join(rows)[rows[0].impl, "impl"]


def quack(us=50.0, process=0, **more):
    timed = timing(us, group=f"p{process}") if more.get("status", "ok") in ("ok", "nondeterministic") else None
    return row("quack", us if timed else None, process=process, **({"timed": timed} | more))


@pytest.mark.parametrize(("graver", "lighter"), list(pairwise(GRAVEST_FIRST)))
def test_gravest_status_counts_with_its_process(graver, lighter):
    whole = joined(quack(status=lighter), quack(process=1, status=graver, reason="because"))
    assert (whole.status, worded(whole.reason)) == (graver, "process 1: because")


def test_what_all_processes_say_is_said_once():
    whole = joined(*(quack(process=n, status="oom", reason="too large") for n in range(3)))
    assert worded(whole.reason) == "too large"
    assert joined(quack(), quack(process=1)).reason is None


def test_work_grows_with_the_rows(monkeypatch):
    """Each row is asked for its status a few times, not once for each of the other processes."""
    asked = Counter()
    plain = RowRecord.__getattribute__

    def count(self, name):
        asked[name] += 1
        return plain(self, name)

    rows = [quack(process=n, verification=verification(fingerprint=str(n % 2))) for n in range(1000)]
    monkeypatch.setattr(RowRecord, "__getattribute__", count)
    (case,) = compare(results(*rows)).cases
    assert case.entry("quack").status == "nondeterministic"
    assert max(asked["status"], asked["verification"], asked["timing"]) < 40 * len(rows)


def test_status_without_a_reason_names_its_process():
    assert worded(joined(quack(), quack(process=1, status="wrong")).reason) == "process 1: wrong"


def test_processes_that_say_the_same_are_named_together():
    rows = [quack(), quack(process=1, status="oom", reason="full"), quack(process=2, status="oom", reason="full")]
    assert worded(joined(*rows).reason) == "process 1, 2: full"


def test_the_median_is_that_of_the_medians_of_processes():
    scales = (1.0, 1.3, 1.1)
    whole = joined(*in_processes(row("quack", 50.0), scales=scales))
    alone = joined(row("quack", 50.0))
    assert whole.median_us == pytest.approx(1.1 * alone.median_us)
    assert joined(quack(status="crashed", us=None)).median_us is None


def test_cases_keep_their_order():
    found = by_case(results(row("quack", 5.0, LAYER), row("quack", 5.0), row("liger", 5.0, LAYER)))
    assert list(found) == [LAYER, CASE]
    assert list(found[LAYER]) == [("quack", "impl"), ("liger", "impl")]


@pytest.mark.parametrize(
    ("timed", "why"),
    [
        (timing(50.0, group="p1", proven=False), "process 1: unproven"),
        (timing(0.0, group="p1"), "process 1: a sample is not a positive"),
    ],
)
def test_one_process_in_doubt_puts_all_in_doubt(timed, why):
    whole = joined(quack(), quack(process=1, timed=timed))
    assert worded(whole.doubt).startswith(why)
    with pytest.raises(IncomparableError, match=f"quack: {why}"):
        comparable(whole)
    assert joined(quack(), quack(process=1)).doubt is None


def test_one_process_without_a_time_puts_all_in_doubt():
    whole = joined(quack(), row("quack", process=1, untimed="40 s a call"))
    assert worded(whole.doubt) == "process 1: not timed: 40 s a call"


def test_nothing_below_ten_t0_is_comparable():
    rows = (row("quack", 11.6), twin("quack", 11.6))  # 12.76 us with the drift
    with pytest.raises(IncomparableError, match=r"quack is below 10 x t0 \(12.8 us\)"):
        comparable(joined_with(*rows, t0_us=[1.28]))
    assert comparable(joined_with(*rows, t0_us=[1.27]))
    assert comparable(joined(*rows))
    assert band(join(rows, {0: 1.28}), "quack") == PROCESS_BAND  # of times that are compared with nothing else


def joined_with(*rows, t0_us):
    """The first implementation of these rows, in a run whose processes had these t0."""
    tests = [selftest(process=process, t0_us=each) for process, each in enumerate(t0_us)]
    (case,) = by_case(results(*rows, selftests=tests)).values()
    return case[rows[0].impl, "impl"]


FAST, SLOW = row("quack", 20.0), row("torch-eager", 200.0)  # 22 us with the drift


def test_process_whose_t0_is_too_large_is_set_aside_where_another_can_rank():
    rows = in_processes(FAST, SLOW, scales=(1.0, 1.5, 1.2))
    for name in ("quack", "torch-eager"):  # both, as a ratio is of both
        whole = joined_with(*sorted(rows, key=lambda row: row.impl != name), t0_us=[1.3, 2.9, 2.9])
        assert (whole.set_aside, list(whole.timing_by_process)) == ({1, 2}, [0])
        assert whole.shortest_rankable_us == pytest.approx(13.0)
        assert whole.median_us == pytest.approx(joined(next(each for each in rows if each.impl == name)).median_us)


@pytest.mark.parametrize("t0_us", [(2.9, 3.0, 2.9), (1.3, 2.6, 1.3)], ids=["none can", "all can"])
def test_no_process_is_set_aside_where_all_are_alike(t0_us):
    whole = joined_with(*in_processes(FAST, SLOW, scales=(1.0, 1.5, 1.3)), t0_us=t0_us)
    assert (whole.set_aside, len(whole.timings)) == (frozenset(), 3)
    assert (whole.too_short is not None) is (min(t0_us) > 2)
    assert whole.shortest_rankable_us == pytest.approx(10 * max(t0_us))


def test_what_a_process_read_does_not_decide_whether_it_counts():
    """One t0 for all three: the one process that read less than ten times of it is not set aside."""
    whole = joined_with(*in_processes(FAST, SLOW, scales=(0.9, 1.0, 1.1)), t0_us=[2.1, 2.1, 2.1])
    assert (whole.set_aside, whole.too_short) == (frozenset(), None)


def test_a_process_that_is_set_aside_still_has_its_status():
    rows = [*in_processes(FAST, SLOW, scales=(1.0, 1.0)), quack(process=1, status="wrong", reason="dx")]
    whole = joined_with(*rows, t0_us=[1.3, 2.9])
    assert (whole.status, worded(whole.reason)) == ("wrong", "process 1: dx")


def test_no_doubt_about_the_times_of_a_process_that_is_set_aside():
    unproven = quack(process=1, timed=timing(20.0, group="p1", proven=False), us=20.0)
    rows = [*in_processes(FAST, SLOW, scales=(1.0, 1.0)), unproven]
    assert joined_with(*rows, t0_us=[1.3, 2.9]).doubt is None
    assert worded(joined_with(*rows, t0_us=[1.3, 1.3]).doubt).startswith("process 1: unproven")


def test_a_ratio_is_over_all_processes():
    rows = in_processes(row("torch-eager", 100.0), row("quack", 50.0), bias={("quack", "impl", 1): 1.03})
    case = join(rows)
    found = ratio(case["torch-eager", "impl"], case["quack", "impl"])
    assert (found.processes, found.blocks) == (3, 120)
    assert found.value == pytest.approx(2.0 * (1.01 / 1.03) ** (1 / 3), rel=1e-6)
    assert found.low < 1.96 < 2.03 < found.high


def test_a_process_that_timed_the_two_apart_leaves_no_ratio():
    apart = quack(process=1, timed=timing(50.0, group="another"))
    case = join([*in_processes(row("torch-eager", 100.0), scales=(1, 1)), quack(), apart])
    with pytest.raises(IncomparableError, match="process 1: timed in different groups, p1 and another"):
        ratio(case["torch-eager", "impl"], case["quack", "impl"])


def test_a_process_that_only_one_of_them_has_is_left_out():
    case = join([*in_processes(row("torch-eager", 100.0), scales=(1, 1)), quack()])
    assert ratio(case["torch-eager", "impl"], case["quack", "impl"]).processes == 1


def test_the_band_is_the_baselines_or_else_the_widest():
    rows = [row("torch-eager", 100.0), row("quack", 50.0), row("liger", 50.0), twin("quack", 50.0, off=0.025)]
    rows += [twin("liger", 50.0, off=0.02)]
    case = join([*rows, *helpers(100.0, 46.0)])
    own = aa_band([aa_ratio(case, "torch-eager")])
    assert band(case, "torch-eager") == own == PROCESS_BAND
    assert band(case, "liger") == pytest.approx(0.022, abs=1e-4)
    without = join(rows)
    assert band(without, "torch-eager") == band(without, "quack") == pytest.approx(0.027, abs=1e-4)
    assert band(join(rows[:3]), "torch-eager") is None


def test_a_twin_whose_first_failed_gives_no_band():
    case = join([row("torch-eager", status="crashed"), *helpers(100.0, 46.0)])
    assert band(case, "torch-eager") is None


def test_a_twin_whose_first_is_wrong_gives_a_band_all_the_same():
    case = join([row("torch-eager", 100.0, status="wrong"), *helpers(100.0, 46.0)])
    assert band(case, "torch-eager") == PROCESS_BAND


def test_what_is_interleaved_in_some_process_is_paired_there():
    two = joined(quack(100.0), quack(100.0, process=1))
    once = joined(quack(50.0, process=1))
    assert [pair.ratio_of_medians for pair in interleaved(two, once)] == [pytest.approx(2.0)]
    dirty = joined(quack(process=1, timed=timing(50.0, group="p1", flush="dirty")))
    assert interleaved(two, dirty) == []
    with pytest.raises(IncomparableError, match="process 1: timed with different flushes"):
        pairs(two, dirty)


def printed(*fingerprints, **more):
    """A row a process, with these fingerprints."""
    check = verification()
    return joined(
        *(
            quack(process=process, verification=check.model_copy(update={"fingerprint": each}), **more)
            for process, each in enumerate(fingerprints)
        )
    )


def test_other_bits_in_another_process_are_nondeterministic():
    whole = printed("aa", "bb", "aa")
    assert (whole.status, worded(whole.reason)) == ("nondeterministic", "process 1: other bits in a new process")
    assert worded(printed("aa", "bb", "bb").reason) == "process 1, 2: other bits in a new process"


@pytest.mark.parametrize("fingerprints", [("aa", "aa"), (None, "aa"), ("aa", None), (None, None), ("aa",)])
def test_the_same_bits_or_none_to_compare_leave_a_row_as_it_is(fingerprints):
    whole = printed(*fingerprints)
    assert (whole.status, worded(whole.reason)) == ("ok", None)


def test_what_is_graver_than_other_bits_stays():
    whole = printed("aa", "bb", status="wrong", reason="dx is off")
    assert (whole.status, worded(whole.reason)) == ("wrong", "dx is off")
    unsteady = printed("aa", "bb", status="nondeterministic", reason="2 of 50 runs differ")
    assert (unsteady.status, worded(unsteady.reason)) == ("nondeterministic", "2 of 50 runs differ")
