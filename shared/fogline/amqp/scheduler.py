"""Which lane's bytes go onto the connection next. Pure: no sockets, no clock.

Proton frames whatever it was given, first come first served: a small command behind a large backlog would wait for
all of it. So nothing is handed over before the connection can take it, and then one chunk at a time; before each
chunk this scheduler picks the lane. Strict lanes come first, in their order; the others share by weight (each lane
has a virtual time that advances by bytes / weight, the one furthest behind goes next), so none starves.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Token = TypeVar("Token", bound=Hashable)

CHUNK_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class Share:
    """A lane's place: `strict` (0 first) comes before every weight; `None` shares by `weight`."""

    strict: int | None = None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Chunk(Generic[Token]):
    """The next bytes of a message. `first` and `last` mark its ends."""

    lane: str
    token: Token
    data: memoryview
    first: bool
    last: bool


@dataclass(slots=True)
class _Lane(Generic[Token]):
    name: str
    share: Share
    waiting: deque[tuple[Token, memoryview]] = field(default_factory=deque)
    credit: int = 0
    sent: int = 0  # bytes of the message at the front that are on their way
    virtual: float = 0.0

    @property
    def ready(self) -> bool:
        return bool(self.waiting) and (self.sent > 0 or self.credit > 0)


class Scheduler(Generic[Token]):
    """Messages wait per lane in the order in which they were offered."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._lanes: dict[str, _Lane[Token]] = {}
        self._virtual = 0.0

    def add(self, lane: str, share: Share) -> None:
        """Begin to serve a lane. It has no credit yet."""
        self._lanes[lane] = _Lane(lane, share)

    def remove(self, lane: str) -> list[Token]:
        """Stop serving a lane; the tokens of what it still held come back."""
        gone = self._lanes.pop(lane, None)
        return [token for token, _ in gone.waiting] if gone else []

    def offer(self, lane: str, token: Token, message: bytes) -> None:
        """Queue one message (not empty) on a lane that was added."""
        entry = self._lanes[lane]
        if not entry.waiting:
            entry.virtual = max(entry.virtual, self._virtual)
        entry.waiting.append((token, memoryview(message)))

    def set_credit(self, lane: str, credit: int) -> None:
        """How many messages the receiver takes from now on."""
        if lane in self._lanes:
            self._lanes[lane].credit = credit

    def waiting(self, lane: str) -> int:
        """How many messages of the lane are not wholly handed over."""
        return len(self._lanes[lane].waiting) if lane in self._lanes else 0

    def next(self, may_send: Callable[[str], bool] = lambda _: True) -> Chunk[Token] | None:
        """The next chunk, of a lane that has a message, credit to begin it, and `may_send`; `None` if there is none."""
        ready = [lane for lane in self._lanes.values() if lane.ready and may_send(lane.name)]
        if not ready:
            return None
        return self._take(min(ready, key=_precedence))

    def _take(self, lane: _Lane[Token]) -> Chunk[Token]:
        token, message = lane.waiting[0]
        first = lane.sent == 0
        data = message[lane.sent : lane.sent + self._chunk_bytes]
        lane.sent += len(data)
        last = lane.sent == len(message)
        if first:
            lane.credit -= 1
        if last:
            lane.waiting.popleft()
            lane.sent = 0
        if lane.share.strict is None:
            self._virtual = lane.virtual
            lane.virtual += len(data) / lane.share.weight
        return Chunk(lane.name, token, data, first, last)


def _precedence(lane: _Lane[Token]) -> tuple[int, float]:
    strict = lane.share.strict
    return (1_000_000, lane.virtual) if strict is None else (strict, 0.0)
