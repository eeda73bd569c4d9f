"""What stands in for a worker process."""


class Ready:
    """A worker whose `events` lie ready, one for each time that it is asked; an exception among them is raised."""

    def __init__(self, *events):
        self.events = list(events)

    def receive(self, timeout_s):
        event = self.events.pop(0)
        if isinstance(event, BaseException):
            raise event
        return event
