"""What an actor does for its host, asked directly."""

import os
import sys
from types import SimpleNamespace

import pytest

from harness.devices.facts import DeviceFacts
from harness.errors import UnavailableError
from harness.fleet.gpu_actor import GpuActor
from harness.fleet.lane import FarWorker
from harness.run.process import WorkerDiedError
from harness.worker.messages import Began, Done, Hello, Start
from tests.fake_worker import Ready
from tests.fleet.light import Script

A, B = Began("a", "verify"), Began("b", "verify")
DEATH = WorkerDiedError("the worker process was killed by SIGSEGV")


class Silent(Ready):
    """A worker that has said what it has to say."""

    def receive(self, timeout_s):
        return super().receive(timeout_s) if self.events else None

    def kill(self):
        self.killed = True


@pytest.fixture
def actor_with(tmp_path):
    """An actor with a worker that says these events after it has said what is here."""
    actors = []

    def make(*events):
        worker = Silent(Script(tmp_path).hello(), *events)
        actors.append(GpuActor(lambda start, log: worker))
        actors[-1].launch(Start(), 1.0)
        return actors[-1], worker

    yield make
    for actor in actors:
        actor.close()


def test_without_another_process_the_usual_worker_is_started(tmp_path, monkeypatch):
    worker = Silent(Script(tmp_path).hello())
    monkeypatch.setattr("harness.fleet.gpu_actor.begin_worker", lambda start, log: worker)
    actor = GpuActor()
    assert actor.launch(Start(), 1.0).libraries
    actor.close()
    assert worker.killed


def test_what_came_together_is_answered_together(actor_with):
    actor, worker = actor_with(A, B, Done(), A)
    assert actor.receive(7.0) == [A, B, Done()]
    assert worker.waited_s[1:] == [7.0, 0.0, 0.0]
    assert actor.receive(7.0) == [A]
    assert actor.receive(7.0) == []


def test_what_a_worker_said_before_it_died_is_not_lost(actor_with):
    actor, _ = actor_with(A, DEATH, DEATH)
    assert actor.receive(1.0) == [A]
    with pytest.raises(WorkerDiedError):
        actor.receive(1.0)


def test_events_are_handed_on_one_at_a_time(actor_with):
    actor, _ = actor_with(A, Done())
    worker = FarWorker(SimpleNamespace(ask=lambda method, *given, limit_s: getattr(actor, method)(*given)))
    assert [worker.receive(1.0) for _ in range(3)] == [A, Done(), None]


def test_a_worker_ends_with_its_actor(actor_with):
    actor, worker = actor_with()
    actor.close()
    assert worker.killed


def test_a_host_on_which_torch_finds_no_gpu_is_named(actor_with):
    actor, _ = actor_with()
    cpu = DeviceFacts("cpu", "Some CPU", "x86_64", l2_bytes=1 << 20)
    with pytest.raises(UnavailableError, match=r"torch finds no GPU on .*, where Ray has one"):
        actor.place("auto", Hello([cpu], [], {}))


def test_a_worker_is_started_as_if_there_were_no_ray(monkeypatch, actor_with):
    actor, _ = actor_with()
    main = SimpleNamespace(__file__="default_worker.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    actor.forget_ray(keep=["OMP_NUM_THREADS"])
    assert os.environ["OMP_NUM_THREADS"] == "1"
    actor.forget_ray(keep=[])
    assert "OMP_NUM_THREADS" not in os.environ
    assert not hasattr(main, "__file__")
