"""The in-house kernels as they are compiled for a GPU, run on a CPU: those too whose programs wait for each other.

A child process compiles and runs (the parent has told Triton to interpret): the entry itself, with a machine in place
of the GPU.
"""

import contextlib
import json
import re
import sys
from functools import partial
from unittest.mock import patch

import pytest

from harness.cases.variants import with_features
from impls.inhouse.regimes.few_rows import FewRows
from impls.inhouse.regimes.one_pass import OnePass
from impls.inhouse.regimes.shared import Shared
from impls.inhouse.regimes.two_pass import TwoPass
from tests.impls.gpuless import in_child, instead_of_launches
from tests.impls.inhouse_cases import cpu_case, gradients, gradients_with_extras, ratios_with_extras, reference, rho

pytestmark = pytest.mark.slow

SHARED = Shared(rows=2, parts=2, groups=2, delay=1, residents=3, maxnreg=168)
layer, rms = partial(cpu_case, "layer", bias=True), partial(cpu_case, "rms")

CASES = {  # few programs, as each runs in Python
    "narrow": (layer(40, 200), OnePass(16, 4, 64, 4, 2, fold=False, stages=4, fused=True)),
    "flat": (layer(9, 1500), OnePass(2, 2, 1024, 4, 2, fold=True, stages=3, fused=True)),
    "flat, two alignments": (layer(10, 1500), OnePass(2, 2, 1024, 4, 2, fold=True, stages=3, fused=True)),
    "flat, a tail": (layer(9, 1502), OnePass(2, 2, 1024, 4, 4, fold=True, stages=3, fused=True)),
    "flat, eight alignments": (rms(24, 517), OnePass(1, 3, 256, 1, 8, fold=True, packed=True, stages=3, fused=True)),
    "packed": (rms(9, 2048), OnePass(2, 2, 1024, 4, 3, fold=True, packed=True, stages=3, fused=True)),
    "shared": (layer(9, 4096), SHARED),
    "shared, a delay of two": (rms(17, 6152), Shared(2, 4, 2, 2, 3, 168, stages=4)),
    "shared, fewer turns than stages": (layer(5, 4100), Shared(2, 3, 3, 2, 3, 168, stages=4)),
    "shared, one row": (layer(5, 4100), Shared(1, 3, 2, 1, 3, 168)),
    "shared, fp16": (layer(8, 4096, dtype="fp16", weight_dtype="fp32"), SHARED),
    "shared, fp32": (layer(9, 3000, dtype="fp32", weight_dtype="fp32"), Shared(2, 3, 2, 1, 3, 168, cols=1024)),
    "flat, a residual": (with_features(layer(9, 1500), ["residual"]), OnePass(2, 2, 1024, 4, 2, fold=True, fused=True)),
    "shared, a residual": (with_features(layer(9, 4088), ["residual"]), SHARED),
    "shared, two norms": (with_features(rms(5, 4092), ["parallel"]), SHARED),
    "few rows": (layer(5, 1500), FewRows(16, 64, 2, 1024, 4)),
    "two passes": (layer(10, 1027), TwoPass(4, 1024, 4, 2)),
}
# Each is one line of a kernel's text, what takes its place, and the case that shows it.
FAULTS = {
    "a copy is not waited for": ("packed", r"(cp\.async\.wait_group\s+)[1-9];", r"\g<1>9;"),
    "one of the first tiles is not waited for": ("shared", r"(cp\.async\.wait_group\s+)2;", r"\g<1>9;"),
    "a later tile is not waited for": ("shared, a delay of two", r"(cp\.async\.wait_group\s+)1;", r"\g<1>9;"),
    "partials are summed before all are stored": ("flat", r"bra LOOK;", ""),
    "sums of another turn are taken": (
        "shared",
        r"vote\.sync\.all\.pred ready, ready, \S+;",
        "setp.eq.b32 ready, 0, 0;",
    ),
}
DX_ALONE = ("flat", "shared", "shared, two norms")  # where it has to have the same bits if it is all that is wanted
SEEDS = (0, 1, 2)
ROOM = (None, 1, 3)  # programs that the machine holds at a time, where that must not matter


class OnMachine:
    """A kernel that is compiled and run here instead of launched, in an order of chance that the seed decides."""

    def __init__(self, name, kernel, seed=0, fault=None, most_idle=200_000, slots=None):
        self.name, self.kernel, self.seed, self.fault, self.most_idle = name, kernel, seed, fault, most_idle
        self.slots = slots

    def __getitem__(self, grid):
        def run(*args, **options):
            from tests.impls.machine import Machine

            compiled = self.kernel.warmup(*args, grid=grid, **options)
            given = dict(zip(self.kernel.arg_names, args, strict=False)) | options
            kinds = compiled.src.signature
            arguments = [*flat([kinds[name] for name in kinds], [given[name] for name in kinds])]
            ptx = compiled.asm["ptx"]
            if self.fault:
                ptx, replaced = re.subn(*self.fault, ptx)
                assert replaced
            machine = Machine(ptx, self.name, grid[0], options["num_warps"], compiled.metadata.shared, arguments)
            machine.run(self.seed, self.most_idle, self.slots)

        return run


def flat(kinds, arguments):
    """The arguments that are no constants, those of tuples too, in order."""
    for kind, argument in zip(kinds, arguments, strict=True):
        if isinstance(kind, tuple):
            yield from flat(kind, argument)
        elif kind != "constexpr":
            yield argument


def outcome_of(name, fault=None):
    """Of one case: each gradient's rms error over that of one rounding, and whether all orders gave the same bits."""
    import torch

    from harness.cases import make_inputs
    from impls.inhouse import backward, tensors

    case, launch = CASES[name]
    memory = torch.zeros(1 << 14, dtype=torch.int64)  # kept from launch to launch, as a stream's is
    inputs, results = make_inputs(case, seed=0), []
    with contextlib.ExitStack() as stack:
        for module in (backward, tensors):
            stack.enter_context(patch.object(module, "output", lambda like, shape: like.new_empty(shape)))
        for seed in SEEDS if fault is None else SEEDS[:1]:
            slots = ROOM[seed] if isinstance(launch, Shared) else None
            on_machine = partial(OnMachine, seed=seed, fault=fault, slots=slots)
            with instead_of_launches(("cuda", 90, 32), on_machine, memory):
                results.append(gradients_with_extras(inputs, launch=launch))
                if seed == 1 and name in DX_ALONE:
                    results.append(gradients_with_extras(inputs, launch=launch, dx_alone=True))
    first = results[0]
    same = all(torch.equal(first[each], gradient) for other in results for each, gradient in other.items())
    ratios = [*ratios_with_extras(inputs, first).values()]
    return {"ratios": ratios, "same": same}


@pytest.mark.parametrize("name", CASES)
def test_the_right_bits_in_every_order_of_programs(name):
    (outcome,) = in_child(__name__, "outcome_of", [name])
    limit = 1.05 if CASES[name][0].weight_dtype == "bf16" else 4  # of fp32, in which it is also summed
    assert all(ratio < limit for ratio in outcome["ratios"])  # NaN is not less, and max() may pass it over
    assert outcome["same"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_text_is_seen(fault):
    name, *change = FAULTS[fault]
    (outcome,) = in_child(__name__, "outcome_of", [name, change])
    assert not all(ratio < 1.05 for ratio in outcome["ratios"])  # NaN is not less


# ------------------------------------------------------------------------------------------------ exchanged words


def wrong_launch(delay, seeds, slots=None, lag=0):
    """Launch after launch of several shapes over one memory, as on one stream; return which is wrong.

    A planted fault: fewer slots, or an epoch that lags behind after each launch.
    """
    import torch
    import triton.language as tl

    from harness.cases import make_inputs
    from impls.inhouse import backward
    from impls.inhouse.regimes import shared_kernel
    from tests.impls.every_order import Stuck

    launches = [  # one warp a program, for speed
        (rms(rows, 256 * parts - 6), Shared(tile, parts, 1, delay, 1, cols=256, warps=1, stages=delay + 2))
        for rows, tile, parts in ((24, 2, 2), (7, 1, 3), (1, 1, 2), (25, 1, 2))
    ]
    inputs = [make_inputs(case, seed=number) for number, (case, _) in enumerate(launches)]
    exact = [reference(each) for each in inputs]
    memory = torch.zeros(1 << 14, dtype=torch.int64)
    with contextlib.ExitStack() as stack:
        if slots:
            stack.enter_context(patch.object(shared_kernel, "SLOTS", tl.constexpr(slots)))
        stack.enter_context(patch.object(backward, "output", lambda like, shape: like.new_empty(shape)))
        for seed in range(seeds):
            on_machine = partial(OnMachine, seed=seed, most_idle=3000)
            with instead_of_launches(("cuda", 90, 32), on_machine, memory):
                for number, (_, launch) in enumerate(launches):
                    try:
                        found = gradients(inputs[number], launch=launch)
                    except Stuck:
                        return seed, number
                    pairs = zip(found[:2], exact[number], strict=False)
                    if not all(rho(*pair) < 1.05 for pair in pairs):
                        return seed, number
                    memory[8:9].view(torch.int32)[0] -= lag  # of groups.py
    return None


def test_no_word_is_overwritten_or_taken_for_another():
    """Except for the planted fault of the last call, an epoch that lags."""
    *right, wrong = in_child(__name__, "wrong_launch", [1, 2], [2, 2], [1, 10, None, 5])
    assert right == [None, None]
    assert wrong is not None


@pytest.mark.parametrize(("delay", "slots"), [(1, 3), (2, 4)])
def test_an_overwritten_word_is_seen(delay, slots):
    """The planted fault: fewer slots than the 2 D + 2 that a delay of D needs."""
    (wrong,) = in_child(__name__, "wrong_launch", [delay, 20, slots])
    assert wrong is not None


if __name__ == "__main__":
    function, *calls = json.loads(sys.argv[1])
    print(json.dumps([globals()[function](*call) for call in calls]))
