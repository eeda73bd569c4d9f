from harness.tune.sweep import tuned_file
from harness.tune.winners import best_candidates, confirmed
from reports.parts.tuning import render
from tests.tunings import TUNABLE, one_of_each


def test_golden(golden):
    sweep, second = one_of_each()
    golden("tuning.txt", render(tuned_file([(TUNABLE, sweep, confirmed(best_candidates(sweep), second))])))


def test_a_sweep_alone(golden):
    sweep, _ = one_of_each()
    golden("tuning-sweep.txt", render(tuned_file([(TUNABLE, sweep, best_candidates(sweep))])))
