"""The links of the lanes on one connection. A link that the bridge detaches is attached again after a pause.

Each lane has a link for its open stream. The backlog, closed streams with unsettled events, has a link with a smaller share.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fogline.amqp.backoff import Backoff
from fogline.amqp.driver import AmqpConnection
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
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.events.event import Lane
from fogline.message import Property
from fogline_edge.uplink.via.signed_sender import BatchSender

_STRICT = Share(strict=3)
SHARES = {
    Lane.REPLY: Share(strict=1),
    Lane.ALARM: Share(strict=2),
    Lane.TELEMETRY: Share(weight=16),
    Lane.BULK: Share(weight=4),
}
BACKLOG_SHARES = {Lane.REPLY: _STRICT, Lane.ALARM: _STRICT, Lane.TELEMETRY: Share(weight=4), Lane.BULK: Share(weight=1)}
NEEDS_HELLO = frozenset({NOT_FOUND, UNAUTHORIZED, LINK_STOLEN})
"""Conditions that need a new connection: the shard has moved, or this gateway is not wanted."""
RETRY_S = 1.0
"""Upper limit of the first pause before a link is attached again."""
CONDITION_RETRY_S = {RESOURCE_LIMIT: 5.0, MESSAGE_SIZE_EXCEEDED: 30.0, NOT_ALLOWED: 30.0}
"""The same, for some conditions of the detach."""

_log = logging.getLogger("fogline.uplink")


@dataclass(slots=True)
class _LaneLink:
    """One link of a lane. `may_attach` is set once a detached link may be attached again."""

    sender: BatchSender | None = None
    backoff: Backoff = field(default_factory=Backoff)
    may_attach: asyncio.Event = field(default_factory=asyncio.Event)


class LaneLinks:
    """Links to the address `target`, on a session of their own. Used on the loop. `epoch`: of the connection's hello.

    `capabilities`: asked of the address. `signed`: makes of a link and its lane one that signs, behind a router or a broker.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        target: str,
        epoch: str,
        capabilities: Sequence[str] = (),
        signed: Callable[[Sender, Lane], BatchSender] | None = None,
    ) -> None:
        self.epoch = epoch
        self._capabilities, self._signed = capabilities, signed
        self._connection = connection
        self._target = target
        self._session = connection.open_session()
        self._links: dict[str, _LaneLink] = {}
        for lane in Lane:
            self._attach(lane, lane.value, SHARES[lane])

    async def sender(self, lane: Lane, *, backlog: bool) -> BatchSender:
        """Return the open link of a lane; wait until a detached one may be attached again. `backlog`: for a closed stream."""
        name = f"{lane.value}-behind" if backlog else lane.value
        lane_link = self._links.get(name)
        if lane_link is not None and lane_link.sender is not None and lane_link.sender.closed:
            await lane_link.may_attach.wait()
        if lane_link is None or lane_link.sender is None or lane_link.sender.closed:
            return self._attach(lane, name, BACKLOG_SHARES[lane] if backlog else SHARES[lane])
        return lane_link.sender

    def detached(self, link: Link, condition: Condition | None, *, served: bool) -> bool:
        """Schedule a detached link. Returns False if the link needs a new connection instead.

        `served`: the bridge has settled an event on it, so the pause starts from its minimum.
        """
        lane_link = self._links.get(link.name)
        name = condition.name if condition else ""
        if lane_link is None or lane_link.sender is None or lane_link.sender.link is not link or name in NEEDS_HELLO:
            return False
        if served:
            lane_link.backoff.stable()
        lane_link.backoff.base_s = CONDITION_RETRY_S.get(name, RETRY_S)
        wait_s = lane_link.backoff.next_s()
        lane_link.may_attach.clear()
        asyncio.get_running_loop().call_later(wait_s, lane_link.may_attach.set)
        text, extra = "the bridge closed link %s: %s; retry in %.1f s", {"reason": name}
        _log.warning(text, link.name, condition or "no reason given", wait_s, extra=extra)
        return True

    def _attach(self, lane: Lane, name: str, share: Share) -> BatchSender:
        if not self._connection.is_session_open(self._session):
            self._session = self._connection.open_session()
        lane_link = self._links.setdefault(name, _LaneLink())
        properties: dict[str, Property] = {"lane": lane.value}
        made = self._connection.open_sender(
            self._session, name, self._target, share, properties, capabilities=self._capabilities
        )
        lane_link.sender = sender = made if self._signed is None else self._signed(made, lane)
        return sender
