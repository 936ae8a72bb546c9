"""The gateway that reaches each device: the one that sent its last event. Shared by the shards' threads and the loop."""

import logging
import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from fogline.codec import Batch
from fogline.process.log_throttle import LogThrottle

STAY_S = 30.0
"""A device stays with its gateway for this long after its last event there, even if another gateway sends its events too."""
MAX_ROUTES = 200_000
"""Devices to remember, of all gateways."""
MAX_ROUTES_A_GATEWAY = 20_000

_log = logging.getLogger("fogline.routes")
_log.addFilter(LogThrottle())


@dataclass(slots=True)
class Route:
    """A route through `gateway`, claimed at `written_ms` (wall clock), and last confirmed at `seen_s` (monotonic).

    A claim that was not read back from Kafka by `due_s` is written again: its transaction may have failed.
    """

    gateway: str
    seen_s: float
    written_ms: int
    due_s: float = math.inf


class Routes:
    """Routes by device, in the order of their last events. Thread-safe: reads are atomic and take no lock.

    All bridges read each other's claims, and the newest claim of a device counts. A bridge claims a device for a gateway of its
    own only if it has not just been claimed for another.

    Beyond `MAX_ROUTES_A_GATEWAY` the gateway's own oldest route is discarded; beyond `MAX_ROUTES`, the oldest of all.
    """

    def __init__(self) -> None:
        self._routes: OrderedDict[str, Route] = OrderedDict()
        self._by_gateway: dict[str, OrderedDict[str, None]] = {}
        self._lock = threading.Lock()

    def gateway_of(self, device: str) -> str | None:
        """Return the gateway that reaches `device`, if it is known."""
        route = self._routes.get(device)
        return route.gateway if route else None

    def learn(self, gateway: str, batch: Batch) -> list[str]:
        """Update the routes from a gateway's events. Return the devices whose route changed, to be stored."""
        now = time.monotonic()
        changed = []
        announced = {batch.devices[event.source][1] for event in batch.objects if event.ttd}
        with self._lock:
            for device in {device for _, device in batch.devices.values()} - {gateway}:
                route = self._routes.get(device)
                if route is not None and route.gateway == gateway:
                    route.seen_s = now
                    if now > route.due_s:
                        route.due_s = now + STAY_S
                        changed.append(device)
                    self._routes.move_to_end(device)
                    self._by_gateway[gateway].move_to_end(device)
                elif route is None or device in announced or now - route.seen_s > STAY_S:
                    newest_ms = route.written_ms if route is not None else 0
                    self._put(device, Route(gateway, now, max(_wall_ms(), newest_ms + 1), now + STAY_S))
                    changed.append(device)
        return changed

    def written_ms(self, device: str) -> int:
        """Return the time of a device's claim, for its record."""
        route = self._routes.get(device)
        return route.written_ms if route is not None else _wall_ms()

    def recall(self, device: str, gateway: str, written_ms: int) -> None:
        """Take a claim that any bridge has stored, unless a newer one is known."""
        age_s = max(0, _wall_ms() - written_ms) / 1000
        with self._lock:
            known = self._routes.get(device)
            if known is not None and known.gateway == gateway:
                known.written_ms = max(known.written_ms, written_ms)
                known.due_s = math.inf
            elif known is None or known.written_ms < written_ms:
                self._put(device, Route(gateway, time.monotonic() - age_s, written_ms))

    def _put(self, device: str, route: Route) -> None:
        former = self._routes.get(device)
        if former is not None:
            self._remove_from_gateway(device, former.gateway)
        self._routes[device] = route
        self._routes.move_to_end(device)
        own = self._by_gateway.setdefault(route.gateway, OrderedDict())
        own[device] = None
        if len(own) > MAX_ROUTES_A_GATEWAY:
            self._forget(next(iter(own)))
        elif len(self._routes) > MAX_ROUTES:
            self._forget(next(iter(self._routes)))

    def _forget(self, device: str) -> None:
        gateway = self._routes.pop(device).gateway
        self._remove_from_gateway(device, gateway)
        _log.warning("gateway %s has too many devices; commands to those that were silent for longest are refused", gateway)

    def _remove_from_gateway(self, device: str, gateway: str) -> None:
        own = self._by_gateway[gateway]
        del own[device]
        if not own:
            del self._by_gateway[gateway]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
