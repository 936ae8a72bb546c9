"""The lanes' links of one connection. One that the bridge detaches is attached again, it alone, after a while.

Of a lane there is one link for what is new, and, where closed streams wait, one for what stands behind it, on a smaller
share.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from fogline.amqp.driver import Connection
from fogline.amqp.events import Link
from fogline.amqp.outcome import (
    LINK_STOLEN,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Condition,
)
from fogline.amqp.reconnect import Backoff
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.event import Lane

SHARES = {
    Lane.REPLY: Share(strict=1),
    Lane.ALARM: Share(strict=2),
    Lane.TELEMETRY: Share(weight=16),
    Lane.BULK: Share(weight=4),
}
BEHIND = {
    Lane.REPLY: Share(strict=3),
    Lane.ALARM: Share(strict=3),
    Lane.TELEMETRY: Share(weight=4),
    Lane.BULK: Share(weight=1),
}
OF_THE_CONNECTION = frozenset({NOT_FOUND, UNAUTHORIZED, LINK_STOLEN})
"""Why a link alone cannot be attached again: the shard is elsewhere, or this gateway is not wanted. A new hello has to say."""
SLOWLY = {RESOURCE_LIMIT: 5.0, MESSAGE_SIZE_EXCEEDED: 30.0, NOT_ALLOWED: 30.0}
"""By the condition, for how long to wait at most after the first time, in seconds; any other: `RETRY_S`."""
RETRY_S = 1.0

_log = logging.getLogger("fogline.uplink")


@dataclass(slots=True)
class _Place:
    """A link, or where one is to be. `again`: when it may be attached; a detached link's."""

    sender: Sender | None = None
    backoff: Backoff = field(default_factory=Backoff)
    again: asyncio.Event = field(default_factory=asyncio.Event)


class Lanes:
    """Attaches to `target`, on a session of its own. Used on the loop."""

    def __init__(self, connection: Connection, target: str) -> None:
        self._connection = connection
        self._target = target
        self._session = connection.open_session()
        self._places: dict[str, _Place] = {}
        for lane in Lane:
            self._attach(lane, lane.value, SHARES[lane])

    async def sender(self, lane: Lane, *, behind: bool) -> Sender:
        """The link of a lane, as soon as it may be attached."""
        name = f"{lane.value}-behind" if behind else lane.value
        place = self._places.get(name)
        if place is not None and place.sender is not None and place.sender.closed:
            await place.again.wait()
        if place is None or place.sender is None or place.sender.closed:
            return self._attach(lane, name, BEHIND[lane] if behind else SHARES[lane])
        return place.sender

    def detached(self, link: Link, condition: Condition | None, *, served: bool) -> bool:
        """The bridge detached a link; whether it will be attached again, or else the connection is no good any more.

        `served`: something had been settled on it, so that earlier failures are forgotten.
        """
        place = self._places.get(link.name)
        name = condition.name if condition else ""
        if place is None or place.sender is None or place.sender.link is not link or name in OF_THE_CONNECTION:
            return False
        if served:
            place.backoff.stable()
        place.backoff.base_s = SLOWLY.get(name, RETRY_S)
        wait_s = place.backoff.next_s()
        place.again.clear()
        asyncio.get_running_loop().call_later(wait_s, place.again.set)
        _log.warning("lane %s was closed: %s; again in %.1f s", link.name, condition or "no reason given", wait_s)
        return True

    def _attach(self, lane: Lane, name: str, share: Share) -> Sender:
        if not self._connection.is_open(self._session):
            self._session = self._connection.open_session()
        place = self._places.setdefault(name, _Place())
        place.sender = self._connection.open_sender(self._session, name, self._target, share, {"lane": lane.value})
        return place.sender
