import pytest

import reports
from harness.analysis.comparison import compare
from harness.analysis.device_state import device_state
from reports.parts.caveats import caveats, moved
from reports.parts.conditions import conditions
from tests.results_factory import LAYER, helpers, in_contexts, in_processes, mixed, results, row, selftest, thorough
from tests.results_factory import conditions as readings


def told(*records):
    return moved(device_state(records))


def named(measured):
    return dict(conditions(compare(measured)))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"sm_clock_mhz": [1980, 1755]},
            "The multiprocessor clock moved in 1 of 2 cases: 1755 to 1980 MHz over the run.",
        ),
        ({"memory_clock_mhz": [3201, 2619]}, "The memory clock moved in 1 of 2 cases: 2619 to 3201 MHz over the run."),
        ({"sm_clock_mhz": [1755] * 3}, "The multiprocessor clock moved between cases: 1755 to 1980 MHz over the run."),
        ({"throttled": {"power": [0, 2]}}, "The device held its clocks back (power) in 1 of 2 cases, 2 blocks."),
        ({"other_processes": 3}, "Other processes were on the device in 1 of 2 cases, at most 3 at a time."),
    ],
)
def test_what_moved_is_told_in_one_line(changed, expected):
    assert told(readings(), readings(LAYER, **changed)) == [expected]


def test_a_case_counts_once_however_many_processes_it_moved_in():
    records = [readings(process=n, sm_clock_mhz=[1980, 1755], throttled={"heat": [n]}) for n in range(3)]
    assert told(*records) == [
        "The multiprocessor clock moved in 1 of 1 case: 1755 to 1980 MHz over the run.",
        "The device held its clocks back (heat) in 1 of 1 case, 3 blocks.",
    ]


def test_readings_and_stages_are_conditions():
    found = named(thorough())
    assert found["Clocks while measuring"] == "multiprocessors 1755 to 1980 MHz, memory 3201 MHz"
    assert found["Power while measuring"] == "412 to 655 W"
    assert found["Temperature while measuring"] == "41 to 52 °C"
    assert found["Time"] == "600 s, of which timing 402 s, compiling ahead 60 s, preparing 40 s"
    assert found["Blocks per case"] == "120 in 3 processes"


@pytest.mark.parametrize("form", ["console", "markdown", "grid", "pr"])
def test_the_error_and_what_moved_are_in_every_format(form):
    text = " ".join(reports.render(thorough(), form).split())
    assert "The engine's own error, by its self-test: a time ±1.9 us" in text
    assert "The self-test after the cases failed: events against profiler 3.14 us (limit 1.00 us)." in text
    assert "The multiprocessor clock moved in 1 of 2 cases" in text
    assert "by its self-test" not in reports.render(mixed(), form)


def test_caveats_of_a_context_name_it_where_the_run_has_several():
    short = [row("torch-eager", 100.0), row("quack", 9.0), *helpers(100.0, 46.0)]
    alone = compare(results(*short, selftests=[selftest(t0_us=2.0)]))
    several = compare(results(*in_contexts(short, graph=1.1), context="graph", selftests=[selftest(t0_us=2.0)]))
    (said,) = caveats(alone)
    assert said.startswith("In 1 case something is below 10 x t0")
    assert caveats(several) == [f"cold: {said}"]
    assert caveats(several.contexts[0]) == [f"graph: {said}"]


def test_processes_that_are_set_aside_are_named():
    pair = [row("torch-eager", 100.0), row("quack", 50.0), *helpers(100.0, 46.0)]
    tests = [selftest(t0_us=1.3), selftest(process=1, t0_us=9.0), selftest(process=2, t0_us=9.0)]
    several = compare(results(*in_processes(*pair), processes=3, selftests=tests))
    assert (
        "In 1 case the times of process 1, 2 are set aside: 10 x t0 of such a process is more than the fastest takes."
    ) in caveats(several)
