"""The examples for Slurm and KubeRay: the one beside programs that only tell how they were called."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]

PROGRAMS = {
    "scontrol": "echo node1; echo node2",
    "openssl": "echo c0ffee",
    "sleep": "",
    "srun": 'echo "srun $*"',
    "normbwd": 'echo "normbwd $*"',
}


@pytest.fixture
def submitted(tmp_path):
    """What the programs of a job of so many nodes were called with."""
    for name, does in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{does}\n")
        (tmp_path / name).chmod(0o755)

    def submit(nodes):
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_NNODES": str(nodes),
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_NODELIST": "node[1-2]",
        }
        run = ["bash", "-u", str(ROOT / "examples/fleet.sbatch")]
        return subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    return submit


def test_a_job_starts_ray_on_all_nodes_and_measures(submitted):
    told = submitted(2)
    assert "srun --nodes=1 --ntasks=1 -w node1 ray start --head" in told
    assert "srun --nodes=1 --ntasks=1 -x node1 ray start --address=node1:6379" in told
    assert "normbwd bench --fleet node1:6379 --suite llm --processes 5 --out runs/77\n" in told


def test_a_job_that_was_queued_again_goes_on(submitted, tmp_path):
    (tmp_path / "runs/77").mkdir(parents=True)
    (tmp_path / "runs/77/results.jsonl").write_text("")
    assert "--out runs/77 --resume\n" in submitted(2)


def test_one_node_needs_no_other(submitted):
    assert submitted(1).count("srun") == 1


def test_a_cluster_with_tokens_names_the_version_of_ray():
    spec = yaml.safe_load((ROOT / "examples/kuberay.yaml").read_text())["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    assert f"ray=={spec['rayVersion']}" in (ROOT / "constraints.txt").read_text().splitlines()
