"""A run as JSON for dashboards of others, which keep one point a commit: times of the implementations that rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from harness.analysis.case_comparison import CaseComparison, Entry
from harness.analysis.comparison import Comparison
from harness.errors import UsageError
from reports import figures


def github_action_benchmark(comparison: Comparison) -> str:
    """What github-action-benchmark reads with `tool: customSmallerIsBetter`; a series is a case and implementation."""
    entries = [
        {
            "name": f"{case.case.key} {entry.impl}",
            "unit": "us",
            "value": entry.median_us,
            "range": f"± {figures.spread(entry.spread)} %",
            "extra": f"speedup over {comparison.baseline}: {figures.ratio_and_interval(entry.speedup)}",
        }
        for case, entry in ranked(comparison)
    ]
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"


def pytorch_hud(comparison: Comparison) -> str:
    """Records of PyTorch's benchmark database, schema v3: a latency in us for each process, and a speedup.

    The workflow that uploads them adds the repository, the branch and its own job. Raises UsageError where the file has
    no time at which the run started.
    """
    run = comparison.run
    try:
        started = datetime.fromisoformat(run.started_at)
    except ValueError as error:
        raise UsageError(f"the file says that its run started at {run.started_at!r}, which is no time") from error
    common = {
        "schema_version": "v3",
        "timestamp": int(started.timestamp()),
        "name": "normbwd",
        "head_sha": run.revision or "",
        "runners": [{"name": run.device.name, "type": run.device.profile, "gpu_info": run.device.name, "gpu_count": 1}],
        "dependencies": {name: {"version": version} for name, version in run.libraries.items()},
    }
    records = [
        common
        | {
            "benchmark": {"name": "normbwd", "mode": "bwd", "dtype": case.case.dtype},
            "model": {"name": case.case.key, "type": "fused op", "backend": entry.impl},
            "inputs": {"x": {"dtype": case.case.dtype, "extra_info": {"shape": f"{case.case.rows}x{case.case.cols}"}}},
            "metric": {"name": name, "benchmark_values": values},
        }
        for case, entry in ranked(comparison)
        for name, values in _metrics(case, entry).items()
    ]
    return json.dumps(records, indent=1, allow_nan=False) + "\n"


def ranked(comparison: Comparison) -> Iterator[tuple[CaseComparison, Entry]]:
    return ((case, entry) for case in comparison.cases for entry in case.ranked)


def _metrics(case: CaseComparison, entry: Entry) -> dict[str, Any]:
    speedup = {"speedup": [entry.speedup.value]} if entry.speedup else {}
    return {"latency_us": case.joined[entry.impl, "impl"].medians_us, **speedup}
