"""Which launch is chosen: only what is right, deterministic, and faster beyond doubt."""

import pytest

from harness.tune.winners import DEFAULT, best_launches, confirmed, launch_file
from impls.inhouse.tuned import LaunchFile
from tests.results_factory import CASE, LAYER, budget, row, selftest, timing
from tests.tunings import LAUNCHES, TALL, again, candidate, default, one_of_each, swept


def chosen(*rows, **settings):
    (best,) = best_launches(swept(*rows, **settings))
    assert (best.launch is None) == (best.impl is None) == (best.speedup is None)
    return best


def test_the_fastest_is_chosen_and_told():
    best = chosen(*default(), candidate("launch-01", 47.5), candidate("launch-02", 45.0), candidate("launch-03", 46.0))
    assert (best.impl, best.launch) == ("launch-02", LAUNCHES["launch-02"])
    assert best.default_us == pytest.approx(50.0 * 1.1, rel=0.01)  # the drift of the factory's samples
    assert best.speedup.value == pytest.approx(50 / 45, rel=0.01)
    assert best.speedup.low < best.speedup.value < best.speedup.high


@pytest.mark.parametrize(
    "faster",
    [
        candidate("launch-01", 30.0, status="wrong", reason="dx is off by rho 9"),
        candidate("launch-01", 30.0, status="nondeterministic"),
        candidate("launch-01", None, status="crashed", reason="RuntimeError"),
        candidate("launch-01", None, status="unsupported", reason="spills 12 registers"),
        candidate("launch-01", None, untimed="no room"),
        candidate("launch-01", 30.0, timed=timing(30.0, proven=False)),
        candidate("launch-01", 30.0, timed=timing(30.0, group="another")),
        candidate("launch-01", 49.8),  # inside the band that one process has at least
        candidate("launch-01", 50.0),
        candidate("launch-01", 55.0),
    ],
    ids=lambda each: f"{each.status}-{each.timing.samples_us[0] if each.timing else each.reason}",
)
def test_what_may_not_replace_the_default(faster):
    best = chosen(*default(), faster)
    assert best.impl is None
    assert best.why == ""
    slower = candidate("launch-02", 47.0)
    assert chosen(*default(), faster, slower).impl == "launch-02"


def test_what_is_faster_by_less_than_the_default_differs_from_itself_is_not_chosen():
    assert chosen(*default(off=0.0), candidate("launch-01", 48.0)).impl == "launch-01"
    assert chosen(*default(off=0.06), candidate("launch-01", 48.0)).impl is None


def test_without_an_a_a_pair_nothing_is_chosen():
    best = chosen(row(DEFAULT, 50.0), candidate("launch-01", 30.0))
    assert (best.impl, best.why) == (None, "no A/A band was measured")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (row(DEFAULT, None, status="wrong", reason="dx"), "not measured: triton-inhouse is wrong: dx"),
        (row(DEFAULT, None, untimed="no room"), "not measured: triton-inhouse: not timed: no room"),
    ],
)
def test_without_the_default_nothing_is_known(found, why):
    best = chosen(found, candidate("launch-01", 30.0))
    assert (best.default_us, best.impl, best.why) == (None, None, why)


def test_what_is_too_short_to_be_ranked_is_not():
    best = chosen(*default(9.0), candidate("launch-01", 8.0), selftests=[selftest(**budget().model_dump())])
    assert best.why == "not measured: triton-inhouse is below 10 x t0 (12.8 us)"


def test_the_winners_are_measured_again_and_only_those_figures_count():
    sweep, second = one_of_each()
    first, other, none, lost = confirmed(best_launches(sweep), second)
    assert (first.impl, first.launch) == ("launch-02", LAUNCHES["launch-02"])  # not launch-03, which won nothing here
    assert first.speedup.value == pytest.approx(50.2 / 45.6, rel=0.01)
    assert first.speedup.processes == 5
    assert (other.impl, other.launch, other.speedup) == (None, None, None)
    assert other.why == "launch-03 was faster in the sweep, and not when measured again"
    assert (none.impl, none.why) == (None, "")
    assert lost.default_us is None


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [*default()],
        [*default(), candidate("launch-01", 40.0, status="wrong")],
        [*default(), candidate("launch-01", 40.0, status="nondeterministic")],
        [row(DEFAULT, 50.0), candidate("launch-01", 40.0)],
    ],
    ids=["nothing", "the default alone", "wrong", "nondeterministic", "no twin"],
)
def test_a_winner_that_cannot_be_confirmed_is_none(rows):
    best = best_launches(swept(*default(), candidate("launch-01", 40.0)))
    assert best[0].impl == "launch-01"
    (found,) = confirmed(best, again(*rows) if rows else swept())
    assert (found.impl, found.launch, found.default_us) == (None, None, best[0].default_us)


def test_processes_that_disagree_confirm_nothing():
    best = best_launches(swept(*default(), candidate("launch-01", 47.0)))
    bias = {("launch-01", "impl", 1): 1.08, ("launch-01", "impl", 3): 0.92}
    (found,) = confirmed(best, again(*default(), candidate("launch-01", 47.0), bias=bias))
    assert found.impl is None


def test_what_is_written_is_what_was_found():
    sweep, second = one_of_each()
    file = launch_file(sweep, confirmed(best_launches(sweep), second))
    assert LaunchFile.model_validate_json(file.model_dump_json(exclude_none=True)) == file
    assert (file.device, file.multiprocessors, file.torch, file.triton) == ("NVIDIA H200", 132, "2.11.0", "3.6.0")
    assert (file.date, file.revision) == ("2025-06-01T12:00:00+00:00", "abc1234")
    # There is none for the case that was not measured.
    assert [case.rows for case in file.cases] == [CASE.rows, TALL[0].rows, TALL[1].rows]
    first, *others = file.cases
    assert first.launch == LAUNCHES["launch-02"]
    assert first.best_us < first.default_us
    assert first.speedup.low < first.speedup.value < first.speedup.high
    assert [(case.launch, case.best_us, case.speedup) for case in others] == [(None, None, None)] * 2


def test_a_layer_norm_s_bias_is_part_of_what_was_tuned():
    (best,) = best_launches(swept(*default(case=LAYER), candidate("launch-01", 40.0, LAYER)))
    (case,) = launch_file(swept(*default(case=LAYER)), [best]).cases
    assert (case.norm, case.bias, case.problem.accumulators, case.by_words) == ("layer", True, 2, True)
