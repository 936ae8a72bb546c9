"""How a peer logs in, as a value: SASL's mechanisms, user and password."""

from enum import Enum, auto

import msgspec

ANONYMOUS, EXTERNAL, PLAIN = "ANONYMOUS", "EXTERNAL", "PLAIN"


class Login(msgspec.Struct, frozen=True):
    """How a peer proves its name: the mechanism, and for PLAIN a user name and a password."""

    mechanism: str = ANONYMOUS
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user!r})"  # a password stands in no log and no traceback


class LoginVerdict(Enum):
    """The outcome of a password's check. `BUSY`: it was not checked, and says nothing about the password."""

    ACCEPTED = auto()
    REFUSED = auto()
    BUSY = auto()
