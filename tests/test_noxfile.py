"""What the sessions of noxfile.py leave to the commands that they call."""

from types import SimpleNamespace

import noxfile


def test_a_command_that_is_interrupted_has_time_to_end_its_file():
    """By default nox kills what it started half a second after Ctrl-C, and a run then has no end and no report."""
    calls = []
    session = SimpleNamespace(
        posargs=["--quick"],
        virtualenv=SimpleNamespace(is_sandboxed=False),
        run=lambda *command, **options: calls.append((command, options)),
    )
    noxfile._normbwd(session, "bench")
    ((command, options),) = calls
    assert command[1:] == ("-m", "harness", "bench", "--quick")
    assert options["interrupt_timeout"] >= 60
