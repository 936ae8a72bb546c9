"""Which gateway reaches a device: the one that last sent something of it. Shared by the shards' threads and the loop."""

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from fogline.codec import Batch
from fogline_cloud.sparse import Sparse

STAY_S = 30.0
"""For so long after its last event a device stays with its gateway, though another one hears it too."""
MAX_ROUTES = 200_000
"""Devices that are remembered, of all gateways."""
MAX_ROUTES_A_GATEWAY = 20_000

_log = logging.getLogger("fogline.routes")
_log.addFilter(Sparse())


@dataclass(slots=True)
class Route:
    """Through `gateway`, which was last heard from at `seen` (monotonic seconds).

    One that was only written down by an earlier owner of a shard has `seen` 0, and the time at which it was.
    """

    gateway: str
    seen: float
    written_ms: int = 0


class Routes:
    """By device, the one that was heard from last at the end. Reads are atomic and take no lock; writes take one.

    Beyond `MAX_ROUTES_A_GATEWAY` a gateway's own oldest route is forgotten, beyond `MAX_ROUTES` the oldest of all. A
    device without a route is not known until it is heard again.
    """

    def __init__(self) -> None:
        self._routes: OrderedDict[str, Route] = OrderedDict()
        self._of_gateway: dict[str, OrderedDict[str, None]] = {}
        self._lock = threading.Lock()

    def gateway_of(self, device: str) -> str | None:
        """The gateway that reaches `device`, if any is known."""
        route = self._routes.get(device)
        return route.gateway if route else None

    def learn(self, gateway: str, batch: Batch) -> list[str]:
        """Take a gateway's events into account; returns the devices whose route changed, to be written down."""
        now = time.monotonic()
        changed = []
        announced = {batch.places[event.source][1] for event in batch.objects if event.ttd}
        with self._lock:
            for device in {device for _, device in batch.places.values()} - {gateway}:
                route = self._routes.get(device)
                if route is not None and route.gateway == gateway:
                    route.seen = now
                    self._routes.move_to_end(device)
                    self._of_gateway[gateway].move_to_end(device)
                elif route is None or device in announced or now - route.seen > STAY_S:
                    self._put(device, Route(gateway, now))
                    changed.append(device)
        return changed

    def recall(self, device: str, gateway: str, written_ms: int) -> None:
        """What was written down by an earlier owner of a shard: the newest stands, until the device is heard."""
        with self._lock:
            known = self._routes.get(device)
            if known is None or (not known.seen and known.written_ms < written_ms):
                self._put(device, Route(gateway, 0.0, written_ms))

    def _put(self, device: str, route: Route) -> None:
        former = self._routes.get(device)
        if former is not None:
            self._unlist(device, former.gateway)
        self._routes[device] = route
        self._routes.move_to_end(device)
        own = self._of_gateway.setdefault(route.gateway, OrderedDict())
        own[device] = None
        if len(own) > MAX_ROUTES_A_GATEWAY:
            self._forget(next(iter(own)))
        elif len(self._routes) > MAX_ROUTES:
            self._forget(next(iter(self._routes)))

    def _forget(self, device: str) -> None:
        gateway = self._routes.pop(device).gateway
        self._unlist(device, gateway)
        _log.warning("gateway %s: too many devices; commands to those not heard for longest are refused", gateway)

    def _unlist(self, device: str, gateway: str) -> None:
        own = self._of_gateway[gateway]
        del own[device]
        if not own:
            del self._of_gateway[gateway]
