"""The security contexts in use: their replay windows, and the gateway's own sequence numbers.

A window is only in memory. After a restart, and for a device that was forgotten, a first request is answered with a challenge
(Echo, RFC 9175), and the window begins at the request that answers it (RFC 8613, appendix B.1.2). So nothing that was recorded
before is accepted, whatever was lost in a power cut, and an event costs no write for its window.

Numbers of its own the gateway needs for challenges and notifications. It reserves them in the outbox before it uses one, and
they are never below the clock, so that a gateway that was restored from a backup does not use one twice.
"""

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from fogline.gateway.device_credentials import OSCORE_GATEWAY_ID
from fogline_edge.adapters.coap.dtls.replay_window import ReplayWindow
from fogline_edge.adapters.coap.oscore.context import OscoreInput, SecurityContext
from fogline_edge.adapters.coap.oscore.object_security import MAX_PIV_BYTES, ObjectSecurity, encode_piv
from fogline_edge.adapters.port import Port
from fogline_edge.credentials.credential_store import CredentialStore, OscoreOwner

MAX_CONTEXTS = 4096
"""Contexts in memory. The one that was quiet for longest is forgotten."""
RESERVED = 1024
"""Own numbers that are reserved at a time."""
MAX_WAITING = 16
"""Challenges that may wait for the first reserved numbers of a context."""
_LOW = RESERVED // 2
_KEPT = "oscore/"
_EPOCH_S = 1_577_836_800
"""The year 2020."""
_A_SECOND = 256
"""Own numbers that a context may use in a second for ever: 40 bits last for 136 years then."""
_MAC_BYTES = 8


class LiveContext:
    """One context. `window`: None before a device has answered a challenge."""

    __slots__ = ("bound", "device", "key_number", "next", "reserving", "secret", "security", "slot", "waiting", "window")

    def __init__(self, owner: OscoreOwner, gateway: str) -> None:
        self.device = owner.device
        self.key_number = owner.key.number
        self.slot = f"coap\0oscore\0{owner.device}\0{owner.key.number}\0".encode()  # of its requests' numbers
        key = owner.key
        self.security = SecurityContext(OscoreInput(key.secret, key.salt, OSCORE_GATEWAY_ID, key.device_id, gateway.encode()))
        self.window: ReplayWindow | None = None
        self.secret = secrets.token_bytes(16)
        self.next = self.bound = 0  # own numbers below `bound` are reserved
        self.reserving = False
        self.waiting: list[Callable[[], None]] = []

    def own_piv(self) -> bytes | None:
        """Return a number that was never used; None if none is reserved."""
        if self.next >= self.bound:
            return None
        self.next += 1
        return encode_piv(self.next - 1)

    def challenge(self, piv: bytes, content: bytes) -> bytes:
        """Return the Echo for a request: its Partial IV, and proof that this context made it for this content."""
        return piv + self._proof(piv, content)

    def challenged(self, echo: bytes, content: bytes) -> bytes | None:
        """Return the Partial IV of the request that got this Echo; None if this context did not make it for this content."""
        piv, proof = echo[:-_MAC_BYTES], echo[-_MAC_BYTES:]
        if not 1 <= len(piv) <= MAX_PIV_BYTES or not hmac.compare_digest(proof, self._proof(piv, content)):
            return None
        return piv

    def _proof(self, piv: bytes, content: bytes) -> bytes:
        return hmac.digest(self.secret, len(piv).to_bytes(1) + piv + content, "sha256")[:_MAC_BYTES]


class ContextTable:
    """The contexts of a gateway. `clock_s` returns seconds since 1970."""

    def __init__(self, port: Port, credentials: CredentialStore, clock_s: Callable[[], float] = time.time) -> None:
        self._port, self._credentials, self._clock_s = port, credentials, clock_s
        self._live: OrderedDict[tuple[str, int], LiveContext] = OrderedDict()
        self._bounds = {key: int.from_bytes(value) for key, value in port.kept(_KEPT).items()}

    def __len__(self) -> int:
        return len(self._live)

    @property
    def gateway(self) -> str:
        """The name of this gateway, which is the ID Context."""
        return self._port.gateway

    def find(self, option: ObjectSecurity) -> list[LiveContext]:
        """Return the contexts that a request may be sealed with: most often one, none for an unknown or revoked key."""
        if option.kid_context not in (None, self._port.gateway.encode()):
            return []
        return [self._context(each) for each in self._credentials.oscore(option.kid or b"")]

    def why_unknown(self, option: ObjectSecurity) -> str:
        """Return why `find` finds nothing."""
        if option.kid_context not in (None, self._port.gateway.encode()):
            return "the ID Context is not this gateway"
        return self._credentials.reasons.of_oscore(option.kid or b"")

    def of_device(self, device: str) -> LiveContext | None:
        """Return the context of a device's newest key; None if it has none of OSCORE."""
        owner = self._credentials.newest_oscore(device)
        return self._context(owner) if owner is not None else None

    def ended(self, device: str, number: int) -> None:
        """Forget a key that counts no longer."""
        self._live.pop((device, number), None)
        if self._bounds.pop(key := _key(device, number), None) is not None:
            self._port.keep(key, None, lambda: None)

    def when_reserved(self, live: LiveContext, call: Callable[[], None]) -> None:
        """Call `call` when the context has own numbers; never, if too many wait or the disk fails."""
        if live.next < live.bound:
            call()
        elif len(live.waiting) < MAX_WAITING:
            live.waiting.append(call)
        self.reserve(live)

    def reserve(self, live: LiveContext) -> None:
        """Reserve more own numbers, if few are left."""
        if live.reserving or live.bound - live.next >= _LOW:
            return
        live.reserving = True
        key = _key(live.device, live.key_number)
        lowest = live.bound or int((self._clock_s() - _EPOCH_S) * _A_SECOND)
        first = max(lowest, self._bounds.get(key, 0))
        bound = self._bounds[key] = first + RESERVED

        def reserved() -> None:
            live.reserving = False
            if live.next < live.bound:
                live.bound = bound
            else:
                live.next, live.bound = first, bound
            waiting, live.waiting = live.waiting, []
            for call in waiting:
                call()

        self._port.keep(key, bound.to_bytes(MAX_PIV_BYTES), reserved)

    def _context(self, owner: OscoreOwner) -> LiveContext:
        key = owner.device, owner.key.number
        live = self._live.get(key)
        if live is None:
            if len(self._live) >= MAX_CONTEXTS:
                self._live.popitem(last=False)
            live = self._live[key] = LiveContext(owner, self._port.gateway)
        else:
            self._live.move_to_end(key)
        return live


def _key(device: str, number: int) -> str:
    return f"{_KEPT}{device}/{number}"
