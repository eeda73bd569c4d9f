"""The same against a real cluster of Ray on this host, whose GPUs are numbers: order, loss, kinds, and what is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from harness.errors import UnavailableError
from harness.fleet import spread
from harness.fleet.cluster import Cluster, connected
from harness.records.file import load
from harness.records.settings import Settings
from harness.run.invocation import Invocation
from harness.run.progress import Display
from tests.fleet.light import LightProcess, Script, asked, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]  # they share a cluster
ROOT = Path(__file__).parents[2]
SHAPES = [16, 32, 48]
IMPLS = ("quack", "torch-eager")
TOKEN = "of-tests-alone-" + "0" * 32
MARK = ("NORMBWD_TEST", f"{os.getpid()}")  # of all processes that these tests start
SMALL = {"num_cpus": 0, "object_store_memory": 80 << 20, "include_dashboard": False}


class OnNode:
    """Starts scripted workers on whatever node it is sent to; `torch` and the kind are by the node's resources."""

    def __init__(self, folder, **script):
        self.folder = folder
        self.script = script

    def __call__(self, start, log):
        import ray

        node = ray.get_runtime_context().get_node_id()
        resources = next(node_["Resources"] for node_ in ray.nodes() if node_["NodeID"] == node)
        kind = next(name for name in resources if name.startswith("accelerator_type:")).split(":")[1].lower()
        uuid = f"{node[:6]}-{os.environ['CUDA_VISIBLE_DEVICES']}"
        host = "new" if "new" in resources else "old"
        return LightProcess(Script(self.folder, kind, uuid=uuid, host=host, **self.script))


@pytest.fixture(scope="module")
def cluster():
    """Two H200 on one node, and a B200 on another; by the token that tests have of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", TOKEN)
        patch.setenv(*MARK)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        from ray.cluster_utils import Cluster as Nodes

        head = SMALL | {"num_gpus": 2, "resources": {"accelerator_type:H200": 1}}
        nodes = Nodes(initialize_head=True, head_node_args=head)
        nodes.add_node(**SMALL, num_gpus=1, resources={"accelerator_type:B200": 1, "new": 1})
        yield nodes
        nodes.shutdown()
        wait_until(lambda: not left())


@pytest.fixture
def said(tmp_path):
    folder = tmp_path / "said"
    folder.mkdir()
    return folder


def left():
    """The processes that these tests have started and that still run, by their command lines."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK[0]) == MARK[1]:
                found[process.pid] = " ".join(process.cmdline())
    return found


def workers_left():
    """Those of them that are a worker or its actor; Ray keeps idle processes of its own."""
    return [pid for pid, line in left().items() if "spawn_main" in line or "ray::GpuActor" in line]


def bench(cluster, tmp_path, process, processes=1, meanwhile=None, of=SHAPES, **more):
    """Run over the cluster; `meanwhile` is called in a thread of its own. What the run started is gone at its end."""
    shapes = ",".join(f"{rows}x1024" for rows in of)
    settings = Settings(shapes=shapes, norm="rms", impls="torch-eager,quack", processes=processes)
    invocation = Invocation(settings=settings, fleet="a cluster", out=tmp_path / "run", compile_ahead=0, **more)
    threads = [threading.Thread(target=meanwhile)] if meanwhile else []
    with connected(cluster.address) as there:
        there.process = process
        for thread in threads:
            thread.start()
        path = spread.bench_on(there, invocation, Display())
    for thread in threads:
        thread.join()
    wait_until(lambda: not workers_left())
    return load(path)


def wait_until(is_so):
    while not is_so():  # without a limit, as the machine may be busy; the timeout of pytest ends what hangs
        time.sleep(0.05)


def actors():
    return [pid for pid, line in left().items() if "ray::GpuActor" in line]


def all_rows(processes=1):
    return sorted((process, rows, impl) for process in range(processes) for rows in SHAPES for impl in IMPLS)


def test_the_processes_of_a_run_are_measured_one_after_the_other(cluster, tmp_path, said):
    results = bench(cluster, tmp_path, OnNode(said), processes=2, kinds="b200")
    assert results.run.device.profile == "b200"
    assert rows_of(results) == all_rows(2)
    assert [(process, rows) for _, process, rows in asked(said)] == [(p, rows) for p in (0, 1) for rows in SHAPES]


def test_a_kind_that_is_absent_is_said_at_once(cluster, tmp_path, said):
    with pytest.raises(UnavailableError, match="--kinds h100: not in this cluster, which has 1 b200, 2 h200"):
        bench(cluster, tmp_path, OnNode(said), kinds="h100")


def test_a_killed_actor_costs_no_row(cluster, tmp_path, said):
    def kill():
        wait_until(lambda: asked(said))
        os.kill(actors()[0], signal.SIGKILL)
        (said / "go").touch()

    results = bench(cluster, tmp_path, OnNode(said, blocks="torch-eager"), kinds="h200", meanwhile=kill)
    assert rows_of(results) == all_rows()
    assert {row.status for row in results.rows} == {"ok"}


def test_a_node_that_is_lost_costs_no_row(cluster, tmp_path, said):
    """Two nodes of one kind, one of which goes away while it measures."""
    other = cluster.add_node(**SMALL, num_gpus=1, resources={"accelerator_type:B200": 1, "new": 1})

    def lose():
        wait_until(lambda: len({gpu for gpu, *_ in asked(said)}) == 2)
        cluster.remove_node(other, allow_graceful=False)
        (said / "go").touch()

    results = bench(cluster, tmp_path, OnNode(said, blocks="torch-eager"), kinds="b200", meanwhile=lose)
    assert rows_of(results) == all_rows()
    assert {row.status for row in results.rows} == {"ok"}


def test_a_hang_costs_a_row_and_its_worker(cluster, tmp_path, said):
    results = bench(cluster, tmp_path, OnNode(said, hangs="quack"), of=SHAPES[:1], kinds="b200", time_limit_s=10.0)
    assert rows_of(results) == all_rows()[:2]
    assert {(row.impl, row.status) for row in results.rows} == {("torch-eager", "ok"), ("quack", "timeout")}


def test_other_versions_are_refused(cluster, tmp_path, said):
    other = cluster.add_node(**SMALL, num_gpus=1, resources={"accelerator_type:B200": 1})
    try:
        other_torch = OnNode(said, torch={"new": "2.12.0"})
        with pytest.raises(UnavailableError, match="install the same"):
            bench(cluster, tmp_path, other_torch, of=SHAPES[:2], kinds="b200")
    finally:
        cluster.remove_node(other)


DRIVER = """
import signal
import sys
from pathlib import Path
from harness.fleet import cluster, spread
from tests.fleet.test_on_ray import OnNode
from harness.__main__ import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
there = cluster.Cluster.__init__
cluster.Cluster.__init__ = lambda self: there(self, OnNode(Path(sys.argv[1]), blocks="torch-eager"))
main(sys.argv[2:])
"""


def driver(cluster, tmp_path, said, *more):
    """A command line in a process of its own."""
    shapes = ",".join(f"{rows}x1024" for rows in SHAPES)
    line = f"bench --fleet {cluster.address} --kinds h200 --shapes {shapes} --norm rms --impls torch-eager,quack"
    words = [*line.split(), "--compile-ahead", "0", "--out", str(tmp_path / "run"), *more]
    program = [sys.executable, "-c", DRIVER, str(said)]
    return subprocess.Popen([*program, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing_and_goes_on(cluster, tmp_path, said, sent):
    cut = driver(cluster, tmp_path, said)
    wait_until(lambda: asked(said))
    cut.send_signal(sent)
    told = cut.communicate()[1]
    wait_until(lambda: not workers_left())
    if sent != signal.SIGKILL:
        assert cut.returncode == 130
        assert "--resume (what is done is kept)" in told
    (said / "go").touch()
    results = bench(cluster, tmp_path, OnNode(said), kinds="h200", resume=True)
    assert sorted(set(rows_of(results))) == all_rows()
    assert not results.end.interrupted


@pytest.mark.parametrize(("token", "code"), [(TOKEN, 0), ("of-another-" + "0" * 32, 1)])
def test_who_has_no_token_is_refused(cluster, token, code):
    """In a process of its own, as Ray reads the token once."""
    program = "from harness.fleet.cluster import connected\nwith connected({!r}) as there: print(there.gpus())"
    told = subprocess.run(
        [sys.executable, "-c", program.format(cluster.address)],
        env=os.environ | {"RAY_AUTH_TOKEN": token},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (told.returncode, "{'b200': 1, 'h200': 2}" in told.stdout) == (code, code == 0), told.stderr


def test_a_cluster_counts_what_is_alive(cluster):
    with connected(cluster.address) as there:
        assert isinstance(there, Cluster)
        assert there.gpus() == {"b200": 1, "h200": 2}
