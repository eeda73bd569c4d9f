import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from harness.devices import facts
from harness.devices.facts import DeviceFacts, read_available, read_facts
from harness.devices.profiles import GIB, MIB, PROFILES, choose, detect, known_names, refuse_shared
from harness.errors import UnavailableError, UsageError
from tests.fake_nvml import FakeNvml

H200 = DeviceFacts("cuda", "NVIDIA H200", "sm_90", 140 * GIB, 60 * MIB, 132, uuid="1234")
HOST = DeviceFacts("cpu", "Some Xeon", "x86_64", 64 * GIB, 36 * MIB)


def gpu(name, architecture, gib=None, sm_count=None, l2_mib=None):
    memory = None if gib is None else int(gib * GIB)
    return DeviceFacts("cuda", name, architecture, memory, None if l2_mib is None else l2_mib * MIB, sm_count)


REPORTED = [
    (gpu("NVIDIA B200", "sm_100", 178.4), "b200"),
    (gpu("NVIDIA GB200", "sm_100", 184), "gb200"),
    (gpu("NVIDIA B300 SXM6 AC", "sm_103", 268), "b300"),
    (gpu("NVIDIA GB300", "sm_103", 277), "gb300"),
    (gpu("NVIDIA H200", "sm_90", 139.8), "h200"),
    (gpu("NVIDIA H200 NVL", "sm_90", 139.8), "h200"),
    (gpu("NVIDIA H100 80GB HBM3", "sm_90", 79.1), "h100-sxm"),
    (gpu("NVIDIA H100 PCIe", "sm_90", 79.1), "h100-pcie"),
    (gpu("NVIDIA H100 NVL", "sm_90", 93.1), "h100-nvl"),
    (gpu("NVIDIA A100-SXM4-40GB", "sm_80", 39.4), "a100-40gb"),
    (gpu("NVIDIA A100 80GB PCIe", "sm_80", 79.1), "a100-80gb-pcie"),
    (gpu("NVIDIA A100-SXM4-80GB", "sm_80", 79.1), "a100-80gb-sxm"),
    (gpu("NVIDIA L40S", "sm_89", 44.4), "l40s"),
    (gpu("NVIDIA GeForce RTX 5090", "sm_120", 31.4), "rtx5090"),
    (gpu("AMD Instinct MI300X", "gfx942", 192, 304), "mi300x"),
    (gpu("AMD Instinct MI325X", "gfx942", 256, 304), "mi325x"),
    (gpu("AMD Instinct MI355X", "gfx950", 288, 256), "mi355x"),
    (HOST, "cpu"),
]

NEAR_MISSES = [
    gpu("NVIDIA GH200 480GB", "sm_90", 95),
    gpu("NVIDIA H100", "sm_90", 79),
    gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm_90", 9.8, 16),
    gpu("NVIDIA H200 MIG 3g.71gb", "sm_90", 69, 60),
    gpu("NVIDIA L40", "sm_89", 44),
    gpu("NVIDIA GB300", "sm_103", 234),  # a DGX Station
    gpu("AMD Instinct MI300A", "gfx942", 128, 228),
    gpu("AMD Instinct MI300X", "gfx942", 24, 38),  # one of eight partitions
    gpu("NVIDIA H200", "sm_80"),  # a name with another architecture is not that device
]


@pytest.mark.parametrize(("facts", "profile"), REPORTED, ids=lambda value: getattr(value, "name", value))
def test_each_profile_is_detected_from_its_reported_name(facts, profile):
    assert detect(facts).name == profile


def test_every_profile_has_a_reported_name():
    assert {profile for _, profile in REPORTED} == {profile.name for profile in PROFILES}


@pytest.mark.parametrize("facts", NEAR_MISSES, ids=lambda facts: facts.name)
def test_a_near_miss_gets_a_generic_profile(facts):
    profile = detect(facts)
    assert profile.name not in known_names()
    assert profile.datasheet_gbps is None
    assert profile.architecture == facts.architecture
    assert profile.title == facts.name
    assert profile.flush_bytes >= 512 * MIB


def test_a_generic_profile_is_named_after_the_device():
    assert detect(gpu("NVIDIA GH200 480GB", "sm_90")).name == "nvidia-gh200-480gb"
    assert detect(gpu("", "sm_90")).name == "cuda-unknown"
    assert detect(gpu("H200", "sm_80")).name == "h200-unknown"


def test_the_larger_of_datasheet_and_reported_cache_counts():
    assert detect(H200).l2_bytes == detect(H200).last_level_bytes == 60 * MIB
    assert detect(gpu("NVIDIA H200", "sm_90")).last_level_bytes == 50 * MIB
    mi300x = detect(gpu("AMD Instinct MI300X", "gfx942", 192, 304, l2_mib=4))
    assert (mi300x.l2_bytes, mi300x.last_level_bytes) == (32 * MIB, 256 * MIB)


@pytest.mark.parametrize(
    ("facts", "flush"),
    [
        (H200, 240 * MIB),
        (gpu("NVIDIA B200", "sm_100", l2_mib=126), 506 * MIB),
        (gpu("NVIDIA Rubin", "sm_107", l2_mib=40), 512 * MIB),  # of an unknown one that may not be the last level
        (gpu("NVIDIA Rubin", "sm_107", l2_mib=256), GIB),
        (gpu("AMD Instinct MI300X", "gfx942", l2_mib=4), GIB),
        (gpu("AMD Instinct MI300A", "gfx942", l2_mib=4), GIB),  # generic, but its Infinity Cache is known
        (HOST, 144 * MIB),
        (DeviceFacts("cpu", "small", "aarch64", l2_bytes=4 * MIB), 64 * MIB),
        (DeviceFacts("cpu", "silent", "aarch64"), 128 * MIB),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_flush_bytes(facts, flush):
    assert detect(facts).flush_bytes == flush


@pytest.mark.parametrize(
    ("asked", "name"), [("auto", "h200"), ("AUTO", "h200"), ("h200", "h200"), ("H200", "h200"), ("cpu", "cpu")]
)
def test_choose_what_is_here(asked, name):
    profile, facts = choose(asked, [HOST, H200])
    assert profile.name == name
    assert facts == (HOST if name == "cpu" else H200)


@pytest.mark.parametrize(
    ("asked", "available", "message"),
    [
        (
            "b200",
            [H200, HOST],
            "--device b200: this machine has an NVIDIA H200 (h200); run it there, or use --device auto",
        ),
        (
            "h100-pcie",
            [gpu("NVIDIA H100 80GB HBM3", "sm_90"), HOST],
            "--device h100-pcie: this machine has an NVIDIA H100 80GB HBM3 (h100-sxm); "
            "run it there, or use --device auto",
        ),
        (
            "a100",
            [HOST],
            "--device a100: torch finds no GPU on this machine; run it where there is one, or use --device cpu",
        ),
    ],
)
def test_choosing_what_is_elsewhere_is_unavailable(asked, available, message):
    with pytest.raises(UnavailableError) as error:
        choose(asked, available)
    assert str(error.value) == message
    assert error.value.exit_code == 4


def test_choosing_what_does_not_exist_lists_the_names():
    with pytest.raises(UsageError) as error:
        choose("h300", [gpu("NVIDIA GH200 480GB", "sm_90"), HOST])
    assert str(error.value) == (
        "--device h300: no such device; choose among auto, b200, gb200, b300, gb300, h200, h100, h100-sxm, h100-pcie, "
        "h100-nvl, a100, a100-40gb, a100-80gb-pcie, a100-80gb-sxm, l40s, rtx5090, mi300x, mi325x, mi355x, cpu, "
        "nvidia-gh200-480gb"
    )


def fake_gpu(monkeypatch, hip=None, **fields):
    properties = {
        "name": "NVIDIA H200",
        "major": 9,
        "minor": 0,
        "total_memory": 140 * GIB,
        "L2_cache_size": 60 * MIB,
        "multi_processor_count": 132,
        "uuid": "1234",
    }
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**properties | fields))
    monkeypatch.setattr(torch.version, "hip", hip)


def test_read_facts_of_an_nvidia_gpu(monkeypatch):
    fake_gpu(monkeypatch)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert read_facts("cuda") == read_facts("auto") == H200
    assert [facts.kind for facts in read_available()] == ["cuda", "cpu"]


def test_read_facts_of_an_amd_gpu(monkeypatch):
    fake_gpu(
        monkeypatch,
        hip="7.0",
        name="AMD Instinct MI300X",
        gcnArchName="gfx942:sramecc+:xnack-",
        L2_cache_size=4 * MIB,
        multi_processor_count=304,
    )
    facts = read_facts("cuda")
    assert facts.architecture == "gfx942"
    assert detect(facts).name == "mi300x"


def test_the_others_on_a_gpu_leave_out_this_process(monkeypatch):
    fake_gpu(monkeypatch)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(pids=(71, os.getpid(), 72)))
    assert read_facts("cuda") == replace(H200, others=(71, 72))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(pids=(os.getpid(),)))
    assert read_facts("cuda").others == ()


def test_a_device_that_others_use_is_refused_by_their_ids():
    with pytest.raises(UnavailableError) as error:
        refuse_shared(replace(H200, others=(71, 72)))
    assert str(error.value) == (
        "other processes use this NVIDIA H200 (process 71, 72) and would disturb every figure; "
        "end them, or measure beside them with --allow-others"
    )
    assert error.value.exit_code == 4


def test_read_facts_of_a_cpu(monkeypatch, tmp_path):
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n")
    for index, (level, size) in enumerate([("1", "32K"), ("2", "1024K"), ("3", "36M"), ("x", "1K"), ("4", "big")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(level + "\n")
        (folder / "size").write_text(size + "\n")
    (tmp_path / "index9").mkdir()  # a kernel that shows an entry and no file
    monkeypatch.setattr(facts, "CPU_INFO", cpu_info)
    monkeypatch.setattr(facts, "CPU_CACHES", tmp_path)
    read = read_facts("cpu")
    assert (read.kind, read.name, read.l2_bytes) == ("cpu", "Fast CPU @ 3 GHz", 36 * MIB)
    assert read.memory_bytes > 0
