"""Orders to parse events again that were not parsed, in the tables' folder: the running flow carries them out.

    _redrives/FLOW/orders/00000000000000000001.json   put by whoever orders
    _redrives/FLOW/ends/00000000000000000001.json     put by the flow, once it is done or cannot be

A flow that is killed between the two carries the order out again: each event lands once (`fogline_cloud.flows.replay`).
"""

import logging

import msgspec

from fogline.errors import Unreachable
from fogline.events.event import rfc3339
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.object_folder import ObjectFolder, numbered

FOLDER = "_redrives"
"""Folder within the tables' folder."""
_ORDERS, _ENDS = "orders", "ends"
_TRIES = 20

log = logging.getLogger(__name__)


class RedriveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to parse again. Times in milliseconds since 1970; None selects every event."""

    number: int = 0
    at_ms: int
    who: str
    outcomes: list[str]
    since_ms: int | None = None
    reason: str | None = None
    parser: str | None = None

    @property
    def text(self) -> str:
        """The order in words, for the audit."""
        given = {"reason": self.reason, "parser": self.parser}
        named = [f"{name} {value}" for name, value in given.items() if value is not None]
        if self.since_ms is not None:
            named.append(f"since {rfc3339(self.since_ms * 1_000_000)}")
        return ", ".join([f"outcome {' or '.join(self.outcomes)}", *named])


class RedriveEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order. `outcomes`: events that are different now, such as `dead -> ok`. `why`: it could not be done."""

    at_ms: int
    selected: int = 0
    changed: int = 0
    outcomes: dict[str, int] = {}
    why: str = ""


class RedriveOrders:
    """The orders for the flow of these settings. Thread-safe. Raises `Unreachable` and `Misconfigured`, as the store does."""

    def __init__(self, settings: CloudSettings) -> None:
        self._folder = ObjectFolder(settings, f"{settings.flow.tables.rstrip('/')}/{FOLDER}/{settings.flow.name}")

    def put(self, order: RedriveOrder) -> RedriveOrder:
        """Put an order behind the others, and return it with its number."""
        for _ in range(_TRIES):
            given = msgspec.structs.replace(order, number=max(self._folder.numbers(_ORDERS), default=0) + 1)
            path, data = numbered(_ORDERS, given.number), msgspec.json.encode(given)
            if self._folder.put(path, data) or self._folder.get(path) == data:
                return given  # the second: the answer to the put was lost, and the client has repeated it
        raise Unreachable(f"{self._folder.place}: other orders came first {_TRIES} times")

    def newest(self, count: int) -> list[tuple[RedriveOrder, RedriveEnd | None]]:
        """Return the newest orders with their ends, the newest first."""
        found = [(self._order(number), self._end(number)) for number in self._folder.numbers(_ORDERS)[: -count - 1 : -1]]
        return [(order, end) for order, end in found if order is not None]

    def waiting(self) -> list[RedriveOrder]:
        """Return the orders that wait, the oldest first."""
        numbers = sorted({*self._folder.numbers(_ORDERS)} - {*self._folder.numbers(_ENDS)})
        return [order for order in map(self._order, numbers) if order is not None]

    def has(self, number: int) -> bool:
        """Return True if there is an order with this number: one question to the store."""
        return self._folder.get(numbered(_ORDERS, number)) is not None

    def last(self) -> int:
        """Return the number of the newest order, 0 if there is none."""
        return max(self._folder.numbers(_ORDERS), default=0)

    def end(self, number: int, end: RedriveEnd) -> None:
        """Say what came of an order. What was said first counts."""
        self._folder.put(numbered(_ENDS, number), msgspec.json.encode(end))

    def _order(self, number: int) -> RedriveOrder | None:
        data = self._folder.get(numbered(_ORDERS, number))
        try:
            return None if data is None else msgspec.json.decode(data, type=RedriveOrder)
        except msgspec.MsgspecError as error:
            log.warning("%s/%s is passed over: %s", self._folder.place, numbered(_ORDERS, number), error)
            return None

    def _end(self, number: int) -> RedriveEnd | None:
        data = self._folder.get(numbered(_ENDS, number))
        try:
            return None if data is None else msgspec.json.decode(data, type=RedriveEnd)
        except msgspec.MsgspecError:
            return RedriveEnd(at_ms=0, why="what came of it cannot be read")
