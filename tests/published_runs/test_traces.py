import json

import pytest

from harness.publish.packing import without_traces


def cleaned(record):
    return without_traces(record, [])[0]


def traces_of(record):
    return without_traces(record, [])[1]


@pytest.mark.parametrize(
    ("text", "kept", "found"),
    [
        ("see /home/ann/kernels/mine.py", "see mine.py", ["the path /home/ann/kernels/mine.py"]),
        ('File "/opt/venv/lib/x.py", line 3', 'File "x.py", line 3', ["the path /opt/venv/lib/x.py"]),
        ("--impl=/scratch/ann/mine.py", "--impl=mine.py", ["the path /scratch/ann/mine.py"]),
        (r"C:\Users\ann\mine.py", "mine.py", [r"the path C:\Users\ann\mine.py"]),
        ("ray://10.0.0.7:10001 is gone", "(address) is gone", ["the address ray://10.0.0.7:10001"]),
        ("bench --fleet head:6379 --gpus 4", "bench --fleet (address) --gpus 4", ["the address head:6379"]),
        ("ask ann@lab.example", "ask (address)", ["the mail address ann@lab.example"]),
    ],
)
def test_trace_is_found_and_taken_out(text, kept, found):
    record = {"record": "row", "notes": [text], "timing": {"samples_us": [1.0, 2.0]}}
    assert traces_of(record) == found
    assert cleaned(record) == record | {"notes": [kept]}
    assert traces_of(cleaned(record)) == []


@pytest.mark.parametrize(
    "text",
    [
        "impls/triton_inhouse.py",
        "4289.4 GB/s and/or 1/2",
        "https://github.com/NVIDIA/apex",
        "triton-inhouse@base",
        "nvidia-cublas 12.8.4.1",
        "the cache in ~/.quack/cache",
        "unsupported: trial.py:123",
        "liger-kernel@0.8.5",
        "/tmp is full",
    ],
)
def test_what_tells_nothing_stays(text):
    record = {"record": "row", "reason": text}
    assert traces_of(record) == []
    assert cleaned(record) == record


def test_command_forgets_where_its_results_were_kept():
    command = (
        "normbwd bench --out /home/ann/run --shapes 64x64 --out='/tmp/by ann' --impl /home/ann/mine.py --impls 'a*'"
    )
    kept = cleaned({"record": "run", "command": command})
    assert kept["command"] == "normbwd bench --shapes 64x64 --impl mine.py --impls 'a*'"


def test_hosts_of_a_fleet_are_numbered():
    hosts = []
    gpus = [{"record": "gpu", "number": n, "host": host, "uuid": "GPU-1"} for n, host in enumerate(["b", "a", "b"])]
    assert [found for gpu in gpus for found in traces_of(gpu)][:2] == ["the host b", "the serial GPU-1"]
    kept = [without_traces(gpu, hosts)[0] for gpu in gpus]
    assert [gpu["host"] for gpu in kept] == ["host 0", "host 1", "host 0"]
    assert [traces_of(gpu) for gpu in kept] == [[], [], []]
    assert "GPU-1" not in json.dumps(kept)
