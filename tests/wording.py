"""What a person reads of a reason, for tests of what is shown."""

from harness.records.reason_texts import sentence


def worded(reason):
    """The sentence of a reason; None of none, a list of a list."""
    if isinstance(reason, (list, tuple)):
        return [worded(each) for each in reason]
    return None if reason is None else sentence(reason)


def judged(row):
    """The status of a row or record, and its reason as a person reads it."""
    return row.status, worded(row.reason)
