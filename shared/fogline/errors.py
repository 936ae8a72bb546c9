"""Errors by the reaction that they ask for.

    FoglineError
    ├── SlowDown        the same thing may be tried again later
    ├── Poison          the same thing will never be taken; nothing else is affected
    ├── Unreachable     the other side is not there; reconnect with back-off
    └── Misconfigured   a person has to change something; a command line exits with status 2

Foreign exceptions are mapped to these once, at the border where they appear.
"""


class FoglineError(Exception):
    """Base of everything that Fogline raises on purpose. Its text is one line for a person to read."""


class SlowDown(FoglineError):
    """There is no room, credit or quota at present.

    `retry_after_s`: when to try again, in seconds.
    """

    def __init__(self, what: str, *, retry_after_s: float = 5.0) -> None:
        super().__init__(what)
        self.retry_after_s = retry_after_s


class Poison(FoglineError):
    """This input can never be taken.

    `reason` is a short, stable word for counters and dead letters (`too-big`, `bad-address`, `malformed`, ...).
    """

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason


class Unreachable(FoglineError):
    """The peer cannot be reached or went away. What was in flight is unknown."""


class Misconfigured(FoglineError):
    """What is wrong and what to do about it, in one line: shown to a person as it is."""
