"""The kernel that holds multiprocessors compiles without a GPU, and holds what it says where there is one."""

import json
import sys
from types import SimpleNamespace

import pytest

from tests.impls.gpuless import in_child

KIB = 1024
# Target, warps of the launch, warps beside them, KiB: what `Holder` asks for with 640x200 on each.
TARGETS = {
    "sm_80": (("cuda", 80, 32), 16, 0, 162),
    "sm_90": (("cuda", 90, 32), 16, 4, 200),
    "sm_120": (("cuda", 120, 32), 16, 4, 98),
    "gfx942": (("hip", "gfx942", 64), 8, 0, 63),
}


def compile_for(target, warps, more, kib):
    """The warps and the bytes of shared memory of the kernel as it is compiled for a target."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    from harness.devices.holder import REGISTERS
    from harness.devices.holder_kernel import hold

    signature = dict.fromkeys(("started", "ended", "release"), "*i32") | {"looks": "i32"}
    constants = {"kib": kib, "lanes": target[2], "more": more}
    places = {(list(hold.arg_names).index(name),): value for name, value in constants.items()}
    source = GluonASTSource(hold, signature | dict.fromkeys(constants, "constexpr"), places)
    options = {"num_warps": warps} | ({"maxnreg": REGISTERS} if more else {})
    compiled = triton.compile(source, target=GPUTarget(*target), options=options)
    return [compiled.metadata.num_warps, compiled.metadata.shared]


@pytest.mark.slow
def test_the_kernel_compiles_for_every_target_and_holds_what_it_says():
    found = in_child("tests.devices.test_holder", TARGETS)
    for name, (_, warps, more, kib) in TARGETS.items():
        threads, shared = found[name]
        assert threads == warps + more
        assert kib * KIB <= shared <= kib * KIB + 16  # and a word by which threads tell each other what one saw


@pytest.mark.gpu
def test_the_holder_holds_and_a_launch_that_waits_is_seen():
    import torch

    from harness.devices.holder import Holder
    from harness.timing.competing_kernel_checks import competing_kernel_checks
    from harness.timing.cuda import CudaDevice

    device = CudaDevice(64 << 20, torch.empty(1 << 20, device="cuda"))
    checks = competing_kernel_checks(device, lambda: Holder(640, 200))
    assert [check.passed for check in checks] == [True, True], checks


@pytest.mark.gpu
def test_a_holder_that_is_not_released_ends_by_itself():
    import torch

    from harness.devices.holder import Holder

    holder = Holder(640, 200)
    holder.occupy(8, 500.0)
    assert holder.started()
    torch.cuda.synchronize()
    assert holder.state() == "over"


def holder_whose_programs(monkeypatch, started, ended):
    """One that has queued four programs, of which each has said so much; the device has eight multiprocessors."""
    import torch

    from harness.devices import holder as module

    monkeypatch.setattr(module, "STARTED_WITHIN_S", 0.0)
    holder = module.Holder.__new__(module.Holder)
    holder._programs = 4
    holder._stream = SimpleNamespace(synchronize=lambda: None)
    holder._started, holder._ended = (torch.tensor([*said, 0, 0, 0, 0]) for said in (started, ended))
    return holder


ALL, NONE = [1, 1, 1, 1], [0, 0, 0, 0]


@pytest.mark.parametrize(("started", "told"), [(ALL, True), ([1, 1, 1, 0], False), (NONE, False)])
def test_it_has_started_once_every_program_runs(monkeypatch, started, told):
    assert holder_whose_programs(monkeypatch, started, NONE).started() is told


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        (NONE, "running"),
        ([2, 2, 2, 2], "over"),
        ([0, 0, 0, 2], "ended early"),  # one gave up and the others have not: not all held all the time
        ([1, 1, 1, 1], "ended early"),  # somebody released it
        ([2, 2, 2, 1], "ended early"),
    ],
)
def test_one_program_that_has_ended_is_seen(monkeypatch, ended, state):
    holder = holder_whose_programs(monkeypatch, ALL, ended)
    assert holder.state() == state
    assert holder.running() == 4 - sum(map(bool, ended))


def test_what_a_program_says_at_last_is_waited_for(monkeypatch):
    """The first to give up is seen; the others' words arrive while it is waited for them."""
    holder = holder_whose_programs(monkeypatch, ALL, [2, 0, 0, 0])
    holder._stream = SimpleNamespace(synchronize=lambda: holder._ended[:4].fill_(2))
    assert holder.state() == "over"


if __name__ == "__main__":
    (targets,) = json.loads(sys.argv[1])
    print(json.dumps({name: compile_for(*asked) for name, asked in targets.items()}))
