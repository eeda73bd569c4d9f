"""The command line from its first import to its last exit handler: an interrupt ends it in one line."""

from __future__ import annotations

import signal
import sys
import time
from importlib import import_module

PATIENCE_S = 5.0  # in which a first interrupt closes files and writes the report
EXIT_CODE = 130


class Interrupts:
    """A handler of signals that raises KeyboardInterrupt once.

    Those that follow within PATIENCE_S would break off what the first one has begun: they change nothing.
    """

    def __init__(self) -> None:
        self._raised_s = -PATIENCE_S

    def __call__(self, *_: object) -> None:
        """Raise KeyboardInterrupt, unless that was done just now."""
        if time.monotonic() - self._raised_s >= PATIENCE_S:
            self._raised_s = time.monotonic()
            raise KeyboardInterrupt


def main() -> None:
    """Import the commands, which takes a second, and run what was typed."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, Interrupts())
    try:
        import_module("harness.__main__").main()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(EXIT_CODE)
    finally:  # Python ends; an exit handler would print a traceback
        signal.signal(signal.SIGINT, signal.SIG_IGN)
