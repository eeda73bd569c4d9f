"""A comparison of revisions in three copies: which are loaded, in what order, and what becomes of a copy's price."""

import random
from itertools import pairwise, permutations

import pytest

from harness.analysis.comparison import compare
from harness.cases import NormCase
from harness.gate.judge import judge
from harness.gate.limits import Limits, Regression
from harness.records.schema import ConditionsRecord
from harness.records.settings import Settings
from harness.timing.engine import WARM_UP_SAMPLES
from harness.worker import interleave
from harness.worker.messages import Try
from harness.worker.revisions import Side, copies, twin_of
from harness.worker.trial import Trial
from tests.fake_device import FakeDevice
from tests.mutants.maths import gradients, implementation
from tests.results_factory import results

SIDES = (Side("base", "old/my_norm.py"), Side("head", "new/my_norm.py"))
BASE, HEAD, TWIN = "norm@base", "norm@head", "norm@again"
CASES = [NormCase("rms", rows, 32, device="cpu") for rows in (4, 8)]
SETTINGS = Settings(baseline=BASE, twin=TWIN, repeats=2, min_blocks=60, max_blocks=60, budget_s=1e9, half_width=0.0)


PROCESSES = range(5)
pytestmark = pytest.mark.usefixtures("ranked_on_a_cpu")


def test_twin_is_loaded_from_the_base_file():
    loaded = {side.word: side.file for side in copies(SIDES, 0, 0)}
    assert loaded == {"base": "old/my_norm.py", "head": "new/my_norm.py", "again": "old/my_norm.py"}
    assert copies((), 0, 0) == ()
    assert twin_of("my@norm@base") == "my@norm@again"


class Copies:
    """Three copies on a device that does nothing: what happened in which order, and what the rows say.

    `span_us(copies, name, process)` is what a run of this copy takes; `more` is what the adapter declares.
    """

    def __init__(
        self, monkeypatch, span_us=lambda *_: 50.0, settings=SETTINGS, names=(BASE, HEAD), prepares=None, **more
    ):
        self._span_us, self._settings, self._names, self._prepares = span_us, settings, names, prepares or {}
        self._declared = more
        self.prepared = []  # of the trial at hand
        self.ran = []
        self.rows = []
        self.stages = []
        self.device = None
        monkeypatch.setattr(interleave, "make_device", lambda *_: self.device)

    def tried(self, case=CASES[0], process=0):
        """Try one case in one process."""
        noise = random.Random(f"{case.rows}/{process}")
        self.prepared, self.ran, self.stages = [], [], []
        self.device = FakeDevice(lambda name, run: self._span_us(self, name, process) * (1 + noise.gauss(0, 0.01)))
        known = {name: implementation(name, self._prepare(name), **self._declared) for name in (BASE, HEAD, TWIN)}
        request = Try(case, self._names, f"p{process}", self._settings, process)
        Trial(request, known, lambda *stage: self.stages.append(stage), self._emit).run()
        return self

    def timed(self):
        """Who ran between a start and an end, in order."""
        return [event[4:] for before, event in pairwise(self.device.events) if before == "start" and event[:3] == "run"]

    def compared(self):
        """The results of a run of all cases in all processes."""
        for process in PROCESSES:
            for case in CASES:
                self.tried(case, process)
        return results(*self.rows, names=(BASE, HEAD), baseline=BASE, processes=len(PROCESSES))

    def verdicts(self):
        return [case.entry(HEAD).verdict for case in compare(self.compared()).cases]

    def _prepare(self, name):
        def prepare(inputs):
            self.prepared.append(name)
            if name in self._prepares:
                return self._prepares[name](inputs)

            def returns():
                self.ran.append(name)
                return gradients(inputs)

            return self.device.candidate(name, returns).run

        return prepare

    def _emit(self, record):
        if not isinstance(record, ConditionsRecord):
            self.rows.append(record)


def test_warm_up_order_varies_and_is_reproducible(monkeypatch):
    few = SETTINGS.changed(min_blocks=2, max_blocks=2)
    orders = []
    for process in range(12):
        run = Copies(monkeypatch, settings=few).tried(process=process)
        warm_up = [name for name in run.prepared for _ in range(WARM_UP_SAMPLES)]
        assert run.timed()[: len(warm_up)] == warm_up
        orders.append(run.prepared)
    assert {tuple(order) for order in orders} == set(permutations((BASE, HEAD, TWIN)))
    again, elsewhere = Copies(monkeypatch, settings=few), Copies(monkeypatch, settings=few.changed(seed=1))
    assert [again.tried(process=process).prepared for process in range(4)] == orders[:4]
    assert [elsewhere.tried(process=process).prepared for process in range(4)] != orders[:4]


def test_twin_row_repeats_the_base_and_is_verified(monkeypatch):
    run = Copies(monkeypatch, settings=SETTINGS.changed(min_blocks=2, max_blocks=2)).tried()
    rows = {(row.impl, row.role): row for row in run.rows}
    assert set(rows) == {(BASE, "impl"), (HEAD, "impl"), (BASE, "again"), (interleave.ADD_NAME, "floor")}
    assert len(run.rows) == 4
    again = rows[BASE, "again"]
    assert again.timing.group == rows[HEAD, "impl"].timing.group
    assert again.verification is not None
    assert {name for name, _ in run.stages} == {None, BASE, HEAD}  # what it does is the base's doing


def first_is_faster(run, name, process):
    """All copies but the first that was prepared take 0.5 % longer."""
    return 50.0 if name == run.prepared[0] else 50.25


def warm_is_faster(run, name, process):
    """Code that also ran last takes 2 % less."""
    return 49.0 if run.ran[-2:] == [name] * 2 else 50.0


@pytest.mark.parametrize("price", [first_is_faster, warm_is_faster])
@pytest.mark.slow
def test_head_with_the_cost_of_a_copy_is_the_same(monkeypatch, price):
    assert Copies(monkeypatch, price).verdicts() == ["same"] * len(CASES)


@pytest.mark.parametrize("price", [first_is_faster, warm_is_faster])
def test_head_that_lost_3_percent_is_slower(monkeypatch, price):
    lost = {BASE: 1.0, TWIN: 1.0, HEAD: 1.03}
    run = Copies(monkeypatch, lambda run, name, process: lost[name] * price(run, name, process))
    assert run.verdicts() == ["slower"] * len(CASES)


def copies_differ(run, name, process):
    """Each copy's price is drawn for it in each process, about 1 %; but the head's is the same in all of them."""
    drawn = random.Random(f"{name}/{process}/{len(run.rows)}")
    return 50.5 if name == HEAD else 50.0 * (1 + drawn.gauss(0, 0.01))


def test_band_and_delta_hold_difference_of_copies(monkeypatch):
    compared = Copies(monkeypatch, copies_differ).compared()
    cases = compare(compared).cases
    assert [case.entry(HEAD).verdict for case in cases] == ["same"] * len(CASES)
    assert all(0.004 < case.aa_band < 0.03 for case in cases)
    limits = Limits(regression=[Regression(head=HEAD, base=BASE, minimum_effect=0.001)])
    *of_cases, _ = judge(compared, limits)
    assert [verdict.loss.delta for verdict in of_cases] == pytest.approx([case.aa_band for case in cases])
    assert "REGRESSED" not in {verdict.outcome for verdict in of_cases}
