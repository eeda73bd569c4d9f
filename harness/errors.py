"""The two ways a command can end early, each one line and an exit code; and an adapter's late refusal."""


class UsageError(Exception):
    """Bad usage or input: the message says what and how to mend it (exit code 2)."""

    exit_code = 2


class UnavailableError(Exception):
    """The environment cannot do what was asked, such as a device that is not here (exit code 4)."""

    exit_code = 4


class UnsupportedError(Exception):
    """A case that an adapter finds out it cannot run only while it prepares; the message says why."""
