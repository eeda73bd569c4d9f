"""The two ways a command can end early; each is one line for the reader and an exit code."""


class UsageError(Exception):
    """Bad usage or input: the message says what and how to mend it (exit code 2)."""

    exit_code = 2


class UnavailableError(Exception):
    """The environment cannot do what was asked, such as a device that is not here (exit code 4)."""

    exit_code = 4
