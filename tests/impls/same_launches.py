"""Prints the entries of results/same_launches.toml for what has changed since a revision.

    python -m tests.impls.same_launches REVISION

What was measured with that revision's adapters is launched by them and by those that are here; the files for which
that is the same are printed, the cases in which it is not are named on stderr. Run it with the Triton of
constraints.txt.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

import triton

from harness.analysis.sources import hash_of, is_own
from harness.analysis.staleness import _changes
from harness.records.file import load
from harness.records.published_plan import CHECKOUT, published_files
from tests.impls.launched_code import digest, launched

SHOWN = 3  # cases


def extract(revision, folder, *paths):
    """Write folders of a revision into a folder."""
    packed = subprocess.run(["git", "archive", revision, *paths], cwd=CHECKOUT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def concerned(then):
    """The published files that are stale for adapters alone that have changed since, by those adapters.

    Of a file that was gone on with by other code, those by which any of its rows was measured.
    """
    files = defaultdict(list)
    for device, name, path in published_files():
        results = load(path)
        codes = [sources or {} for sources, _ in results.by_code()]
        changed = [source for source, matters in _changes(results, CHECKOUT, None).items() if matters]
        if all(is_own(of) and any(code.get(of) == hash_of(of, then) for code in codes) for of in changed):
            for source in changed:
                files[source].append((device, name))
    return files


def entry(adapter, files, then):
    """The lines of one adapter."""
    was = hash_of(adapter, then)
    before, now = launched(adapter, files, then, was), launched(adapter, files, was=was)
    of_devices = defaultdict(list)
    for device, name in files:
        there, here = before[f"{device}/{name}"], now[f"{device}/{name}"]
        if there == here:
            of_devices[device].append(f'{name} = "{digest(there)}"')
        else:
            others = [case for case in there if there[case] != here.get(case)]
            told = f"{len(others)} of {len(there)} cases are launched otherwise, such as {', '.join(others[:SHOWN])}"
            print(f"{device}/{name}: {told}", file=sys.stderr)
    lines = ["", "[[change]]", f'adapter = "{adapter}"', f'was = "{was}"']
    lines += [f'now = "{hash_of(adapter)}"', 'because = "say why in one sentence"']
    for device, digests in of_devices.items():
        lines += [f"[change.files.{device}]", *digests]
    return lines


def main():
    (revision,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        extract(revision, folder, "impls")
        then = Path(folder)
        print(f'triton = "{triton.__version__}"')
        for adapter, files in concerned(then).items():
            print("\n".join(entry(adapter, files, then)), flush=True)


if __name__ == "__main__":
    main()
