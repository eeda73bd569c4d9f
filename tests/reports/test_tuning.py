from harness.tune.winners import best_launches, confirmed
from reports.parts.tuning import render
from tests.tunings import one_of_each


def test_golden(golden):
    sweep, second = one_of_each()
    golden("tuning.txt", render(confirmed(best_launches(sweep), second)))


def test_a_sweep_alone(golden):
    golden("tuning-sweep.txt", render(best_launches(one_of_each()[0])))
