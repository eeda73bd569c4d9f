"""`normbwd judge FILE`: the cases, the verdict on each, and whether the code here is still what it was."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from harness import __version__
from harness.cases import NormCase
from harness.cases.suites import cases_of, parse_dtype, parse_norms, parse_shapes
from harness.defaults import BASELINE, OWN_IMPL
from harness.engine_version import ENGINE_VERSION
from harness.errors import UnavailableError, UsageError, name_hint
from harness.judge.children import ROOT, nursery
from harness.judge.trial import Courtroom, JudgeSettings
from harness.judge.verdict import CaseVerdict, FileVerdict, exit_code, gravest, that_count
from harness.records.reason_texts import sentence
from harness.records.reasons import Reason
from harness.worker import discovery

CODE = (".py", ".pyc", ".so", ".pth")
CODE_FOLDERS = ("harness", "impls", "reports", "tests")
SHAPES = {"cpu": "512x1024", "cuda": "8192x4096"}


def asked_cases(shapes: str | None, norm: str, dtype: str | None, on_gpu: bool) -> list[NormCase]:
    """The cases of the command line; raises UsageError."""
    device = "cuda" if on_gpu else "cpu"
    parsed = parse_dtype(dtype) if dtype else "bf16" if on_gpu else "fp32"
    return cases_of(parse_shapes(shapes or SHAPES[device]), parse_norms(norm), parsed, device=device)


def asked_peers(text: str | None, on_gpu: bool) -> list[str]:
    """The trusted implementations of the command line, the baseline first; raises UsageError for another name."""
    default = [BASELINE, OWN_IMPL] if on_gpu else [BASELINE]
    peers = list(dict.fromkeys(part.strip() for part in text.split(","))) if text else default
    known = [item.name for item in discovery.own()]
    unknown = [name for name in peers if name not in known]
    if unknown and not entry_points(group=discovery.ENTRY_POINT_GROUP):
        raise UsageError(f"--peers {','.join(unknown)}: no such implementation; {name_hint(unknown[0], known)}")
    return peers


def gpu_is_here() -> bool:
    """Whether there is a GPU, asked of another process: this one never touches it."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def judge(
    file: Path,
    cases: Sequence[NormCase],
    peers: Sequence[str],
    settings: JudgeSettings | None = None,
    say: Callable[[CaseVerdict], object] = lambda _: None,
    each_norm: bool = True,
) -> FileVerdict:
    """The verdict on a file; `say` gets that on each case as soon as it is known.

    Without `each_norm` a norm of which it supports no case does not count.
    """
    if file.suffix != ".py" or not file.is_file():
        raise UsageError(f"{file}: no such Python file; give the file of an adapter (docs/add-an-implementation.md)")
    if sys.platform != "linux":
        raise UnavailableError("judge: stops and watches processes as Linux alone can; run it there")
    before, content = code_hashes(), file.read_bytes()
    verdicts: list[CaseVerdict] = []
    name: str | None = None
    version: int | None = None
    device = ""
    with nursery() as opened:
        for case in cases:
            with Courtroom(opened, case, peers, settings or JudgeSettings()) as room:
                verdict = room.judge(file)
            device, name, version = room.device, name or room.heard.name or None, room.heard.version
            if changed := changed_files(before) + ([str(file)] if file.read_bytes() != content else []):
                reason = Reason("changed_code", {"files": changed[:8]})
                verdict = verdict.model_copy(update={"status": "tampered", "reason": reason, "speed": None})
            verdicts.append(verdict)
            say(verdict)
    status = gravest([verdict.status for verdict in (verdicts if each_norm else that_count(verdicts))])
    return FileVerdict(
        file=str(file),
        sha256=hashlib.sha256(content).hexdigest(),
        name=name,
        version=version,
        normbwd=__version__,
        engine=ENGINE_VERSION,
        device=device,
        status=status,  # pyright: ignore[reportArgumentType]
        exit_code=exit_code(status),
        cases=verdicts,
    )


def code_hashes() -> dict[str, str]:
    """Hashes of all code of this project, compiled files included, by path."""
    folders = [ROOT / name for name in CODE_FOLDERS]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in CODE and path.is_file()]
    files += [path for path in ROOT.glob("*") if path.suffix in CODE]
    return {str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def changed_files(before: dict[str, str]) -> list[str]:
    """The files whose code is another now, or that are gone or new."""
    after = code_hashes()
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def in_words(verdict: CaseVerdict) -> str:
    """A verdict on a case as lines for a console."""
    lines = [f"{verdict.key}: {verdict.status}"]
    if verdict.reason:
        lines.append(f"  why: {sentence(verdict.reason)}")
    if speed := verdict.speed:
        lines.append(
            f"  time: {speed.us.value:.1f} us ({speed.us.low:.1f} to {speed.us.high:.1f}), score {speed.score:.2f}"
        )
        lines += [
            f"  {each.value:.3f} times as fast as {name} ({each.low:.3f} to {each.high:.3f})"
            for name, each in speed.speedups.items()
        ]
    answers = verdict.answers
    lines.append(
        f"  answers: {answers.given} given, {answers.verified} compared with float64, {answers.repeated} repeated, "
        f"of which {answers.differing + answers.differing_in_new_process} differ"
    )
    if absent := [name for name, is_in_force in verdict.layers.items() if not is_in_force]:
        lines.append(f"  not in force here: {', '.join(absent)}")
    return "\n".join(lines)
