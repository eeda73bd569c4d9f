"""Where figures come from, in words: revisions, versions, and the GPUs of a fleet."""

from __future__ import annotations

import re
from collections import Counter

from harness.analysis.comparison import Comparison
from harness.records.run_records import RunRecord
from reports import figures
from reports.markdown_writer import escape

_HASH = re.compile(r" \(sha256:\w+\)")


def heading(title: str, *runs: RunRecord) -> str:
    """The first lines of a page about runs on one device: what it is about, and the revisions that measured."""
    revisions = dict.fromkeys(f"revision {run.revision or figures.NOTHING}, {run.started_at[:10]}" for run in runs)
    return f"# {title} on {escape(runs[0].device.name)}\n\nMeasured at {escape('; '.join(revisions))}."


def fleet(comparison: Comparison) -> str:
    """How many GPUs of how many hosts measured; empty where it was not a fleet."""
    if not comparison.gpus:
        return ""
    hosts = Counter(use.gpu.host for use in comparison.gpus)
    text = f"{figures.count(len(comparison.gpus), 'GPU')} of {figures.count(len(hosts), 'host')}"
    if shared := [host for host, gpus in hosts.items() if gpus > 1]:
        text += f"; those of {', '.join(shared)} measured at the same time"
    return text


def between_gpus(comparison: Comparison) -> str:
    """An addition to an interval across processes that ran on several GPUs; otherwise empty."""
    several = comparison.run.settings.processes > 1 and len(comparison.gpus) > 1
    return f" on {len(comparison.gpus)} GPUs, which holds the difference between GPUs too" if several else ""


def versions_text(versions: dict[str, str]) -> str:
    """Versions by library, in a line."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def without_hashes(text: str) -> str:
    """Versions without the hashes of their packages, which the results file has."""
    return _HASH.sub("", text)
