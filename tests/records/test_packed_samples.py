import json

import pytest
from pydantic import ValidationError

from harness.publish.packing import pack
from harness.records.file import load
from harness.records.packed_samples import PackedSamples
from harness.records.schema import ConditionsRecord, ContextRecord, Timing
from tests.results_factory import CASE, GROUP, results, row, timing


@pytest.mark.parametrize(
    ("samples_us", "unit_ns", "median", "from_median"),
    [
        ([118.944, 118.4, 118.976, 118.912], 32, 3717, [0, -17, 1, -1]),
        ([50.0, 50.03, 49.98], 10, 5000, [0, 3, -2]),
        ([7.0], 7000, 1, [0]),
        ([0.0, 0.0], 10, 0, [0, 0]),
        ([], 10, 0, []),
    ],
)
def test_samples_of_a_coarse_timer_come_back_as_they_were(samples_us, unit_ns, median, from_median):
    packed = PackedSamples.of(samples_us)
    assert packed == PackedSamples(unit_ns=unit_ns, median=median, from_median=from_median)
    assert packed.in_us() == samples_us


def test_samples_of_a_finer_timer_are_rounded_to_ten_nanoseconds():
    assert PackedSamples.of([20.001, 20.016, 20.044]).in_us() == [20.0, 20.02, 20.04]


def test_both_forms_are_read_alike():
    plain = timing(10.0, blocks=3)
    stored = plain.model_dump() | {"samples_us": {"unit_ns": 500, "median": 20, "from_median": [0, 1, -1]}}
    for blocks in (None, [0, 1, 2]):
        read = Timing.model_validate_json(json.dumps(stored | {"blocks": blocks}))
        assert (read.samples_us, read.blocks) == ([10.0, 10.5, 9.5], [0, 1, 2])
    gaps = Timing.model_validate(stored | {"blocks": [0, 2, 7]})
    assert gaps.blocks == [0, 2, 7]


@pytest.mark.parametrize(
    "wrong",
    [
        {"unit_ns": 32},
        {"unit_ns": 0, "median": 1, "from_median": [0]},
        {"unit_ns": 1, "median": 1, "from_median": [0.5]},
    ],
)
def test_a_malformed_form_is_refused(wrong):
    with pytest.raises(ValidationError):
        Timing.model_validate({"group": "g", "flush": "clean", "samples_us": wrong})


def test_packing_again_changes_nothing(tmp_path):
    """A published part is unpacked, resumed, and packed once more."""
    first = row("quack", 50.0, contexts={"host": ContextRecord(status="ok", timing=timing(9.0))})
    state = ConditionsRecord(case=CASE, group=GROUP, sm_clock_mhz=[1980] * 3, power_w=[144.471, 157.5, 200.0])
    found = results(first, states=(state,))
    raw, once, twice = (tmp_path / name for name in ("results.jsonl", "once.jsonl.bz2", "twice.jsonl.bz2"))
    records = [found.run, *found.rows, *found.conditions, found.end]
    raw.write_text("".join(record.model_dump_json(exclude_none=True) + "\n" for record in records))
    pack(raw, once)
    pack(once, twice)
    assert load(twice) == load(once)
    (state,) = load(twice).conditions
    assert state.power_w == [144, 158, 200]
    (packed,) = load(twice).rows
    for was, now in ((first.timing, packed.timing), (first.contexts["host"].timing, packed.contexts["host"].timing)):
        assert now.samples_us == pytest.approx(was.samples_us, abs=0.0051)
