"""Which configuration is chosen: only what is right, deterministic, and faster beyond doubt."""

import pytest

from harness.cases.tuned import TunedFile
from harness.tune.sweep import tuned_file
from harness.tune.winners import best_candidates, confirmed
from tests.results_factory import CASE, budget, row, selftest, timing
from tests.tunings import CONFIGS, DEFAULT, TALL, TUNABLE, again, candidate, default, one_of_each, swept


def chosen(*rows, **settings):
    (best,) = best_candidates(swept(*rows, **settings))
    assert (best.candidate is None) == (best.speedup is None) == (best.best_us is None)
    return best


def test_the_fastest_is_chosen():
    best = chosen(*default(), candidate(1, 47.5), candidate(2, 45.0), candidate(3, 46.0))
    assert best.candidate == "mine#02"
    assert best.default_us == pytest.approx(50.0 * 1.1, rel=0.01)  # the drift of the factory's samples
    assert best.speedup.value == pytest.approx(50 / 45, rel=0.01)
    assert best.speedup.low < best.speedup.value < best.speedup.high


@pytest.mark.parametrize(
    "faster",
    [
        candidate(1, 30.0, status="wrong", reason="dx is off by rho 9"),
        candidate(1, 30.0, status="nondeterministic"),
        candidate(1, None, status="crashed", reason="RuntimeError"),
        candidate(1, None, status="unsupported", reason="spills 12 registers"),
        candidate(1, None, untimed="no room"),
        candidate(1, 30.0, timed=timing(30.0, proven=False)),
        candidate(1, 30.0, timed=timing(30.0, group="another")),
        candidate(1, 49.8),  # inside the band that one process has at least
        candidate(1, 50.0),
        candidate(1, 55.0),
    ],
    ids=lambda item: f"{item.status}-{item.timing.samples_us[0] if item.timing else item.reason}",
)
def test_what_may_not_replace_the_default(faster):
    best = chosen(*default(), faster)
    assert best.candidate is None
    assert best.why == ""
    slower = candidate(2, 47.0)
    assert chosen(*default(), faster, slower).candidate == "mine#02"


def test_a_gain_within_the_defaults_own_difference():
    assert chosen(*default(off=0.0), candidate(1, 48.0)).candidate == "mine#01"
    assert chosen(*default(off=0.06), candidate(1, 48.0)).candidate is None


def test_without_an_a_a_pair_nothing_is_chosen():
    best = chosen(row(DEFAULT, 50.0), candidate(1, 30.0))
    assert (best.candidate, best.why) == (None, "no A/A band was measured")


@pytest.mark.parametrize(
    ("unmeasured", "why"),
    [
        (row(DEFAULT, None, status="wrong", reason="dx"), "not measured: mine is wrong: dx"),
        (row(DEFAULT, None, untimed="no room"), "not measured: mine: not timed: no room"),
    ],
)
def test_without_the_default_nothing_is_known(unmeasured, why):
    best = chosen(unmeasured, candidate(1, 30.0))
    assert (best.default_us, best.candidate, best.why) == (None, None, why)


def test_what_is_too_short_to_be_ranked_is_not():
    best = chosen(*default(9.0), candidate(1, 8.0), selftests=[selftest(**budget().model_dump())])
    assert best.why == "not measured: mine is below 10 x t0 (12.8 us): shown, not ranked"


def test_only_the_figures_of_the_second_run_count():
    sweep, second = one_of_each()
    first, other, none, lost = confirmed(best_candidates(sweep), second)
    assert first.candidate == "mine#02"  # not mine#03, which won nothing here
    assert first.speedup.value == pytest.approx(50.2 / 45.6, rel=0.01)
    assert first.speedup.processes == 5
    assert (other.candidate, other.speedup) == (None, None)
    assert other.why == "mine#03 was faster in the sweep, and not when measured again"
    assert (none.candidate, none.why) == (None, "")
    assert lost.default_us is None


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [*default()],
        [*default(), candidate(1, 40.0, status="wrong")],
        [*default(), candidate(1, 40.0, status="nondeterministic")],
        [row(DEFAULT, 50.0), candidate(1, 40.0)],
    ],
    ids=["nothing", "the default alone", "wrong", "nondeterministic", "no twin"],
)
def test_a_winner_that_cannot_be_confirmed_is_none(rows):
    best = best_candidates(swept(*default(), candidate(1, 40.0)))
    assert best[0].candidate == "mine#01"
    (stays,) = confirmed(best, again(*rows) if rows else swept())
    assert (stays.candidate, stays.default_us) == (None, best[0].default_us)


def test_processes_that_disagree_confirm_nothing():
    best = best_candidates(swept(*default(), candidate(1, 47.0)))
    bias = {("mine#01", "impl", 1): 1.08, ("mine#01", "impl", 3): 0.92}
    (stays,) = confirmed(best, again(*default(), candidate(1, 47.0), bias=bias))
    assert stays.candidate is None


def test_the_file_holds_every_case():
    sweep, second = one_of_each()
    file = tuned_file([(TUNABLE, sweep, confirmed(best_candidates(sweep), second))])
    assert TunedFile.model_validate_json(file.model_dump_json()) == file
    assert (file.device, file.multiprocessors, file.libraries["triton"]) == ("NVIDIA H200", 132, "3.6.0")
    assert (file.date, file.revision) == ("2025-06-01T12:00:00+00:00", "abc1234")
    assert [case.case for case in file.cases] == [CASE, *TALL]
    assert [case.case for case in file.measured(DEFAULT)] == [CASE, *TALL[:2]]
    assert file.measured("another") == []
    first, *others = file.cases
    assert (first.config_name, first.config, first.tried) == ("rows=4", CONFIGS["rows=4"], 4)
    assert first.best_us < first.default_us
    assert first.speedup.low < first.speedup.value < first.speedup.high
    assert [(case.config_name, case.config, case.best_us, case.speedup) for case in others] == [(None,) * 4] * 3
    assert [case.why for case in others] == [
        "mine#03 was faster in the sweep, and not when measured again",
        "",
        "not measured: mine is crashed: RuntimeError: out of\nresources",
    ]
