"""Wills of clients whose connections have ended, until their delay is over (5: 3.1.3.2.2)."""

import asyncio
from dataclasses import dataclass, field

from fogline_edge.adapters.mqtt.hono.intake import ClientKey
from fogline_edge.adapters.mqtt.server.dispatch import Dispatch
from fogline_edge.adapters.mqtt.session.effects import LastWill


@dataclass(slots=True)
class DelayedWills:
    """At most `most` wills wait; a further one is published at once."""

    dispatch: Dispatch
    most: int
    _waiting: dict[ClientKey, tuple[asyncio.TimerHandle, LastWill]] = field(default_factory=dict)

    def add(self, key: ClientKey | None, will: LastWill) -> None:
        """Publish a will, now or after its delay."""
        if key is None or not will.delay_s or len(self._waiting) >= self.most:
            self.dispatch.publish_will(will)
            return
        timer = asyncio.get_running_loop().call_later(will.delay_s, self._due, key)
        self._waiting[key] = timer, will

    def reopened(self, key: ClientKey, *, resumed: bool) -> None:
        """Discard the will of a client that continues its session, and publish the will of a new session's client."""
        timer, will = self._waiting.pop(key, (None, None))
        if timer is not None and will is not None:
            timer.cancel()
            if resumed:
                self.dispatch.wills.give_back(will.cost)
            else:
                self.dispatch.publish_will(will)

    def close(self) -> None:
        """Publish all waiting wills."""
        for timer, will in self._waiting.values():
            timer.cancel()
            self.dispatch.publish_will(will)
        self._waiting.clear()

    def _due(self, key: ClientKey) -> None:
        self.dispatch.publish_will(self._waiting.pop(key)[1])
