import pytest

from harness.cases import NormCase
from harness.devices.facts import DeviceFacts
from harness.devices.profiles import detect
from harness.records.reasons import Reason
from harness.records.schema import RowRecord, Timing
from harness.records.settings import Settings
from harness.timing.selftest import Effort
from harness.worker import selftest
from harness.worker.messages import SelfTest
from harness.worker.selftest import judge, make_selftest, run_controls, variants

CASE = NormCase("layer", 64, 1024, bias=True)
SETTINGS = Settings(flush_bytes=1 << 16, seeds=1, half_width=0.005, budget_s=10.0)
HOST = detect(DeviceFacts("cpu", "Some CPU", "x86_64", l2_bytes=1 << 16))
PROVEN = Timing(group="g", flush="clean", samples_us=[1.0], blocks=[0])
LATE = PROVEN.model_copy(update={"proven": False})
STALE = Reason("remembered", {"tensors": ["dx"]})
ESCAPED = Reason("escapes", {"kernel": "copy"})


def row(status, reason=None, timing=None):
    return RowRecord(case=CASE, impl="control", status=status, reason=reason, timing=timing)


@pytest.mark.parametrize(
    ("how", "answer", "passed"),
    [
        ("honest", row("ok", timing=PROVEN), True),
        ("honest", row("ok", timing=LATE), False),
        ("honest", row("ok"), False),
        ("honest", row("wrong", "dx is off by rho 9", PROVEN), False),
        ("cached", row("wrong", STALE), True),
        ("cached", row("ok", timing=PROVEN), False),
        ("cached", row("wrong", "dx is off by rho 9"), False),  # for another reason than its own
        ("synchronises", row("ok", timing=LATE), True),
        ("synchronises", row("ok", timing=PROVEN), False),
        ("synchronises", row("crashed", "no"), False),
        ("side stream", row("wrong", ESCAPED, PROVEN), True),
        ("side stream", row("ok", timing=PROVEN), False),
        ("side stream", row("wrong", STALE), False),
        ("side stream", row("unsupported", "a CPU has one queue"), None),
        ("cached", None, False),
    ],
)
def test_control_passes_for_its_own_reason(how, answer, passed):
    assert judge("control", how, answer).passed is passed


def test_controls_on_a_cpu():
    checks = {check.name: check.passed for check in run_controls(SETTINGS, "cpu")}
    assert checks == {
        "control: honest": True,
        "control: cached output": True,
        "control: hidden synchronise": None,
        "control: side stream": None,
    }


def test_control_that_no_longer_cheats_fails(monkeypatch):
    cheats = selftest.prepare
    monkeypatch.setattr(selftest, "prepare", lambda inputs, how: cheats(inputs, "honest"))
    checks = {check.name: check.passed for check in run_controls(SETTINGS, "cpu")}
    assert checks["control: cached output"] is False


def test_drift_check_has_times_and_ratios_only(monkeypatch):
    monkeypatch.setattr(selftest, "EFFORT", Effort(blocks=5, multiples=(1, 2, 4)))
    whole, drift = (make_selftest(SelfTest("after", SETTINGS, HOST, 1, whole)) for whole in (True, False))
    left_out = {"events against profiler", *variants}
    names = [{check.name for check in test.checks} for test in (whole, drift)]
    assert left_out - names[0] == set()
    assert left_out & names[1] == set()
    assert {"empty region (t0)", "copy line", "coldness", "linearity", "A/A"} <= names[1]
    assert drift.budget.relative > 0
