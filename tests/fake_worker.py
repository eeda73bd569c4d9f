"""What stands in for a worker process."""


class Ready:
    """A worker whose `events` lie ready, one for each `receive`; an exception is raised, a function called."""

    def __init__(self, *events):
        self.events = list(events)
        self.waited_s = []

    def receive(self, timeout_s):
        self.waited_s.append(timeout_s)
        event = self.events.pop(0)
        if callable(event):
            event = event()
        if isinstance(event, BaseException):
            raise event
        return event
