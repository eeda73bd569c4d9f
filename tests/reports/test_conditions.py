from dataclasses import replace

import pytest

import reports
from harness.analysis.comparison import compare
from harness.analysis.device_state import device_state
from harness.records.settings import Settings
from reports.parts.caveats import caveats, moved
from reports.parts.conditions import conditions
from tests.results_factory import (
    LAYER,
    helpers,
    in_contexts,
    in_processes,
    mixed,
    results,
    row,
    selftest,
    thorough,
    verified_only,
)
from tests.results_factory import conditions as readings


def told(*records):
    return moved(device_state(records))


def named(measured):
    return dict(conditions(compare(measured)))


def test_a_steady_device_is_no_caveat():
    assert told() == []
    assert told(readings(), readings(LAYER, sm_clock_mhz=[1980, 1945])) == []


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


def test_a_silent_device_has_no_readings():
    silent = {"sm_clock_mhz": [], "memory_clock_mhz": [], "power_w": [], "temperature_c": []}
    state = device_state([readings(**silent)])
    assert (state.sm_clock_mhz, state.power_w, state.temperature_c) == (None, None, None)
    assert moved(state) == []
    assert not any(
        "while measuring" in name for name in named(results(row("quack", 50.0), states=[readings(**silent)]))
    )


def test_the_runs_of_later_processes_are_told_beside_those_of_the_first():
    once = results(row("quack", 50.0))
    told_of = replace(once, run=once.run.model_copy(update={"settings": Settings(repeats=50, later_repeats=2)}))
    assert named(told_of)["Runs a case for its bits"] == "50; 2 in each later process"


def test_readings_and_stages_are_conditions():
    found = named(thorough())
    assert found["Clocks while measuring"] == "multiprocessors 1755 to 1980 MHz, memory 3201 MHz"
    assert found["Power while measuring"] == "412 to 655 W"
    assert found["Temperature while measuring"] == "41 to 52 °C"
    assert found["Time"] == "600 s, of which timing 402 s, compiling ahead 60 s, preparing 40 s"
    assert found["Blocks per case"] == "120 in 3 processes"


def test_older_file_says_its_error_is_unknown():
    assert named(mixed())["Engine's own error"] == "unknown, as no self-test was made"
    assert named(mixed())["Time"] == "600 s"
    assert caveats(compare(mixed())) == []
    assert "Engine's own error" not in named(verified_only())
    assert "Engine's own error" not in named(results(row("quack", 50.0), selftests=[selftest()]))


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
