"""One case from inputs to rows, in this process: planted faults beside an honest twin."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from triton.runtime.autotuner import Autotuner, Config

from harness.analysis.joining import join
from harness.cases import Grads, NormCase
from harness.cases.traffic import ADD_NAME
from harness.records.reasons import Reason
from harness.records.schema import ConditionsRecord, Kernel, KernelTotals
from harness.records.settings import Settings
from harness.run.resolve import for_later_process
from harness.timing.breakdown import Breakdown
from harness.verify import reference, verifier
from harness.worker import contenders, rows, trial
from harness.worker.messages import Try
from harness.worker.rows import SpoiltError
from harness.worker.trial import Trial, warm
from tests.mutants.maths import gradients, honest, implementation
from tests.wording import judged, worded

RMS = NormCase("rms", 16, 32, device="cpu")
LAYER = NormCase("layer", 16, 32, bias=True, device="cpu")
SETTINGS = Settings(seed=3, flush_bytes=4096, baseline="honest", repeats=3, min_blocks=4, max_blocks=4, budget_s=1e9)


class Session:
    """A trial of some adapters: its rows in order, the conditions, the stages it announced, and the one it is in."""

    def __init__(self, *adapters, case=RMS, settings=SETTINGS, process=0):
        self.rows = []
        self.conditions = []
        self.stages = []
        self.adapters = {item.name: item for item in adapters}
        self._request = Try(case, tuple(self.adapters), "g7", settings, process)

    @property
    def stage(self):
        return self.stages[-1][1]

    def run(self):
        Trial(self._request, self.adapters, lambda *stage: self.stages.append(stage), self._emit).run()
        return self

    def _emit(self, record):
        (self.conditions if isinstance(record, ConditionsRecord) else self.rows).append(record)

    def row(self, name):
        (row,) = (row for row in self.rows if row.impl == name and row.role == "impl")
        return row

    def helpers(self):
        return {row.role: row for row in self.rows if row.role != "impl"}


def spoilt(spoil):
    """A `prepare` whose answer is honest but for what `spoil(inputs, grads)` does to it."""

    def prepare(inputs):
        def backward():
            grads = gradients(inputs)
            return spoil(inputs, grads) or grads

        return backward

    return prepare


def session(*adapters, **more):
    """Run adapters beside an honest one; each ends in one row, and the honest one is untouched by the others."""
    done = Session(implementation("honest"), *adapters, implementation("bystander"), **more).run()
    assert Counter(row.impl for row in done.rows if row.role == "impl") == Counter(list(done.adapters))
    for name in ("honest", "bystander"):
        assert judged(done.row(name)) == ("ok", None)
        assert len(done.row(name).timing.samples_us) == 4
    return done


def outcome(prepare, case=RMS, **more):
    """Status and reason of one faulty adapter."""
    row = session(implementation("faulty", prepare, **more), case=case).row("faulty")
    return row.status, worded(row.reason)


def test_honest_implementation_is_ok_and_timed():
    row = session().row("honest")
    assert (row.status, worded(row.reason), worded(row.untimed)) == ("ok", None, None)
    assert {name: check.error_class for name, check in row.verification.tensors.items()} == dict.fromkeys(
        ("dx", "dweight"), "exact"
    )
    assert (row.verification.repeats, row.verification.differing, row.verification.differing_in) == (3, 0, [])
    assert row.timing.proven
    assert (row.timing.group, row.timing.flush) == ("g7", "clean")
    assert row.prepare_s >= 0


def test_what_is_no_gradients_is_named_at_the_first_seed_or_a_later_one():
    inputs_seen = []

    def forgetful(inputs):
        inputs_seen.append(inputs)
        whole = len(inputs_seen) == 1
        return lambda: gradients(inputs) if whole else replace(gradients(inputs), dweight=None)

    tuples = Session(implementation("tuples", lambda inputs: lambda: (inputs.x, inputs.x))).run()
    assert judged(tuples.row("tuples")) == ("wrong", "the backward returned tuple, not Grads")
    later = Session(implementation("forgetful", forgetful), settings=SETTINGS.changed(seeds=2)).run()
    assert judged(later.row("forgetful")) == ("wrong", "dweight is missing")


def test_extra_memory_counts_what_is_kept_since_before_it_was_prepared(monkeypatch):
    kept = Counter(scratch=1 << 20)  # of an earlier case

    def prepare(inputs):
        kept["scratch"] += 1 << 20
        return honest(inputs)

    monkeypatch.setattr(trial, "_device_bytes", lambda case: kept.total())
    monkeypatch.setattr(verifier, "_with_peak", lambda inputs, backward: (backward(), 24))
    keeping = implementation("keeping", prepare, release=kept.clear)
    done = Session(implementation("honest"), keeping).run()
    assert done.row("honest").peak_extra_bytes == 24
    assert done.row("keeping").peak_extra_bytes == 24 + (1 << 20)


def test_blocks_have_baseline_twice_and_the_add():
    done = session()
    again, add = done.helpers()["again"], done.helpers()["floor"]
    assert (again.impl, add.impl) == ("honest", ADD_NAME)
    timings = [done.row("honest").timing, done.row("bystander").timing, again.timing, add.timing]
    assert {timing.group for timing in timings} == {"g7"}
    assert [timing.blocks for timing in timings] == [[0, 1, 2, 3]] * 4
    assert len({tuple(timing.samples_us) for timing in timings}) == 4
    assert [row.role for row in done.rows].count("impl") == 2
    assert len(done.rows) == 4


def test_stages_are_announced_before_they_begin():
    done = session()
    asked, done.stages = done.stages[:2], done.stages[2:]
    assert asked == [("honest", "asking"), ("bystander", "asking")]
    assert done.stages[:7] == [
        (None, "inputs"),
        ("honest", "prepare"),
        ("honest", "first call"),
        ("honest", "verify"),
        ("bystander", "prepare"),
        ("bystander", "first call"),
        ("bystander", "verify"),
    ]
    assert done.stages[7] == (None, "time")  # the device is made ready
    timed = done.stages.index((None, "break down"))
    assert set(done.stages[8:timed]) == {("honest", "time"), ("bystander", "time"), (None, "time")}
    assert done.stages[timed + 1 :] == [(None, "cross-check"), ("honest", "verify"), ("bystander", "verify")]


def overwrite_dy(inputs, grads):
    inputs.dy.copy_(grads.dx)
    return Grads(inputs.dy, grads.dweight)


def test_a_nondeterministic_implementation_is_timed():
    def prepare(inputs):
        calls = []

        def backward():
            calls.append(None)
            grads = gradients(inputs)
            if len(calls) == 3:  # the second of the three runs that are compared
                grads.dweight[0] *= 1.0078125  # the next number in bf16
            return grads

        return backward

    row = session(implementation("faulty", prepare)).row("faulty")
    assert judged(row) == ("nondeterministic", "1 of 3 runs differ, in dweight")
    assert (row.verification.differing, row.verification.differing_in) == (1, ["dweight"])
    assert len(row.timing.samples_us) == 4


def test_a_declared_overwriting_of_dy_is_ok():
    seen = []

    def prepare(inputs):
        original = inputs.dy.clone()

        def backward():
            seen.append(torch.equal(inputs.dy, original))
            return overwrite_dy(inputs, gradients(inputs))

        return backward

    row = session(implementation("faulty", prepare, in_place=True)).row("faulty")
    assert judged(row) == ("ok", None)
    assert seen.count(False) == 2  # the calls with new contents in dy, before and after timing
    assert len(seen) > len(row.timing.samples_us) + 3


def raising_while_timed(stage):
    """Prepares a backward that answers until the stage is `time`."""

    def prepare(inputs):
        def backward():
            if stage() == "time":
                raise RuntimeError("only when it counts")
            return gradients(inputs)

        return backward

    return prepare


def test_raising_while_timed_costs_its_own_row():
    prepare = raising_while_timed(lambda: done.stage)
    done = Session(implementation("faulty", prepare), implementation("honest"), implementation("bystander"))
    done.run()
    assert judged(done.row("faulty")) == ("crashed", "RuntimeError: only when it counts")
    assert done.row("faulty").timing is None
    assert [len(done.row(name).timing.samples_us) for name in ("honest", "bystander")] == [4, 4]
    assert sorted(row.role for row in done.rows) == ["again", "floor", "impl", "impl", "impl"]


def test_unsupported_case_has_the_adapters_reason():
    def prepare(inputs):
        raise AssertionError("asked although unsupported")

    assert outcome(prepare, unsupported=lambda case: "no 32 columns") == ("unsupported", "no 32 columns")


def test_untimed_implementation_is_verified():
    done = session(implementation("faulty", untimed=lambda case: "runs in an interpreter here"))
    row = done.row("faulty")
    assert (row.status, row.timing, worded(row.untimed)) == ("ok", None, "runs in an interpreter here")
    assert row.verification is not None
    assert ("faulty", "time") not in done.stages


def test_inputs_that_do_not_fit_cost_every_row(monkeypatch):
    def make_inputs(case, seed):
        raise torch.OutOfMemoryError("tried to allocate 9 TiB")

    monkeypatch.setattr(trial, "make_inputs", make_inputs)
    done = Session(
        implementation("one"), implementation("two", unsupported=lambda case: "no"), implementation("three")
    ).run()
    assert {row.impl: row.status for row in done.rows} == {"one": "oom", "two": "unsupported", "three": "oom"}
    assert len(done.rows) == 3


def test_lost_device_ends_the_trial(monkeypatch):
    def synchronise(device):
        if done.stages[-1] == ("faulty", "prepare"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def prepare(inputs):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(rows, "synchronise", synchronise)
    done = Session(implementation("honest"), implementation("faulty", prepare), implementation("bystander"))
    with pytest.raises(SpoiltError):
        done.run()
    assert [(row.impl, row.status) for row in done.rows] == [("faulty", "crashed")]


def test_warming_compiles_all_and_times_none():
    def benchmark(call, **_options):
        raise AssertionError("a configuration was timed")

    warps = []
    kernel = SimpleNamespace(fn=lambda: None, run=lambda **launch: warps.append(launch["num_warps"]))
    tuner = Autotuner(kernel, [], [Config({}, num_warps=n) for n in (1, 2, 4)], [], None, None, do_bench=benchmark)

    def prepare(inputs):
        tuner.run(grid=(1,))
        return lambda: None

    warm(RMS, implementation("one", prepare), 0)
    assert warps == [1, 2, 4, 1]  # each once, then the first as the fastest of equals
    tuner.cache.clear()
    with pytest.raises(AssertionError, match="was timed"):
        prepare(None)


def together(monkeypatch, **replaced):
    """Time as ever, but with these fields of the outcome replaced."""
    measured = contenders.time_together
    monkeypatch.setattr(contenders, "time_together", lambda job: replace(measured(job), **replaced))


TOTALS = KernelTotals(sum_us=25.0, union_us=22.0, span_us=24.0, event_us=30.0)
KERNELS = [Kernel(name="rows", median_us=20.0, start_us=0.0, event_us=21.0)]


def test_kernels_and_other_engines_reach_their_row(monkeypatch):
    together(
        monkeypatch,
        kernels={"honest": Breakdown(KERNELS, TOTALS), "bystander": Breakdown(None, note=LOST)},
        other_engines_us={"honest": {"do_bench": 31.5, "NVBench": 29.0}, "bystander": {}},
    )
    done = session()
    honest, bystander = done.row("honest"), done.row("bystander")
    assert (honest.kernels, honest.kernel_totals, worded(honest.kernels_note)) == (KERNELS, TOTALS, None)
    assert honest.other_engines_us == {"do_bench": 31.5, "NVBench": 29.0}
    assert (bystander.kernels, bystander.kernel_totals) == (None, None)
    assert bystander.kernels_note == LOST
    assert bystander.other_engines_us == {}


LOST = Reason("lost_records", {"markers": 41, "expected": 42})
ESCAPED = Reason("escapes", {"kernel": "copy"})


def test_work_outside_the_timed_span_is_wrong(monkeypatch):
    together(monkeypatch, kernels={"faulty": Breakdown(KERNELS, TOTALS, escaped=ESCAPED)})
    row = session(implementation("faulty")).row("faulty")
    assert judged(row) == ("wrong", worded(ESCAPED))
    assert (row.kernels, row.kernel_totals, len(row.timing.samples_us)) == (KERNELS, TOTALS, 4)
    assert row.verification is not None


def test_other_answer_in_a_timed_call_is_wrong():
    def prepare(inputs):
        def backward():
            grads = gradients(inputs)
            if done.stages[-1][1] == "time":  # cuts a corner only where it counts
                grads.dx[-1] = 0
            return grads

        return backward

    done = Session(implementation("honest"), implementation("faulty", prepare))
    done.run()
    assert done.row("faulty").status == "wrong"
    assert worded(done.row("faulty").reason).startswith("in a timed call, dx is off by rho ")
    assert judged(done.row("honest")) == ("ok", None)
    assert done.row("faulty").timing is not None


def test_what_is_off_is_called_so_after_timing_too():
    row = session(implementation("faulty", spoilt(lambda inputs, grads: [grads.dx.abs_()].clear()))).row("faulty")
    assert (worded(row.reason)[:17], row.timing is None) == ("dx is off by rho ", False)


@pytest.mark.parametrize("case", [RMS, LAYER], ids=["rms", "layer"])
def test_the_reference_of_a_case_is_computed_once(case, monkeypatch):
    asked = []

    def counted(inputs, rows, compute=reference.reference):
        asked.append(rows)
        return compute(inputs, rows)

    monkeypatch.setattr(reference, "reference", counted)
    session(case=case)
    assert len(asked) == 1  # answers of the same bits, and multiples of these, need no other


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda inputs, grads: [grads.dx.mul_(1.5)].clear(), "process 1: dx is off by rho"),
        (lambda inputs, grads: [inputs.x.zero_()].clear(), "process 1: the backward changed its input x"),
    ],
    ids=["a wrong answer", "a changed input"],
)
def test_fault_of_a_later_process_is_wrong(spoil, reason):
    rows = session(implementation("faulty")).rows
    later = session(implementation("faulty", spoilt(spoil)), settings=for_later_process(SETTINGS), process=1)
    assert later.row("honest").verification.repeats == 2
    joined = join([*rows, *later.rows])
    assert joined["honest", "impl"].status == "ok"
    assert joined["faulty", "impl"].status == "wrong"
    assert worded(joined["faulty", "impl"].reason).startswith(reason)
