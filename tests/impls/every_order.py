"""Every order in which the programs of a launch may run, and every old word that they may then see.

Memory is that of release and acquire: a load may find any store to its place that is no older than those which the
thread knows of. It knows its own, those that it has found, and what they made known: all that a thread knew which
stored with a release, to whoever loads with an acquire. A program is two threads, 0 for its atomics and 1 for what all
threads do; only a barrier tells one what the other knows. Places are (name, number), and have one order of stores.

A program is a function that yields nothing and hides nothing: it is called anew for every step, with all that it has
found until then, and stopped at the first access of which the outcome is open.
"""

from functools import cache
from itertools import product
from random import Random

OLD_READS = 3  # of a program, that may find what is no longer there
MOST_ACCESSES = 300  # of a program, which waits for ever where it takes more


class Wrong(Exception):
    """A launch does what it must not do."""


class Stuck(Wrong):
    """Nobody gets on."""


class Trapped(Exception):
    """A program gave up."""


class Access(BaseException):
    """What a program does next."""


class Known(tuple):
    """How many stores to each place a thread knows of, as (place, number) pairs."""

    def joined(self, *others):
        most = dict(self)
        for other in others:
            for place, number in other:
                most[place] = max(number, most.get(place, 0))
        return Known(sorted(most.items()))


class Program:
    """What the functions under test call in place of Triton's language; `found` is what accesses gave until now."""

    def __init__(self, found):
        self.found, self.reads = list(found)[::-1], 0

    def may_find_old(self):
        """Whether a read may find what is no longer there: the first ones, as nobody finds that for ever."""
        self.reads += 1
        return self.reads <= OLD_READS

    def _access(self, *access):
        if not self.found:
            raise Access(access)
        return self.found.pop()

    def atomic(self, place, kind, *values, sem="relaxed"):
        """An atomic access of thread 0, add or cas; return what it found."""
        return self._access("atomic", 0, place, sem, kind, *values)

    def load(self, *places, thread=1):
        """Load; as one step, because what is new when the last is loaded may be old to the others."""
        return self._access("load", thread, places, "relaxed")

    def wait(self, place, least, sem="acquire"):
        """Load by thread 0, once no less is found; return it."""
        return self._access("wait", 0, place, sem, least)

    def store(self, place, value, thread=1):
        """Store; only places of `words` may be stored to by several programs."""
        self._access("store", thread, place, "relaxed", value)

    def only(self, place, value):
        """Thread 1 reads what was stored once: any other value that it may find is wrong."""
        self._access("only", 1, place, "relaxed", value)

    def barrier(self):
        """Both threads meet."""
        self._access("barrier", 1, None, "relaxed")


ATOMS = {
    "add": lambda before, value: before + value,
    "cas": lambda before, expected, wanted: wanted if before == expected else before,
}


class Launch:
    """A launch of `programs`, functions of a Program; at most `slots` of them are there at a time, in order.

    `words` are the first values by place. All other places hold None, and are for `store` and `only`. `ends` are
    those that were found: each place with its value and how many stores it has seen.
    """

    MOST_STATES = 600_000

    def __init__(self, programs, words, slots):
        self.programs, self.words, self.slots = programs, words, slots
        self.next = cache(self._next)
        self.first = ((), tuple(((), (Known(), Known())) for _ in programs))
        self.ends = set()

    def _next(self, number, found):
        if len(found) > MOST_ACCESSES:
            raise Stuck
        try:
            self.programs[number](Program(found))
        except Access as access:
            return access.args[0]
        return None

    def explore(self):
        """Go through every order; raise Wrong or Stuck where one ends so."""
        seen, todo = {self.first}, [self.first]
        while todo:
            for state in self._after(*todo.pop()):
                if state not in seen:
                    seen.add(state)
                    todo.append(state)
            if len(seen) > self.MOST_STATES:
                raise AssertionError("too many states to go through")

    def wander(self, walks):
        """Go through so many orders of chance."""
        random = Random(0)
        for _ in range(walks):
            state = self.first
            while after := self._after(*state):
                state = random.choice(after)

    def _after(self, memory, states):
        """The states that may follow; where there are none, this is an end."""
        after = list(self._steps(memory, states))
        if not after:
            if any(self.next(number, found) for number, (found, _) in enumerate(states)):
                raise Stuck
            self.ends.add(tuple((place, stores[-1][0], len(stores) - 1) for place, stores in memory))
        return after

    def _steps(self, memory, states):
        """The states that may follow."""
        live = 0
        for number, (found, known) in enumerate(states):
            access = self.next(number, found)
            if access is None:
                continue
            live += 1
            if live > self.slots:
                return
            outcomes = [*self._outcomes(dict(memory), access, known)]
            every = [
                (changed, (*states[:number], ((*found, value), told), *states[number + 1 :]))
                for changed, value, told in outcomes
            ]
            # Where nobody else accesses a place in earnest, no other order shows anything else.
            if access[0] in ("barrier", "only") or (access[0] == "store" and access[2] not in self.words):
                yield every[0]
                return
            yield from every

    def _outcomes(self, memory, access, known):
        """Memory, what is found, and what both threads then know."""
        does, thread, place, sem, *values = access
        if does == "barrier":
            both = known[0].joined(known[1])
            yield tuple(sorted(memory.items())), None, (both, both)
            return
        mine = known[thread]
        if does == "load":
            numbered = [
                [(each, number) for number in range(dict(mine).get(each, 0), len(self._stores(memory, each)))]
                for each in place
            ]
            for choice in product(*numbered):
                values = tuple(self._stores(memory, each)[number][0] for each, number in choice)
                yield tuple(sorted(memory.items())), values, tell(known, thread, mine.joined(choice))
            return
        stores = self._stores(memory, place)
        if does in ("wait", "only"):
            for number in range(dict(mine).get(place, 0), len(stores)):
                value, tells = stores[number]
                if does == "only" and value != values[0]:
                    raise Wrong(f"{value} may be found in {place}")
                if does == "wait" and value < values[0]:
                    continue
                told = mine.joined([(place, number)], tells if sem == "acquire" else ())
                yield tuple(sorted(memory.items())), value, tell(known, thread, told)
            return
        before, tells = stores[-1]
        told = mine.joined([(place, len(stores))])
        if does == "store":
            made = Known([(place, len(stores))])
            value = values[0]
        else:
            kind, *values = values
            value = ATOMS[kind](before, *values)
            if sem == "acq_rel":
                told = told.joined(tells)
            # Who finds the last of atomics that follow each other finds what all of them tell.
            made = tells.joined(told if sem == "acq_rel" else [(place, len(stores))])
        memory[place] = (*stores, (value, made))
        told = tell(known, thread, told)
        yield tuple(sorted(memory.items())), before, told

    def _stores(self, memory, place):
        return memory.get(place, ((self.words.get(place), Known()),))


def tell(known, thread, told):
    """What both threads know, when one of them knows this."""
    return (told, known[1]) if thread == 0 else (known[0], told)
