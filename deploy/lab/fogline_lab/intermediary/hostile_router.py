"""A router in the hands of an enemy: it alters, replays, swaps, reorders, drops, forges, and forwards the rest."""

import random
from collections import Counter, deque

from fogline.amqp.wire import decode
from fogline.message import Message, Property
from fogline_lab.intermediary.mischief import MISCHIEFS, Mischief, Passed
from fogline_lab.intermediary.passage import Egress, Parcel
from fogline_lab.intermediary.router import Router
from fogline_lab.intermediary.routing import Routing

KEPT = 10_000
"""Messages that it keeps to send them again."""


class HostileRouting(Routing):
    """Does mischief to `share` of the messages, of the kinds in `kinds`, at addresses that begin with one of `places`.

    `done`: how often each kind was done. `passed`: the messages that came to this router. `impostor`: the gateway that a forged
    message names. `apart`: receivers of one address get only the answers to what they have said: none learns of another one.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.kinds: list[Mischief] = []
        self.places = ("",)
        self.share = 0.2
        self.impostor = "gw-2"
        self.apart = False
        self.done: Counter[Mischief] = Counter()
        self.passed: deque[Passed] = deque(maxlen=KEPT)
        self.random = random.Random(seed)
        self.held: dict[str, Parcel] = {}
        self._speakers: dict[Property, object] = {}

    def take(self, parcel: Parcel) -> None:
        """Do mischief to a whole message, or forward it."""
        if not parcel.complete:
            return
        if self.apart:
            self._note_speaker(parcel)
        kind = self._selected(parcel)
        self.passed.append(Passed(parcel.address, bytes(parcel.data)))
        if kind is None:
            self.pass_on(parcel)
        else:
            self.done[kind] += 1
            MISCHIEFS[kind](self, parcel)

    def inject(self, address: str, data: bytes) -> None:
        """Send a message of the router's own, for whose outcome nobody waits."""
        self.forward(Parcel(address, bytearray(data), complete=True))

    def replay(self, place: str = "") -> int:
        """Send again all that has come to addresses that begin with `place`. Returns the number of messages."""
        found = [each for each in self.passed if each.address.startswith(place)]
        for each in found:
            self.inject(each.address, each.data)
        return len(found)

    def truce(self) -> None:
        """Do no more mischief, and pass on what was held back."""
        self.kinds, self.apart = [], False
        held, self.held = self.held, {}
        for each in held.values():
            self.forward(each)

    def choose(self, parcel: Parcel, receivers: list[Egress]) -> Egress:
        """Select a receiver: with `apart`, the peer whose message this one answers."""
        if self.apart:
            for key in _names_of(decode(bytes(parcel.data))):
                mine = [each for each in receivers if each.socket is self._speakers.get(key)]
                if mine:
                    return mine[0]
        return super().choose(parcel, receivers)

    def _note_speaker(self, parcel: Parcel) -> None:
        if parcel.ingress is not None:
            for key in _names_of(decode(bytes(parcel.data))):
                self._speakers.setdefault(key, parcel.ingress.socket)

    def _selected(self, parcel: Parcel) -> Mischief | None:
        if not self.kinds or not parcel.address.startswith(self.places) or self.random.random() >= self.share:
            return None
        return self.random.choice(self.kinds)

    def pass_on(self, parcel: Parcel) -> None:
        """Forward a message, and after it one that was held back for it."""
        self.forward(parcel)
        if (held := self.held.pop(parcel.address, None)) is not None:
            self.forward(held)

    def addresses_like(self, address: str) -> list[str]:
        """Return the other addresses of the same kind that have a receiver."""
        kind = address.partition("/")[0]
        reachable = [each for each, links in self.links.at.items() if links.reachable]
        return [each for each in reachable if each != address and each.startswith(f"{kind}/")]


class HostileRouter(Router):
    """A router that an enemy runs. `enemy`: what it does."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        super().__init__()

    @property
    def enemy(self) -> HostileRouting:
        """The mischief of the present process."""
        assert isinstance(self.routing, HostileRouting)
        return self.routing

    def _new_routing(self) -> Routing:
        return HostileRouting(self._seed)


def _names_of(message: Message) -> list[Property]:
    """Return what ties an answer to the message that it answers: its epoch, and its correlation id."""
    found = (message.properties.get("epoch"), message.correlation_id)
    return [str(each) for each in found if each is not None]
