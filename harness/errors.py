"""The errors that end a command early, each with one line and an exit code; and an adapter's late refusal."""

import difflib
import re
from collections.abc import Iterable

CLOSE_WORDS = 0.75  # how alike a first word must be, of 1: more than a whole name, as it is shorter


class UsageError(Exception):
    """Bad usage or input: the message says what and how to mend it (exit code 2)."""

    exit_code = 2


class UnavailableError(Exception):
    """The environment cannot do what was asked, such as a device that is not here (exit code 4)."""

    exit_code = 4


class UnsupportedError(Exception):
    """An adapter refuses a case only as it prepares it; the message says why."""


def printable(text: str) -> str:
    """Text without line breaks, terminal escapes, and characters that turn its direction: each run is a space."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+", " ", text)


def close_name(name: str, names: Iterable[str]) -> str | None:
    """The known name that an unknown one is closest to, as a whole or by its first word, if any is close."""
    names = list(names)
    by_first_word = {known.partition("-")[0]: known for known in reversed(names)}
    whole = difflib.get_close_matches(name, names, 1)
    words = difflib.get_close_matches(name, list(by_first_word), 1, cutoff=CLOSE_WORDS)
    (closest,) = difflib.get_close_matches(name, [*whole, *words], 1) or [None]
    return by_first_word[closest] if closest in words and closest not in whole else closest


def name_hint(name: str, names: Iterable[str], otherwise: str = "choose among") -> str:
    """The hint after an unknown name: the closest known name, or `otherwise` and all of them."""
    names = list(names)
    close = close_name(name, names)
    return f"did you mean {close}?" if close else f"{otherwise} {', '.join(names)}"
