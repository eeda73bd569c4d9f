"""A checkout with few published results, to write documents in."""

import bz2

from harness.cases import NormCase
from harness.devices.profiles import known_names
from harness.records.schema import ContextRecord
from tests.results_factory import careful, helpers, in_contexts, results, row

PLAN = """
[runs.timed]
about = "a few shapes"
bench = { shapes = "32768x1024" }

[runs.again]
about = "one of them once more"
bench = { shapes = "16384x2048" }

[runs.verified]
about = "on every kind of inputs"
verify = {}

[runs.later]
about = "what nobody had the time for"
bench = { shapes = "64x64" }

[pages."timed.md"]
of = ["timed"]
"""
TEXTS = {
    "README.md": "# Front\n\n<!-- written: fastest -->\n<!-- end -->\n\nThe rest.\n",
    "docs/results.md": "# Results\n\n<!-- written: tallies -->\n<!-- end -->\n\n<!-- written: runs -->\n<!-- end -->\n",
    "results/plan.toml": PLAN,
}
SHAPES = [(32768, 1024), (16384, 2048), (8192, 4096)]
CASES = [
    *(NormCase("rms", *shape) for shape in SHAPES),
    NormCase("rms", 8192, 4096, features=("residual",)),
    NormCase("layer", 4096, 4096, "fp16", "fp32", bias=True),
]


def make(checkout, devices=("h200",)):
    """Write the checkout, with the same results on each device; gives its folder."""
    for path, text in TEXTS.items():
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text, encoding="utf-8")
    for device in devices:
        for name, run in {"timed": timed(CASES), "again": timed(CASES[1:2], 1.5), "verified": careful()}.items():
            publish(run, checkout / f"results/{device}/{name}.jsonl.bz2", device)
    return checkout


def publish(run, path, device):
    """Write results as if they were of this device, of which no datasheet is known where it has no profile."""
    known = {"datasheet_gbps": 8000.0} if device in known_names() else {"datasheet_gbps": None, "driver": None}
    record = run.run.device.model_copy(update={"profile": device, "name": f"NVIDIA {device.upper()}"} | known)
    run_record = run.run.model_copy(update={"device": record})
    lines = [run_record, *run.selftests, *run.rows, *run.conditions, *run.sanitized, run.end]
    path.parent.mkdir(parents=True, exist_ok=True)
    with bz2.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(line.model_dump_json(exclude_none=True) + "\n" for line in lines)


def timed(cases, scale=1.0):
    """Results of these cases, alone and as a graph: each standing, and who is fastest differs from case to case."""
    rows = []
    for number, case in enumerate(cases, 1):
        us = scale * case.rows * case.cols / 2**20
        timed_rows = [
            row("torch-eager", 4 * us, case),
            row("triton-inhouse", 2 * us, case, shift=1),
            row("quack", (1.5 + number / 4) * us, case, status="nondeterministic", shift=2),
            *helpers(4 * us, 1.4 * us, case),
        ]
        rows += in_contexts(timed_rows, graph=1.1)
        refused = {"graph": ContextRecord(status="unsupported", reason="cannot be captured")}
        rows.append(row("liger", 3 * us, case, contexts=refused))
        rows.append(row("compiled", case=case, status="wrong", reason="dweight is off by rho 4.2"))
        rows.append(row("apex", case=case, status="missing", reason="not installed: apex"))
    return results(*rows, context="graph")
