import math

import pytest

from harness.analysis.evidence import detected, detected_together
from harness.analysis.statistics import PROCESS_BAND, Ratio
from harness.records.schema import Budget, Check, SelfTestRecord
from reports.parts.caveats import failed_checks

BUDGET = Budget(t0_us=1.28, fixed_us=1.6, relative=0.003, ratio=0.001)


def ratio(read, low=None, high=None):
    """A ratio in per cent."""
    low, high = (read if end is None else end for end in (low, high))
    return Ratio(1 + read / 100, 1 + low / 100, 1 + high / 100, 40)


def check(name, read, truth, **more):
    """A check that read so many per cent where so many were true."""
    reading = math.log1p(read / 100)
    off = 100 * abs(reading - math.log1p(truth / 100))
    return Check(name=name, value=round(off, 3), limit=0.5, reading=reading, unit="%", **more)


def of_process(process, read, nothing=0.1, passed=False):
    """A self-test that read so many per cent of one, and of nothing."""
    alone = check("A/A", nothing, 0.0, passed=nothing <= 0.5)
    effect = check("planted +1%", read, 1.0, passed=passed, detail="not told from A/A")
    return SelfTestRecord(when="before", process=process, budget=BUDGET, checks=[alone, effect])


def reading(*reads, **more):
    return [of_process(process, read, **more) for process, read in enumerate(reads)]


def test_one_process_tells_an_effect_from_its_own_pair():
    read = ratio(0.92, 0.68, 1.08)
    assert read.low < math.exp(PROCESS_BAND)
    assert detected([read], [ratio(0.2)])
    assert detected([read], [ratio(-0.2)])
    assert not detected([read], [ratio(0.8)])
    assert not detected([ratio(0.3, 0.1, 0.5)], [ratio(0.2)])
    assert not detected([ratio(1.0, -100, math.inf)], [ratio(0.0)])  # no interval


def test_several_processes_find_it_together():
    reads = (0.92, 1.0, 1.06, 0.95, 1.02)
    records = [of_process(process, read, passed=process > 0) for process, read in enumerate(reads)]
    assert detected_together("planted +1%", records)
    assert failed_checks(records) == []
    assert failed_checks(records[:1]) == [
        "The self-test before the cases failed: planted +1%: not told from A/A (0.079 %, limit 0.50 %)."
    ]


@pytest.mark.parametrize(
    "records",
    [
        reading(0.3, 1.0, 1.01, 0.99, 1.0),  # off in one of them
        reading(0.55, 0.6, 1.4, 0.6, 1.45, nothing=0.4),  # anything, within the limits
        reading(1.02, 1.0, 0.99, 1.01, 1.0, nothing=0.8),  # nothing is read as nearly as much
        reading(0.9, 1.1),  # two know too little
    ],
    ids=["off in one", "scattered", "nothing is read", "two processes"],
)
def test_several_processes_can_miss_it(records):
    assert not detected_together("planted +1%", records)
    assert any("planted +1%" in line for line in failed_checks(records))


def test_a_process_without_a_reading_finds_nothing():
    for name in ("A/A", "planted +1%"):
        records = reading(1.0, 1.01, 0.99)
        assert detected_together("planted +1%", records)
        void = [each.model_copy(update={"value": None}) if each.name == name else each for each in records[1].checks]
        records[1] = records[1].model_copy(update={"checks": void})
        assert not detected_together("planted +1%", records)


def test_other_checks_are_not_found_together():
    records = reading(1.0, 1.0, 1.0, 1.0, 1.0, passed=True)
    records[2].checks.append(Check(name="coldness", passed=False, value=3.1, limit=2.0, unit="%"))
    assert not detected_together("coldness", records)
    assert failed_checks(records) == [
        "The self-test before the cases failed: coldness 3.1 % (limit 2 %) in 1 of 5 processes."
    ]
