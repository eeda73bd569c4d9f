"""How programs that share a row exchange its sums: exchange.py, compiled and run by the tests' machine.

Triton's interpreter runs no assembly, and one program after another: those that wait for each other need another way.
"""

import json
import sys
from functools import partial

import pytest
import triton
import triton.language as tl

from impls.inhouse.exchange import exchange_options, poll, receive, send
from tests.impls.gpuless import in_child, instead_of_launches

pytestmark = pytest.mark.slow

TAG = 1000
SEEDS = (0, 1)  # of orders of programs
SENDERS = {1: (2, 33, 64), 2: (5, 10, 16, 32, 64), 4: (3, 8, 16, 17)}  # by the number of sums
SHAPES = [(number, sums) for sums, senders in SENDERS.items() for number in senders]


@triton.jit
def exchange_once(
    words,
    numbers,  # (programs, 4)
    results,  # (programs, 4)
    tag,
    SEND: tl.constexpr,
    POLL: tl.constexpr,
    RECEIVE: tl.constexpr,
    LOADS: tl.constexpr,
    WORDS: tl.constexpr,
):
    own = 4 * tl.program_id(0)
    parts = tl.load(numbers + own), tl.load(numbers + own + 1), tl.load(numbers + own + 2), tl.load(numbers + own + 3)
    seen = poll(words, POLL, LOADS)
    send(words + tl.program_id(0), tag, parts, SEND)
    sums = receive(seen, words, tag, RECEIVE)
    for i in tl.static_range(4):
        tl.store(results + own + i, sums[i])


def stale_words(senders, exchange):
    """NaN everywhere: with tags of other turns where a sender writes, and with the awaited tag where none does."""
    import torch

    generator = torch.Generator().manual_seed(senders)
    width = 1 << (senders - 1).bit_length()
    tags = TAG - torch.randint(1, 33, (exchange["WORDS"],), generator=generator)
    tags[::7] = 0  # as memory is when it is new
    tags[torch.arange(exchange["WORDS"]) % width >= senders] = TAG
    return tags << 32 | torch.tensor(float("nan")).view(torch.int32).long() & 0xFFFFFFFF


def outcome(senders, sums, fault=None):
    """What is wrong with the exchange of so many numbers, or None; `fault` is a text and what takes its place."""
    import torch

    from tests.impls.every_order import Stuck
    from tests.impls.test_compiled import OnMachine

    exchange, first = exchange_options(senders, sums), None
    numbers = torch.zeros(senders, 4)
    numbers[:, :sums] = torch.randn(senders, sums, generator=torch.Generator().manual_seed(sums))
    exact, most = numbers.double().sum(0), numbers.abs().double().sum(0)
    for seed in SEEDS[:1] if fault else SEEDS:
        words, results = stale_words(senders, exchange), torch.full((senders, 4), float("nan"))
        on_machine = partial(OnMachine, seed=seed, fault=fault, most_idle=2000 * senders)
        with instead_of_launches(("cuda", 90, 32), on_machine, torch.zeros(64, dtype=torch.int64)):
            try:
                on_machine("exchange_once", exchange_once)[senders,](
                    words, numbers, results, TAG, num_warps=2, **exchange
                )
            except Stuck:
                return "stuck"
        first = results[0] if first is None else first
        if not torch.equal(results, first.expand(senders, 4)):
            return "other bits"
        if not ((first.double() - exact).abs() <= 6 * 2.0**-24 * most).all():
            return "wrong"
    return None


def test_every_program_gets_the_same_sums():
    assert in_child(__name__, "outcome", *SHAPES) == [None] * len(SHAPES)


FAULTS = {
    "lanes without a sender are summed": (r"(setp\.lt\.and\.u32 has0, place, )5,", r"\g<1>8,"),
    "words of another turn are taken": (r"vote\.sync\.all\.pred ready, ready, \S+;", "setp.eq.b32 ready, 0, 0;"),
    "numbers are sent to each other's place": (r"(mad\.wide\.u32 to, thread, )64,", r"\g<1>8,"),
}


def test_each_fault_is_seen():
    seen = in_child(__name__, "outcome", *([5, 4, fault] for fault in FAULTS.values()))
    assert None not in seen, dict(zip(FAULTS, seen, strict=True))


if __name__ == "__main__":
    function, *calls = json.loads(sys.argv[1])
    print(json.dumps([globals()[function](*call) for call in calls]))
