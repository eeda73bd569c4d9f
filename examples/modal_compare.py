"""Compares HEAD of the repository that you are in with a base, on a GPU that Modal rents out by the second.

    modal run examples/modal_compare.py --base main --impl kernels/adapter.py --impls my-kernel --shapes 8192x4096

What it leaves in runs/modal: results.jsonl and comment.md, which `gh pr comment --body-file` posts.
"""

import subprocess
import sys
from pathlib import Path

import modal

GATE = '[[regression]]\nhead = "{0}@head"\nbase = "{0}@base"\nminimum_effect = 0.02\n'
image = (
    modal.Image.debian_slim("3.12")
    .apt_install("git", "gcc", "libc6-dev")  # Triton compiles its launchers
    .pip_install("normbwd @ git+https://github.com/OWNER/normbwd@v1")  # and what your adapter needs
    .add_local_dir(".", "/repository")  # with .git: both revisions are checked out from it
)
app = modal.App("norm-backward", image=image)


@app.function(gpu="H100", timeout=3600)
def measure(arguments: list[str], impl: str, impls: str) -> tuple[int, dict[str, bytes]]:
    """The gate's exit code, and the files of the run."""
    out, chosen = Path("/run-of-normbwd"), ["--impl", impl]
    subprocess.run(["git", "config", "--global", "--add", "safe.directory", "/repository"], check=True)
    compare = ["normbwd", "compare", *chosen, "--impls", impls, *arguments, "--out", str(out)]
    code = subprocess.run(compare, cwd="/repository", check=False).returncode
    if code <= 1:  # a head that is wrong is the gate's to say
        (out / "gate.toml").write_text(GATE.format(impls))
        gate = ["normbwd", "gate", str(out / "results.jsonl"), "--config", str(out / "gate.toml"), "--confirm", *chosen]
        gate += ["--comment", str(out / "comment.md")]
        code = subprocess.run(gate, cwd="/repository", check=False).returncode
    return code, {path.name: path.read_bytes() for path in out.glob("*") if path.is_file()}


@app.local_entrypoint()
def main(impl: str, impls: str, shapes: str, base: str = "main", options: str = "") -> None:
    """Measure, and write the run's files here; `options` are more of `normbwd compare`."""
    code, files = measure.remote(["--base", base, "--shapes", shapes, *options.split()], impl, impls)
    folder = Path("runs/modal")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sys.exit(code)
