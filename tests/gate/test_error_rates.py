"""How often the gate reports a loss that is not there, and finds one that is, on noise like an H200's."""

from dataclasses import replace

import numpy as np
import pytest

from harness.gate.judge import judge
from harness.gate.limits import Limits, Regression
from tests.results_factory import CASE, gateable, row

HEAD, BASE = "mine@head", "mine@base"
CASES = [replace(CASE, rows=512 * (1 + number)) for number in range(20)]
PROCESSES, BLOCKS, RUNS = 5, 6, 20
BIAS, UNEVEN, OF_MEDIAN = 0.006, 0.6, 0.0022  # standard deviations of log ratios, in published runs of an H200


def verdicts(rng, loss):
    """The gate's verdicts on one run whose head is slower by `loss` in the first case alone."""
    bias = BIAS * np.exp(UNEVEN * rng.standard_normal((len(CASES), 1))) * rng.standard_normal((len(CASES), PROCESSES))
    head = bias + OF_MEDIAN * rng.standard_normal(bias.shape)
    twin = OF_MEDIAN * rng.standard_normal(bias.shape)
    head[0] += np.log1p(loss)
    rows = [
        row(impl, role=role, case=case, process=process, timing=timed(50.0 * np.exp(logs[number, process]), process))
        for number, case in enumerate(CASES)
        for process in range(PROCESSES)
        for impl, role, logs in ((HEAD, "impl", head), (BASE, "impl", 0 * head), (BASE, "again", twin))
    ]
    measured = gateable(*rows, names=(HEAD, BASE), baseline=BASE, processes=PROCESSES)
    return judge(measured, Limits(regression=[Regression(head=HEAD, base=BASE)]))


def timed(us, process):
    return {"group": f"p{process}", "flush": "clean", "samples_us": [us] * BLOCKS}


@pytest.mark.parametrize(("loss", "least", "most"), [(0.0, 0.0, 0.05), (0.05, 0.95, 1.0)])
def test_false_alarms_are_rare_and_a_loss_of_5_percent_is_found(loss, least, most):
    rng = np.random.default_rng(1)
    regressed = [[v.case for v in verdicts(rng, loss) if v.outcome == "REGRESSED"] for _ in range(RUNS)]
    assert least <= np.mean([CASES[0] in cases for cases in regressed]) <= most
    assert np.mean([bool(set(cases) - {CASES[0], None}) for cases in regressed]) <= 0.05
