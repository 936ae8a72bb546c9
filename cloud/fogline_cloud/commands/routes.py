"""The gateway that reaches each device: the one where the device was last. Shared by the shards' threads and the loop.

Only what the device itself has sent counts, and its announcement that it takes commands. A gateway's own reports about the
device do not: the end of a command, or that the device has left.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from fogline.events.codec import Batch
from fogline.process.kernel_clock import wall_clock_ms
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

    A claim that was not read back from Kafka by `due_s` is written again: its transaction may have failed. `listens`: the
    device takes commands there until further notice.
    """

    gateway: str
    seen_s: float
    written_ms: int
    due_s: float = math.inf
    listens: bool = False


class Routes:
    """Routes by device, in the order of their last events. Thread-safe: reads are atomic and take no lock.

    All bridges read each other's claims, and the newest claim of a device counts. A bridge claims a device for a gateway of its
    own only if it has not just been claimed for another, or if the device takes commands there. While a device listens at one
    gateway and is heard there, a poll at another one does not move it.

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
        with self._lock:
            for device, sign in _signs(batch, gateway).items():
                route, ttd = self._routes.get(device), sign.ttd or 0
                if route is not None and route.gateway == gateway:
                    self._confirm(device, route, sign, now)
                    if now > route.due_s:
                        route.due_s = now + STAY_S
                        changed.append(device)
                elif sign.heard and _moves(route, ttd, now):
                    newest_ms = route.written_ms if route is not None else 0
                    self._put(device, Route(gateway, now, max(wall_clock_ms(), newest_ms + 1), now + STAY_S, ttd < 0))
                    changed.append(device)
        return changed

    def _confirm(self, device: str, route: Route, sign: "_Sign", now: float) -> None:
        if sign.heard:
            route.seen_s = now
        if sign.ttd is not None and sign.ttd <= 0:
            route.listens = sign.ttd < 0
        self._routes.move_to_end(device)
        self._by_gateway[route.gateway].move_to_end(device)

    def written_ms(self, device: str) -> int:
        """Return the time of a device's claim, for its record."""
        route = self._routes.get(device)
        return route.written_ms if route is not None else wall_clock_ms()

    def recall(self, device: str, gateway: str, written_ms: int) -> None:
        """Take a claim that any bridge has stored, unless a newer one is known."""
        age_s = max(0, wall_clock_ms() - written_ms) / 1000
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


class _Sign(NamedTuple):
    """What a batch says about a device. `heard`: the device has sent something. `ttd`: the last one of its events."""

    heard: bool = False
    ttd: int | None = None


def _signs(batch: Batch, gateway: str) -> dict[str, _Sign]:
    """Return the devices of a batch, except the gateway itself and those of which only commands have ended."""
    found: dict[str, _Sign] = {}
    for event in batch.objects:
        device = batch.devices[event.source][1]
        if device != gateway and event.commandid is None:
            former = found.get(device, _Sign())
            found[device] = _Sign(former.heard or event.ttd != 0, former.ttd if event.ttd is None else event.ttd)
    return found


def _moves(route: Route | None, ttd: int, now: float) -> bool:
    """Return True if a device that another gateway has heard moves there. `ttd`: 0 if it takes no commands there."""
    if route is None or ttd < 0 or now - route.seen_s > STAY_S:
        return True
    return ttd > 0 and not route.listens
