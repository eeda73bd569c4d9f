"""The programs of parts.py as they take turns, without their sums: who writes which word when, and who reads it.

Its arithmetic (places, tags, turns, epochs) is taken out of the kernel's own source, so that it cannot fall behind.
"""

import ast
import inspect
from itertools import product
from random import Random
from types import SimpleNamespace

from impls.inhouse import parts


class Overwritten(Exception):
    """A word was replaced before all had read it."""


class Stuck(Exception):
    """Nobody gets on."""


def body_of(kernel):
    tree = ast.parse(inspect.getsource(inspect.getmodule(kernel.fn)))
    return next(each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == kernel.__name__)


def calls_in(tree, name):
    calls = (each for each in ast.walk(tree) if isinstance(each, ast.Call))
    return [each for each in calls if ast.unparse(each.func) == name]


def call_in(kernel, name):
    (call,) = calls_in(body_of(kernel), name)
    return call


def condition_of(kernel, name):
    """On what the call depends: the innermost `if` in whose body it is."""
    conditions = (each for each in ast.walk(body_of(kernel)) if isinstance(each, ast.If))
    *_, innermost = (each for each in conditions if any(calls_in(line, name) for line in each.body))
    return innermost.test


def assigned_in(kernel, name):
    assignments = (each for each in ast.walk(body_of(kernel)) if isinstance(each, ast.Assign))
    return next(each.value for each in assignments if ast.unparse(each.targets[0]) == name)


def end_of_loop(kernel, name):
    loops = (each for each in ast.walk(body_of(kernel)) if isinstance(each, ast.For))
    return next(each.iter.args[-1] for each in loops if ast.unparse(each.target) == name)


KERNEL = parts.backward_parts
LOOKS = calls_in(body_of(KERNEL), "look")
SEND, RECEIVE = call_in(KERNEL, "send"), call_in(KERNEL, "receive")
CODE = {
    name: compile(ast.unparse(expression), name, "eval")
    for name, expression in {
        "words": assigned_in(KERNEL, "words"),  # where the group's begin
        "turns": assigned_in(KERNEL, "turns"),  # tiles of the group
        "end": end_of_loop(KERNEL, "turn"),
        "before": assigned_in(KERNEL, "before"),  # where those of the tile to be finished begin
        "sends": condition_of(KERNEL, "send"),
        "receives": condition_of(KERNEL, "receive"),
        "to": SEND.args[0],
        "sent": SEND.args[1],
        "awaited": RECEIVE.args[2],
        "next": call_in(KERNEL, "meet").args[1],  # the epoch of the next launch
    }.items()
}
GL = SimpleNamespace(cdiv=lambda a, b: -(-a // b))


class Programs:
    """All programs of one launch; each yields between any two accesses to memory, a dict by place."""

    def __init__(self, memory, epoch, rows, groups, R, S, D, slots):
        self.memory, self.launch = memory, epoch
        self.parts, self.delay = S, D
        self.names = {"gl": GL, "exchange": 0, "SLOTS": slots, "WORDS": S, "D": D, "R": R, "S": S}
        self.names |= {"epoch": epoch, "rows": rows, "groups": groups}
        self.received = dict.fromkeys(product(range(groups), range(S)), -1)  # the last tile whose sums each has

    def value(self, name, **more):
        return eval(CODE[name], self.names | more)

    def tags(self, group):
        """All tags that a program of the group sends."""
        turns = self.value("turns", group=group)
        turn_by_turn = range(self.value("end", turns=turns))
        return {self.value("sent", turn=turn) for turn in turn_by_turn if self.value("sends", turn=turn, turns=turns)}

    def program(self, group, part):
        at = {"words": self.value("words", group=group), "turns": self.value("turns", group=group), "part": part}
        for turn in range(self.value("end", **at)):
            at["turn"] = turn
            before = self.value("before", **at)
            seen = yield from self.load(before)
            if self.value("sends", **at):
                self.store(self.value("to", **at), self.value("sent", **at), group, turn)
                yield
            if self.value("receives", **at):
                tile, tag = turn - self.delay, self.value("awaited", **at)
                while any(each[0] != tag for each in seen):
                    seen = yield from self.load(before)
                assert [each[1:] for each in seen] == [(self.launch, group, tile)] * self.parts
                self.received[group, part] = tile
        assert self.received[group, part] == at["turns"] - 1

    def load(self, first):
        seen = []
        for i in range(self.parts):
            seen.append(self.memory.get(first + i, (0, None, 0, 0)))
            yield
        return seen

    def store(self, place, tag, group, tile):
        _, launch, _, old = self.memory.get(place, (0, None, 0, 0))
        read = min(self.received[group, part] for part in range(self.parts))
        if launch == self.launch and read < old:
            raise Overwritten(f"tile {old} by {tile}, read up to {read}")
        self.memory[place] = (tag, self.launch, group, tile)

    def run(self, seed):
        """In an order of chance: one program runs a while, long or short, then another; return the next epoch."""
        random = Random(seed)
        left = [self.program(*each) for each in self.received]
        for _ in range(100_000):
            if not left:
                return self.value("next")
            running = random.choice(left)
            for _ in range(random.choice((1, 3, 10, 100))):
                if next(running, left) is left:
                    left.remove(running)
                    break
        raise Stuck
