"""Decides which signed messages of a peer count, a gateway or a bridge, behind a router or a broker. Pure.

Beside its signature a message has properties: the epoch of the gateway's hello, and a number that the sender has given to no
other message of that epoch. So nothing counts twice, and nothing of an earlier connection or of another copy of an outbox does.
"""

import hmac
from typing import Any, Final

import msgspec

from fogline.commands.command import framed
from fogline.gateway.message_signature import GatewayName, MessageSigner, SignedKind, doubt_signature
from fogline.message import Message

CHALLENGE: Final = "challenge"
"""Application property of an answer to hello, and of the hello that answers it: so that each hello is new."""
CHALLENGE_S: Final = 30.0
"""Time for which a challenge may be answered."""
CERTIFICATE: Final = "certificate"
"""Application property of hello and of its answer: the sender's certificate, and those up to its authority's (PEM)."""
EPOCH: Final = "epoch"
NUMBER: Final = "message_number"
GATEWAY: Final = "gateway"
WINDOW: Final = 4096
"""A message that comes after so many later ones does not count."""


class Challenges:
    """Makes the challenges of one bridge, and knows them again without keeping any, so that nobody can use them up.

    `secret`: random bytes of this bridge's process.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, name: GatewayName, now_ns: int) -> str:
        """Return a challenge for a gateway's next hello. `now_ns`: of a monotonic clock, another one for each call."""
        return f"{now_ns:x}.{self._code(name, now_ns)}"

    def made_ns(self, name: GatewayName, challenge: object) -> int | None:
        """Return when a challenge was made, None if this bridge has not made it for this gateway."""
        time_text, _, code = challenge.partition(".") if isinstance(challenge, str) and challenge.isascii() else ("", "", "")
        try:
            made_ns = int(time_text, 16)
        except ValueError:
            return None
        own = f"{made_ns:x}" == time_text and hmac.compare_digest(code, self._code(name, made_ns))
        return made_ns if own else None

    def _code(self, name: GatewayName, made_ns: int) -> str:
        content = framed(name.tenant.encode(), name.gateway.encode(), b"%d" % made_ns)
        return hmac.new(self._secret, content, "sha256").hexdigest()[:32]


class NumberWindow:
    """The numbers that have come, of the last `WINDOW` ones (as RFC 4303 section 3.4.3)."""

    def __init__(self) -> None:
        self._highest = 0
        self._seen = 0  # bit n: number `_highest` - n has come

    def take(self, number: object) -> bool:
        """Note a number. Returns False if it has come before, may have, or is no number."""
        if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
            return False
        if number > self._highest:
            self._seen = (self._seen << min(number - self._highest, WINDOW) | 1) & ((1 << WINDOW) - 1)
            self._highest = number
            return True
        bit = 1 << self._highest - number
        if self._highest - number >= WINDOW or self._seen & bit:
            return False
        self._seen |= bit
        return True


class SignedIntake:
    """Decides which messages of one peer count in one epoch. `key`: the public key of its certificate, which was checked."""

    def __init__(self, name: GatewayName, epoch: str, key: Any) -> None:
        self.epoch = epoch
        self._name, self._key = name, key
        self._numbers = NumberWindow()

    def doubt(self, kind: SignedKind, message: Message) -> str | None:
        """Return why a message does not count, None if it does: then it counts this once."""
        if message.properties.get(EPOCH) != self.epoch:
            return "its epoch is not that of the last hello: it is of another connection, or of another copy of the outbox"
        if (why := doubt_signature(self._key, kind, self._name, message)) is not None:
            return why
        return None if self._numbers.take(message.properties.get(NUMBER)) else "it was sent before"


class SignedOutput:
    """Numbers and signs the messages of one side in one epoch."""

    def __init__(self, name: GatewayName, epoch: str, signer: MessageSigner) -> None:
        self._name, self._epoch, self._signer = name, epoch, signer
        self._number = 0

    def sign(self, kind: SignedKind, message: Message) -> tuple[int, Message]:
        """Return the message's number, and the message as it is sent."""
        self._number += 1
        own = {GATEWAY: self._name.gateway, EPOCH: self._epoch, NUMBER: self._number}
        numbered = msgspec.structs.replace(message, properties={**message.properties, **own})
        return self._number, self._signer.sign(kind, self._name, numbered)


class HelloJudge:
    """Decides which hellos count at one bridge. It keeps for a while when the challenge of each one was made."""

    def __init__(self, challenges: Challenges) -> None:
        self._challenges = challenges
        self._answered_ns: dict[GatewayName, int] = {}

    def challenge(self, name: GatewayName, now_ns: int) -> str:
        """Return a challenge for a gateway's next hello."""
        return self._challenges.make(name, now_ns)

    def doubt(self, name: GatewayName, message: Message, key: Any, now_ns: int) -> str | None:
        """Return why a hello does not count, None if it does: then no earlier one of its gateway does from now on.

        `key`: the public key of its certificate, which the caller has checked.
        """
        made_ns = self._challenges.made_ns(name, message.properties.get(CHALLENGE))
        if made_ns is None:
            return "it does not answer a challenge of this bridge"
        oldest_ns = now_ns - int(CHALLENGE_S * 1e9)
        if made_ns <= oldest_ns:
            return f"it answers a challenge of more than {CHALLENGE_S:.0f} s ago"
        if made_ns <= self._answered_ns.get(name, 0):
            return "it was sent before: a later hello has come, or this one"
        if (why := doubt_signature(key, SignedKind.HELLO, name, message)) is not None:
            return why
        self._answered_ns.pop(name, None)
        self._answered_ns[name] = made_ns
        while (first := next(iter(self._answered_ns))) != name and self._answered_ns[first] <= oldest_ns:
            del self._answered_ns[first]  # in the order of the hellos; its challenge is too old by now
        return None
