"""The command of a case, given to our own command line, asks for what the results file holds."""

import re
import shlex
from collections import Counter
from dataclasses import replace
from functools import cache, partial

import pytest
import typer.main

from harness.__main__ import app
from harness.cases import NormCase
from harness.cases.models import cases_of_models
from harness.cases.suites import SUITES, cases_of
from harness.defaults import BASELINE
from harness.records.cases_asked import cases_on
from harness.records.contexts import ALL_REDUCE, COLD
from harness.records.published_plan import read_plan
from harness.run.options import _invocation
from harness.run.plan import select, tried_on, with_torch
from harness.run.resolve import check
from harness.worker.messages import Start
from harness.worker.serve import find_implementations, record
from reports.published.measure_again import measure_again
from reports.published.sources import sources
from tests.results_factory import results, row, timing, twin

PLAIN = NormCase("rms", 8192, 4096)
LAYER = NormCase("layer", 4096, 2048, bias=True)
RANKINGS = {
    f"{each.device}/{each.name}": each
    for each in sources(read_plan())
    if each.is_ranking and ALL_REDUCE not in each.results.contexts  # which `bench` does not measure
}
FEATURES = [("residual",), ("dropout", "residual"), ("parallel",), ("gated",), ("gated-norm-first",)]


def asked(command):
    """The invocation that a command line makes, after all that refuses one."""
    _, name, *words = shlex.split(command)
    parsed = typer.main.get_command(app).commands[name].make_context(name, words)
    invocation = _invocation({name: value for name, value in parsed.params.items() if value not in (None, [], ())})
    check(invocation)
    return invocation


@cache
def known():
    """The implementations of this checkout, as a worker names them."""
    found = find_implementations(Start()).values()
    return [record(item) for item in found if item.source.startswith("impls/")]


def would_measure(command, run):
    """What a command selects on the machine of a run, in the terms of `holds`.

    What an implementation handles may depend on the GPU; the run holds what it was there.
    """
    settings = asked(command).settings
    cases = cases_on("cuda", settings)
    there = {impl.name: impl.handles for impl in run.run.implementations}
    known_there = [impl.model_copy(update={"handles": there.get(impl.name, impl.handles)}) for impl in known()]
    impls = select(known_there, settings.impls, settings.baseline or None, BASELINE)
    tried = [tried_on(case, with_torch(impls, known_there, cases)) for case in cases]
    return {
        "cases": cases,
        "impls": {name for names in tried for name in names},
        "baseline": impls[0].name,
        "flush": settings.flush,
        "processes": set(range(settings.processes)),
        "contexts": set(settings.context),
        "twice": settings.twice,
        "other engines": settings.cross_check,
        "quick": settings.quick,
        "seed": settings.seed,
    }


def holds(run, case):
    """What a file holds of a case, by its rows wherever these tell it."""
    rows = [row for row in run.rows if row.case == case]
    impls = [row for row in rows if row.role == "impl"]
    timed = [row for row in rows if row.timing]
    doubles = Counter((row.case, row.process) for row in run.rows if row.role == "again")  # the baseline's, or more
    return {
        "cases": [case],
        "impls": {row.impl for row in impls},
        "baseline": run.run.settings.baseline,
        "flush": next((row.timing.flush for row in timed), run.run.settings.flush),
        "processes": {row.process for row in rows},
        "contexts": {COLD, *(context for row in impls for context in row.contexts or {})},
        "twice": max(doubles.values(), default=0) > 1,
        "other engines": any(row.other_engines_us for row in run.rows),
        "quick": run.run.settings.quick,
        "seed": run.run.settings.seed,
    }


def differences(command, run, case):
    found, wanted = would_measure(command, run), holds(run, case)
    return {name: (found[name], wanted[name]) for name in wanted if found[name] != wanted[name]}


@pytest.mark.parametrize("name", RANKINGS)
def test_command_selects_what_the_file_holds(name):
    run = RANKINGS[name].results
    cases = {row.case for row in run.rows if row.case.inputs == "normal"}
    assert cases
    for case in cases:
        command = measure_again(case, run.run)
        if command is None and case.heads:  # keys beside queries, which no option says
            assert case in cases_of_models()
            continue
        assert command is not None, case.key
        assert differences(command, run, case) == {}, case.key


def held(*impls, case=PLAIN, processes=1, again=(), other_engines_us=None, **settings):
    """A run that holds one case of these implementations in each of its processes."""
    timed = timing(4.0, flush=settings.get("flush", "clean"))
    more = {"other_engines_us": other_engines_us or {}}
    rows = [row(impl, 4.0, case=case, timed=timed, process=n, **more) for n in range(processes) for impl in impls]
    twins = [twin(impl, 4.0, case=case) for impl in again]
    run = results(*rows, *twins, baseline=impls[0], processes=processes, **settings)
    known_as = [impl for impl in known() if impl.name in impls]
    return replace(run, run=run.run.model_copy(update={"implementations": known_as}))


FAULTS = {
    "every implementation of today": (partial(held, "torch-eager", "quack"), "impls", "--impls [^ ]+", "--impls all"),
    "one row a library": (partial(held, "torch-eager", "quack"), "impls", " --impls [^ ]+", ""),
    "one too few": (partial(held, "torch-eager", "quack", "liger"), "impls", ",quack", ""),
    "the usual baseline": (partial(held, "cudnn", "liger"), "baseline", " --baseline cudnn", " --baseline liger"),
    "each once": (partial(held, "torch-eager", again=["torch-eager"] * 2, twice=True), "twice", " --twice", ""),
    "no other engine": (
        partial(held, "torch-eager", other_engines_us={"do_bench": 5.0}, cross_check=True),
        "other engines",
        " --cross-check",
        "",
    ),
    "one process": (partial(held, "torch-eager", processes=3), "processes", " --processes 3", ""),
    "another flush": (partial(held, "torch-eager", flush="none"), "flush", " --flush none", ""),
    "another dtype": (
        partial(held, "torch-eager", case=replace(PLAIN, dtype="fp16", weight_dtype="fp16")),
        "cases",
        " --dtype fp16",
        "",
    ),
    "a bias": (partial(held, "torch-eager", case=replace(LAYER, bias=False)), "cases", " --no-bias", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found(fault):
    make, what, sound, faulty = FAULTS[fault]
    run = make()
    case = run.rows[0].case
    command = measure_again(case, run.run)
    assert differences(command, run, case) == {}
    changed = re.sub(sound, faulty, command)
    assert changed != command
    assert set(differences(changed, run, case)) == {what}


@pytest.mark.parametrize(
    "case",
    [
        PLAIN,
        LAYER,
        replace(LAYER, bias=False),
        replace(LAYER, weight=False, bias=False),
        replace(PLAIN, zero_centred=True, eps=1e-6),
        replace(PLAIN, dtype="fp16", weight_dtype="fp32"),
        replace(PLAIN, dtype="fp32", weight_dtype="fp32"),
        *(replace(PLAIN, features=names, dropout_p=0.1 if "dropout" in names else 0.0) for names in FEATURES),
        *cases_of(SUITES["qk"].shapes, ["rms"], variants=[("qk",)]),
    ],
    ids=lambda case: case.key,
)
def test_command_measures_the_case_again(case):
    command = measure_again(case, run_of())
    assert cases_on("cuda", asked(command).settings) == [case]


def run_of(**settings):
    return results(row("torch-eager", 4.0), **settings).run


def test_command_has_the_settings_of_the_run():
    run = run_of(flush="dirty", processes=5, context="graph,beside:8", holder="512x100", quick=True, baseline="quack")
    settings = asked(measure_again(PLAIN, run)).settings
    for name in ("flush", "processes", "holder", "quick", "baseline", "seed"):
        assert getattr(settings, name) == getattr(run.settings, name), name
    assert settings.context == ("cold", "graph", "beside:8")
    assert settings.impls == ",".join(impl.name for impl in run.implementations)


def test_what_torch_helps_is_not_named_beside_itself():
    """It comes with the one that it helps, where the case asks for it."""
    run = run_of()
    first = run.implementations[0]
    helped = first.model_copy(update={"name": f"{first.name} + torch"})
    again = measure_again(PLAIN, run.model_copy(update={"implementations": [*run.implementations, helped]}))
    assert again == measure_again(PLAIN, run)


def test_no_command_is_better_than_a_wrong_one():
    """The heads of a model's keys are beside those of its queries, which no option says."""
    commands = {case: measure_again(case, run_of()) for case in cases_of_models()}
    assert [case for case, command in commands.items() if command is None]
    assert all(cases_on("cuda", asked(again).settings) == [case] for case, again in commands.items() if again)


def test_no_command_for_what_another_program_measured_or_somebody_brought():
    run = run_of()
    (first, *rest) = run.implementations
    brought = [first, *(impl.model_copy(update={"source": "my_kernel.py"}) for impl in rest[:1])]
    assert measure_again(PLAIN, run.model_copy(update={"implementations": brought})) is None
    assert measure_again(PLAIN, run_of(context="beside:8,all-reduce")) is None
