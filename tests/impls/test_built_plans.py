"""Plans of cuDNN that one process of a run builds and others load."""

import pickle
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from harness.cases import RUN_FOLDER
from impls.libraries.cudnn_plans import share_built_plans
from tests.impls.peer_cases import module

SHAPE = torch.zeros(4, 8, 1, 1)


class Graph:
    """What the frontend has of a graph: one that was loaded knows its plan and nothing else."""

    def __init__(self, handle):
        assert handle == "handle"

    def build(self, plan, workspace_bytes, engine=None):
        self.plan, self.workspace_bytes = plan, workspace_bytes
        self.selected_engine, self._plan_index = engine, plan
        return self

    def serialize(self):
        return list(pickle.dumps((self.plan, self.workspace_bytes)))

    def deserialize(self, handle, data):
        assert handle == "handle"
        self.plan, self.workspace_bytes = pickle.loads(data)

    def get_workspace_size(self):
        return self.workspace_bytes


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Processes of a run: each imports the operators anew; `built` counts what they built."""
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
    monkeypatch.setitem(sys.modules, "cudnn", module("cudnn", pygraph=Graph))
    built = Counter()

    def process(plan=0, graph=Graph, **of_graph):
        def _build_fprop_graph(handle, x):
            return graph(handle).build(plan, 32)

        def _build_bprop_graph(handle, x, bias=None):
            built[tuple(x.shape), bias is None] += 1
            return graph(handle).build(plan, 16, **of_graph), 16

        operators = module("operators", _build_fprop_graph, _build_bprop_graph)
        share_built_plans(operators)
        share_built_plans(operators)  # as every `prepare` does
        return operators._build_bprop_graph

    return SimpleNamespace(process=process, built=built, folder=tmp_path)


def test_a_plan_is_built_once_for_all_processes_of_a_run(run):
    for _ in range(3):
        graph, workspace_bytes = run.process()("handle", SHAPE)
        assert (graph.plan, workspace_bytes) == (0, 16)
    assert run.built == {((4, 8, 1, 1), True): 1}
    run.process()("handle", SHAPE[:2])
    run.process()("handle", SHAPE, SHAPE)
    assert run.built.total() == 3
    assert len(list(run.folder.iterdir())) == 3


class Unserializable(Graph):
    def serialize(self):
        raise RuntimeError("CUDNN_STATUS_NOT_SUPPORTED")


@pytest.mark.parametrize("made", [{"plan": 1}, {"engine": "a Python engine"}, {"graph": Unserializable}], ids=str)
def test_what_may_not_be_handed_on_is_built_by_each_process(run, made):
    for number in (1, 2):
        graph, _ = run.process(**made)("handle", SHAPE)
        assert (graph.plan, run.built.total()) == (made.get("plan", 0), number)
    assert list(run.folder.iterdir()) == []


def test_a_damaged_plan_is_built_again(run):
    run.process()("handle", SHAPE)
    (file,) = run.folder.iterdir()
    file.write_bytes(b"no plan")
    assert run.process()("handle", SHAPE)[0].plan == 0
    assert run.built.total() == 2


def test_outside_of_a_run_every_process_builds(run, monkeypatch):
    monkeypatch.delenv(RUN_FOLDER)
    for _ in range(2):
        run.process()("handle", SHAPE)
    assert run.built.total() == 2
