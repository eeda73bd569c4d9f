"""What a graph holds, as a driver that is not there lists it."""

import ctypes
from collections import Counter

import pytest

from harness.devices import capture
from harness.devices.capture import Captured

KERNEL, MEMCPY, MEMSET, STRANGE = 0, 1, 2, 42


class Driver:
    """Lists nodes of these kinds; `fails` is the error that it answers with."""

    def __init__(self, kinds, fails=0):
        self.kinds, self.fails = kinds, fails

    def cuGraphGetNodes(self, graph, nodes, count):
        if self.fails:
            return self.fails
        if nodes is not None:
            for place in range(len(self.kinds)):
                nodes[place] = 1000 + place
        count._obj.value = len(self.kinds)
        return 0

    def cuGraphNodeGetType(self, node, kind):
        kind._obj.value = self.kinds[node.value - 1000]
        return 0


class Graph:
    def raw_cuda_graph(self):
        return 7


@pytest.fixture
def nodes(monkeypatch):
    def of(driver):
        def load(name):
            if driver is None:
                raise OSError(name)
            return driver

        monkeypatch.setattr(ctypes, "CDLL", load)
        return capture._nodes(Graph())

    return of


def test_nodes_are_counted_by_kind(nodes):
    found = nodes(Driver([MEMSET, KERNEL, KERNEL, MEMCPY, STRANGE]))
    assert found == Counter({"kernel": 2, "memset": 1, "memcpy": 1, "other node": 1})


def test_a_graph_of_nothing_is_told_from_one_that_is_not_known(nodes):
    assert nodes(Driver([])) == Counter()
    assert nodes(Driver([KERNEL], fails=1)) is None
    assert nodes(None) is None


def test_the_content_in_words():
    def content(kinds):
        return Captured(print, None, kinds, print).content

    assert content(Counter(kernel=2, memset=1)) == "2 kernels, 1 memset"
    assert content(Counter()) == "nothing"
    assert content(None) == "an unknown number of nodes"
