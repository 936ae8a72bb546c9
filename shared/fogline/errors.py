"""Errors, by the reaction that they need.

    FoglineError
    ├── SlowDown        try the same input again later
    ├── Poison          never try this input again; other input is not affected
    ├── Unreachable     the peer is gone; reconnect with back-off
    │   └── NotSent     and it has no byte of this message
    └── Misconfigured   the user has to change something; a command line exits with status 2

Exceptions of libraries are mapped to these once, by the module that calls the library.
"""


class FoglineError(Exception):
    """Base of the errors that Fogline raises on purpose. The text is one line for the user."""


class SlowDown(FoglineError):
    """There is no room, credit or quota now. `retry_after_s`: seconds until the next attempt."""

    def __init__(self, what: str, *, retry_after_s: float = 5.0) -> None:
        super().__init__(what)
        self.retry_after_s = retry_after_s


class Poison(FoglineError):
    """This input can never be accepted. `reason`: a short, stable word for counters and dead letters (`too-big`, ...)."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason


class Unreachable(FoglineError):
    """The peer cannot be reached, or has gone. The outcome of everything in flight is unknown."""


class NotSent(Unreachable):
    """The peer is gone, and no byte of the message was given to the connection: the peer cannot have it."""


class Misconfigured(FoglineError):
    """The user has to change something. The text is one line: the error, and the remedy."""
