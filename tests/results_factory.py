"""Results made of fixed numbers, for tests of what reads them.

Noise and drift take few values, so that a bootstrap's percentiles land on one of them whatever the generator draws.
"""

import math
from dataclasses import replace
from typing import get_args

import numpy as np

from harness.analysis.comparison import compare
from harness.analysis.outcomes import join_outcomes
from harness.cases import NormCase
from harness.records.file import Results
from harness.records.run_records import DeviceRecord, EndRecord, ImplRecord, RunRecord
from harness.records.schema import (
    Budget,
    Check,
    Condition,
    ConditionCheck,
    ConditionsRecord,
    ContextRecord,
    Kernel,
    KernelTotals,
    RowRecord,
    SanitizerRecord,
    SelfTestRecord,
    TensorCheck,
    Timing,
    Verification,
)
from harness.records.settings import Settings

GROUP = "g1"
LEAD_US = 1.0  # of the first kernel, after what ran before it
NOISE = (0.0, 0.004, -0.004, 0.002, -0.002)  # relative, block by block
CASE = NormCase("rms", 8192, 4096)
LAYER = NormCase("layer", 4096, 2048, bias=True)
NAMES = ("torch-eager", "triton-inhouse", "quack", "liger", "compiled", "apex")


def samples(us, blocks=40, noise=1.0, drift=0.0, shift=0):
    """`us` with noise, and a drift that all implementations share: `drift` is its relative size at the last block."""
    return [
        round(us * (1 + noise * NOISE[(block * 2 + shift) % 5]) * (1 + drift * block / blocks), 6)
        for block in range(blocks)
    ]


def timing(us, *, group=GROUP, flush="clean", blocks=40, noise=1.0, drift=0.2, shift=0, **more):
    """A timing around `us`."""
    values = samples(us, blocks, noise, drift, shift)
    return Timing(group=group, flush=flush, samples_us=values, blocks=list(range(blocks)), **more)


def verification(
    case=CASE, rho=1.0, error_class="exact", repeats=50, differing_in=(), relative_rms=None, fp32=None, **more
):
    """A verification in which every gradient has the same error."""
    names = ["dx", "dweight", *(["dbias"] if case.bias else [])]
    rms = 1.66e-3 * rho if relative_rms is None else relative_rms
    check = TensorCheck(rho=rho, relative_rms=rms, error_class=error_class, fp32_relative_rms=fp32)
    return Verification(
        tensors={name: check.model_copy(update={"worst_row": 1.02 * rho} if name == "dx" else {}) for name in names},
        repeats=repeats,
        differing=2 if differing_in else 0,
        differing_in=list(differing_in),
        **more,
    )


def under(runs=50, differing_in=(), **skipped):
    """The runs under each condition, none but those that are named in `skipped` left out, by their first word."""
    return [
        ConditionCheck(condition=condition, runs=0, skipped=skipped[condition.split()[0]])
        if condition.split()[0] in skipped
        else ConditionCheck(
            condition=condition, runs=runs, differing=1 if differing_in else 0, differing_in=list(differing_in)
        )
        for condition in get_args(Condition)
    ]


def row(impl, us=None, case=CASE, status="ok", shift=0, timed=None, **more):
    """A row of an implementation; one that passed has a verification, and a timing where `us` is given."""
    fields = {}
    if status in ("ok", "nondeterministic"):
        differing_in = ["dweight"] if status == "nondeterministic" else []
        fields["verification"] = verification(case, differing_in=differing_in)
        fields |= {"peak_extra_bytes": 1 << 20, "prepare_s": 1.5}
        if us is not None:
            fields["kernels"] = [Kernel(name="backward", median_us=us * 0.9), Kernel(name="sum", median_us=us * 0.05)]
    if us is not None:
        fields["timing"] = timed or timing(us, shift=shift)
    return RowRecord(case=case, impl=impl, status=status, **(fields | more))


def in_contexts(rows, **scales):
    """The rows with times in other contexts as well, each a number of times as long; `beside_8` is beside:8."""
    return [
        each.model_copy(
            update={
                "contexts": {
                    name.replace("_", ":", 1) if name.startswith("beside") else name.replace("_", "-"): _scaled(
                        each.timing, scale(each.impl) if callable(scale) else scale
                    )
                    for name, scale in scales.items()
                }
            }
        )
        for each in rows
        if each.timing
    ]


def _scaled(timed, scale):
    longer = {"samples_us": [scale * us for us in timed.samples_us]}
    return ContextRecord(status="ok", timing=timed.model_copy(update=longer))


def helpers(base_us, add_us, case=CASE, again_off=0.0):
    """The two rows that a case has beside its implementations: the baseline again (off by a ratio), and the add."""
    again = timing(base_us * math.exp(again_off), shift=3)
    return [
        RowRecord(case=case, impl="torch-eager", role="again", status="ok", timing=again),
        RowRecord(case=case, impl="add", role="floor", status="ok", timing=timing(add_us, shift=1)),
    ]


def twin(impl, us, case=CASE, off=0.0, shift=3):
    """The second appearance of an implementation, off by a log ratio."""
    return RowRecord(case=case, impl=impl, role="again", status="ok", timing=timing(us * math.exp(off), shift=shift))


def in_processes(*rows, scales=(1.0, 1.01, 0.99), bias=()):
    """The rows as measured by a process for each of `scales`, each in blocks of its own and slower by its scale.

    `bias` gives one row another scale in one process: {(impl, role, process): scale}.
    """
    found = []
    for process, scale in enumerate(scales):
        for each in rows:
            fields = {"process": process}
            if each.timing:
                by = dict(bias).get((each.impl, each.role, process), scale)
                longer = [us * by for us in each.timing.samples_us]
                fields["timing"] = each.timing.model_copy(update={"group": f"p{process}", "samples_us": longer})
            found.append(each.model_copy(update=fields))
    return found


def budget(**more):
    """What a self-test on an H200 may find."""
    found = {"t0_us": 1.28, "null_us": 2.1, "fixed_us": 1.6, "relative": 0.003, "ratio": 0.001}
    return Budget(**(found | {"copy_gbps": 4276.0, "event_offset_us": 1.5} | more))


def selftest(*checks, when="before", process=0, **more):
    """A self-test: one check that passed and one that cannot be made here, unless told otherwise."""
    usual = [
        Check(name="t0", passed=True, value=1.28, limit=5.0, unit="us", detail="two events with nothing between them"),
        Check(name="linear", passed=None, detail="no room for four copies"),
    ]
    return SelfTestRecord(when=when, process=process, budget=budget(**more), checks=list(checks) or usual)


COLD = Check(name="coldness", passed=False, value=3.14, limit=2.0, unit="%", detail="half the L2 read after a flush")
OFF = Check(  # no ratio rests on it
    name="events against profiler", passed=False, value=3.14, limit=1.0, unit="us", detail="another clock"
)


def conditions(case=CASE, process=0, **more):
    """The readings of three blocks of a steady device."""
    steady = {"sm_clock_mhz": [1980] * 3, "memory_clock_mhz": [3201] * 3, "power_w": [412.3, 655.0, 640.1]}
    return ConditionsRecord(
        case=case, group=f"p{process}", process=process, **(steady | {"temperature_c": [41, 52, 51]} | more)
    )


def profiled(each, *kernels, event_off=1.5):
    """The row with kernels of (name, begin, length), and their totals; events read `event_off` beyond the span."""
    ends = [begin + length for _, begin, length in kernels]
    covered = reached = 0.0
    for _, begin, length in sorted(kernels, key=lambda kernel: kernel[1]):
        covered += max(0.0, begin + length - max(begin, reached))
        reached = max(reached, begin + length)
    totals = KernelTotals(
        sum_us=sum(length for *_, length in kernels),
        union_us=covered,
        span_us=max(ends),
        event_us=max(ends) + LEAD_US + event_off,
        lead_us=LEAD_US,
    )
    found = [Kernel(name=name, median_us=length, start_us=begin) for name, begin, length in kernels]
    return each.model_copy(update={"kernels": found, "kernel_totals": totals})


def run_record(jobs=1, timed=True, names=NAMES, cpu=False, **settings):
    """The first line of a file."""
    device = DeviceRecord(
        profile="cpu" if cpu else "h200",
        name="Some CPU" if cpu else "NVIDIA H200",
        architecture="x86_64" if cpu else "sm_90",
        datasheet_gbps=None if cpu else 4800.0,
        l2_bytes=60 << 20,
        last_level_bytes=60 << 20,
        sm_count=None if cpu else 132,
        driver=None if cpu else "580.1",
        sm_clock_mhz=None if cpu else 1980,
        memory_clock_mhz=None if cpu else 3201,
        power_limit_w=None if cpu else 700.0,
    )
    return RunRecord(
        started_at="2025-06-01T12:00:00+00:00",
        command="normbwd bench --device h200 --shapes 8192x4096",
        device=device,
        settings=Settings(
            seed=7, timed=timed, **({"baseline": "torch-eager", "quick": False, "flush": "clean"} | settings)
        ),
        libraries={"torch": "2.11.0", "triton": "3.6.0"},
        revision="abc1234",
        implementations=[
            ImplRecord(
                name=name,
                family=name,
                source="impls/some.py",
                in_place=name == "liger",
                via="autograd" if name == "compiled" else "kernel",
                for_speed=[],
            )
            for name in names
        ],
        jobs=jobs,
    )


def results(
    *rows, jobs=None, ended=True, interrupted=False, selftests=(), states=(), sanitized=(), stages_s=None, **settings
):
    """A file of these rows, finished unless told otherwise."""
    end = EndRecord(
        ended_at="2025-06-01T12:10:00+00:00", wall_s=600.0, interrupted=interrupted, stages_s=stages_s or {}
    )
    cases = len({row.case for row in rows})
    run = run_record(jobs=cases if jobs is None else jobs, **settings)
    behind = tuple(0 if test.when == "before" else len(rows) for test in selftests)
    return Results(
        run,
        list(rows),
        end if ended else None,
        tuple(selftests),
        tuple(states),
        tuple(sanitized),
        selftests_behind=behind,
    )


def gateable(*rows, **more):
    """A file of these rows with all that a gate asks for: a self-test of each process that measured them."""
    processes = sorted({row.process for row in rows})
    selftests = more.pop("selftests", ()) or [selftest(process=process) for process in processes]
    return results(*rows, selftests=selftests, **({"processes": len(processes)} | more))


def outcomes(runs):
    """The outcomes of these files together."""
    return join_outcomes([compare(run) for run in runs])


def mixed():
    """A file with one of everything: two cases, each standing, a tie, a nondeterministic row, notes."""
    return results(
        row("torch-eager", 180.0),
        row("triton-inhouse", 54.1, shift=1),
        row("quack", 54.2, shift=2),
        row("liger", 75.0, status="nondeterministic", shift=1, notes=["rounds each product to bf16"]),
        row("compiled", 40.0, timed=timing(40.0, proven=False)),
        row("apex", status="missing", reason="not installed: apex"),
        *helpers(180.0, 46.0),
        row("torch-eager", 40.0, LAYER),
        row("triton-inhouse", 20.0, LAYER, shift=1),
        row("quack", 10.0, LAYER, status="wrong", reason="dweight is off by rho 4.2 | (1 is one rounding)"),
        row("liger", None, LAYER, untimed="took 40 s a call"),
        row("compiled", 25.0, LAYER, verification=verification(LAYER, 1.41, "one extra rounding")),
        row("apex", status="unsupported", case=LAYER, reason="no LayerNorm of 2048 columns"),
        *helpers(40.0, 14.2, LAYER),
    )


def history(runs=16, step=1.0, at=8, changed=(), cases=(CASE,)):
    """Runs of one device, a day apart, in which `quack` takes `step` times as long from run `at` on, if nothing else.

    From there on their records have what is `changed`. All of a run share its noise, and each has its own.
    """
    made, rng = [], np.random.default_rng(64)
    for run in range(runs):
        scale, rows = rng.normal(1, 0.02), []
        for case in cases:
            base, quack, liger, add = (scale * us * rng.normal(1, 0.003) for us in (100.0, 50.0, 60.0, 46.0))
            rows += [row("torch-eager", base, case), row("liger", liger, case), *helpers(base, add, case)]
            rows.append(row("quack", quack * (step if run >= at else 1), case))
            if run == at + 3:
                rows[-1] = row("quack", case=case, status="wrong", reason="dweight is off by rho 4.2")
        of_run = results(*rows)
        day = f"2026-11-{run + 1:02}T10:00:00+00:00"
        record = of_run.run.model_copy(update={"started_at": day, "revision": f"{run:012x}"})
        made.append(replace(of_run, run=_changed(record, **(changed if changed and run >= at else {}))))
    return made


def _changed(record, name=None, driver=None, flush=None, own=None, **fields):
    device = {key: value for key, value in {"name": name, "driver": driver}.items() if value}
    fields["device"] = record.device.model_copy(update=device)
    fields["settings"] = record.settings.changed(flush=flush) if flush else record.settings
    libraries = fields.get("libraries", record.libraries)
    if own:
        fields["libraries"] = {**libraries, "my.py": own}
        impls = [each.model_copy(update={"libraries": {"my.py": own}}) for each in record.implementations]
        fields["implementations"] = impls
    return record.model_copy(update=fields)


def many(cases=40):
    """A file of many cases of both norms, in which `triton-inhouse` is slower than the baseline in the last case."""
    rows = []
    for number in range(cases):
        norm = "rms" if number % 2 else "layer"
        case = NormCase(norm, 1024 + number, 4096, bias=norm == "layer")
        inhouse = 48.0 if number == cases - 1 else 20.0 + number / 10
        rows += [row("torch-eager", 40.0, case), row("triton-inhouse", inhouse, case, shift=1)]
        rows += [row("quack", 30.0, case, shift=2), *helpers(40.0, 14.2, case)]
    return results(*rows)


def verified_only():
    """A file of `normbwd verify`: no timings."""
    return results(
        row("torch-eager", untimed="verified only"),
        row("triton-inhouse", untimed="verified only"),
        row("quack", status="nondeterministic", untimed="verified only"),
        row(
            "liger",
            status="wrong",
            reason="dx is off by rho 9.1",
            verification=verification(rho=9.1, error_class="wrong"),
        ),
        row("apex", status="missing", reason="not installed: apex"),
        timed=False,
    )


def _steady(case, repeats=300, fp32=None, rms=1.66e-3, process=0, **more):
    """A row of a careful run that found nothing wrong, in one of its two processes."""
    fields = {"repeats": 1}
    if process == 0:
        fields = {"repeats": repeats, "conditions": under(), "fp32": fp32, "invariance": {HALF: "same bits"}}
    found = verification(case, relative_rms=rms, seeds=10, cells=120, fingerprint="f00d", **(fields | more))
    return row("triton-inhouse", case=case, verification=found, process=process)


def _loose(case, rms, **more):
    """A row of an implementation that adds with atomics, in low precision."""
    found = {"repeats": 300, "conditions": under(differing_in=["dweight"], graph="it allocates while it is captured")}
    found |= {"invariance": {HALF: "other bits"}, "fp32": 3.1e-7}
    check = verification(case, 1.41, "one extra rounding", differing_in=["dweight"], relative_rms=rms, **(found | more))
    reason = "2 of 300 runs differ, in dweight"
    return row("torch-eager", case=case, status="nondeterministic", reason=reason, verification=check)


HALF = "dx of half the batch"
TALL = [NormCase("rms", rows, 1024) for rows in (512, 2048, 8192, 32768)]


def careful():
    """A file of a run that verifies alone: kinds of inputs, conditions, another process, and one of each outcome."""
    correlated, strided = (replace(TALL[2], inputs=inputs) for inputs in ("correlated", "strided-x"))
    mixed_dtypes = replace(LAYER, weight_dtype="fp32")
    small = [replace(LAYER, rows=rows, inputs="nan-x") for rows in (3, 64)]
    wrong = verification(correlated, 9.1, "wrong", repeats=300)
    rows = [
        *(_steady(case, fp32=2.1e-7 if case is TALL[2] else None) for case in TALL),
        *(_steady(case, process=1) for case in TALL),
        *(_loose(case, 1e-4 * math.sqrt(case.rows), fp32=3.1e-7 if case is TALL[2] else None) for case in TALL),
        *(_steady(case) for case in (correlated, LAYER, *small)),
        _steady(mixed_dtypes, repeats=50),
        row("torch-eager", case=correlated, status="wrong", reason="dx is off by rho 9.1 | 1", verification=wrong),
        row("torch-eager", case=LAYER, verification=verification(LAYER, repeats=300)),
        row("torch-eager", case=strided, status="crashed", reason="RuntimeError: x is\nnot contiguous"),
        *(row("triton-inhouse", case=case, status="unsupported", reason="x has strides") for case in (strided,)),
        *(row("quack", case=case, status="unsupported", reason="no LayerNorm of bf16") for case in (LAYER, *small)),
        row("quack", case=correlated, status="timeout", reason="no answer within 300 s"),
        *(row("apex", case=case, status="missing", reason="not installed: apex") for case in (*TALL, LAYER)),
    ]
    seen = [
        SanitizerRecord(case=TALL[2], impl="triton-inhouse", tool="memcheck", errors=0),
        SanitizerRecord(case=TALL[2], impl="quack", tool="memcheck", errors=2, detail="Invalid __global__ read | 4"),
        SanitizerRecord(case=TALL[2], impl="quack", tool="racecheck", detail="compute-sanitizer is not installed"),
    ]
    return results(*rows, sanitized=seen, timed=False, seeds=10, repeats=300)


def longer():
    """A file of one implementation alone, with more repetitions."""
    return results(*(_steady(case, repeats=3000) for case in TALL[:2]), timed=False, seeds=10, repeats=3000)


def thorough():
    """A file with all that a run may record: processes, twins, self-tests, device states, totals, other engines."""
    eager = profiled(
        row("torch-eager", 180.0), ("void at::native::reduce_kernel<4, X::sum_functor<a> >(b)", 0.0, 176.0)
    )
    inhouse = profiled(row("triton-inhouse", 54.1, shift=1), ("backward_rows", 0.0, 46.0), ("finish", 40.0, 12.0))
    quack = profiled(
        row("quack", 60.0, shift=2, other_engines_us={"do_bench": 63.0, "nsight": 57.0}),
        ("kernel_cutlass_kernel_quackrmsnormRMSNormBackward_object_at__tensor", 0.0, 45.0),
        ("sum", 47.0, 8.0),
        event_off=9.0,
    )
    first = [eager, inhouse, quack, *helpers(180.0, 46.0), twin("quack", 60.0), twin("triton-inhouse", 54.1)]
    second = [row("torch-eager", 8.0, LAYER), row("quack", 16.0, LAYER, shift=2), row("triton-inhouse", 14.0, LAYER)]
    second += [*helpers(8.0, 6.0, LAYER), twin("quack", 16.0, LAYER)]
    uneven = {("torch-eager", "again", 1): 1.013, ("quack", "again", 2): 0.991, ("triton-inhouse", "impl", 1): 1.014}
    return results(
        *in_processes(*first, *second, bias=uneven),
        processes=3,
        twice=True,
        cross_check=True,
        names=("torch-eager", "triton-inhouse", "quack"),
        selftests=[selftest(), selftest(OFF, when="after", process=2, fixed_us=1.9)],
        states=[
            conditions(),
            conditions(process=1, sm_clock_mhz=[1980, 1755, 1980], throttled={"power": [1]}),
            conditions(LAYER, other_processes=2),
        ],
        stages_s={"compiling_ahead": 60.0, "preparing": 40.0, "timing": 402.5},
    )
