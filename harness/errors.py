"""The errors that end a command early, each with one line and an exit code; and an adapter's late refusal."""

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """Bad usage or input: the message says what and how to mend it (exit code 2)."""

    exit_code = 2


class UnavailableError(Exception):
    """The environment cannot do what was asked, such as a device that is not here (exit code 4)."""

    exit_code = 4


class UnsupportedError(Exception):
    """An adapter refuses a case only as it prepares it; the message says why."""


def close_name(name: str, names: Iterable[str]) -> str | None:
    """The known name that an unknown one is closest to, if any is close."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def name_hint(name: str, names: Iterable[str], otherwise: str = "choose among") -> str:
    """The hint after an unknown name: the closest known name, or `otherwise` and all of them."""
    names = list(names)
    close = close_name(name, names)
    return f"did you mean {close}?" if close else f"{otherwise} {', '.join(names)}"
