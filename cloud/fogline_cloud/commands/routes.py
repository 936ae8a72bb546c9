"""Which gateway reaches a device: the one that last sent something of it. Shared by the shards' threads and the loop."""

import time
from dataclasses import dataclass

from fogline.codec import Batch

STAY_S = 30.0
"""For so long after its last event a device stays with its gateway, though another one hears it too."""


@dataclass(slots=True)
class Route:
    """Through `gateway`, which was last heard from at `seen` (monotonic seconds).

    One that was only written down by an earlier owner of a shard has `seen` 0, and the time at which it was.
    """

    gateway: str
    seen: float
    written_ms: int = 0


class Routes:
    """By device. Reads and single writes are atomic: no lock."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def gateway_of(self, device: str) -> str | None:
        """The gateway that reaches `device`, if any is known."""
        route = self._routes.get(device)
        return route.gateway if route else None

    def learn(self, gateway: str, batch: Batch) -> list[str]:
        """Take a gateway's events into account; returns the devices whose route changed, to be written down."""
        now = time.monotonic()
        changed = []
        announced = {batch.places[event.source][1] for event in batch.objects if event.ttd}
        for device in {device for _, device in batch.places.values()} - {gateway}:
            route = self._routes.get(device)
            if route is not None and route.gateway == gateway:
                route.seen = now
            elif route is None or device in announced or now - route.seen > STAY_S:
                self._routes[device] = Route(gateway, now)
                changed.append(device)
        return changed

    def recall(self, device: str, gateway: str, written_ms: int) -> None:
        """What was written down by an earlier owner of a shard: the newest stands, until the device is heard."""
        known = self._routes.get(device)
        if known is None or (not known.seen and known.written_ms < written_ms):
            self._routes[device] = Route(gateway, 0.0, written_ms)
