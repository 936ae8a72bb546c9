"""Block-wise transfer with Block1 (RFC 7959, section 2.5). Pure, and bounded in number, size and time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from fogline.errors import Poison, SlowDown
from fogline.transport.byte_budget import ByteAccount, ByteBudget
from fogline_edge.adapters.bodies.stored_body import StoredBody
from fogline_edge.adapters.coap.requests import Request
from fogline_edge.adapters.coap.wire import Code, Endpoint, Option, RequestRefused, uint

NO_TRANSFER = "no-transfer"
"""Reason of a `RequestRefused`: a block arrived that continues no transfer."""
RETRY_AFTER_S = 10
"""Max-Age of the 5.03 for a client that cannot begin because too many transfers are under way."""

Stored = TypeVar("Stored", bound=StoredBody)
_Key = tuple[Endpoint, str, int, tuple[str, ...], tuple[tuple[str, str], ...], int | None, bytes | None]


@dataclass(slots=True)
class _Transfer(Generic[Stored]):
    """`size`: bytes so far. `body`: these, or none once they are `stored`. `last`: the last block."""

    until_s: float
    account: ByteAccount
    body: bytearray = field(default_factory=bytearray)
    size: int = 0
    stored: Stored | None = None
    last: bytes = b""

    def has(self, offset: int, payload: bytes) -> bool:
        """Return True if this block came before. Of a stored body, only the last one is known."""
        if self.stored is None:
            return self.body[offset : offset + len(payload)] == payload
        return offset + len(payload) == self.size and payload == self.last


class BlockTransfers(Generic[Stored]):
    """Transfers under way: at most `most`, each forgotten `timeout_s` after its latest block.

    A body of up to `max_bytes` is held. `begin` begins to store a larger one, of up to `max_stored_bytes`: it gets the
    request, the bytes so far, and the sender. It raises `RequestRefused` and `SlowDown`.
    """

    def __init__(
        self,
        budget: ByteBudget,
        begin: Callable[[Request, bytes, str], Stored],
        *,
        most: int,
        max_bytes: int,
        max_stored_bytes: int,
        timeout_s: float,
    ) -> None:
        self._store = begin
        self._limit_bytes = max(max_bytes, max_stored_bytes)
        self._budget = budget
        self._most = most
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._open: dict[_Key, _Transfer[Stored]] = {}

    def feed(self, endpoint: Endpoint, request: Request, now_s: float, sender: str = "") -> bytes | Stored | None:
        """Return the whole body, or where it is stored; `None` if blocks are to come.

        `sender`: as in `Exchange`, so that no block without protection gets into a protected body.
        Raises `RequestRefused` (4.13 with Size1, 4.08, 4.00, 5.03), and as `begin`.
        """
        block, payload = request.block1, request.payload
        offset = block.number * block.size if block else 0
        key = _key(endpoint, sender, request)
        if max(offset + len(payload), request.size1 or 0) > self._limit_bytes:
            self._forget(key)
            raise too_big(self._limit_bytes)
        if block is None:
            return payload
        if len(payload) > block.size or (block.more and len(payload) != block.size):
            raise RequestRefused(Code.BAD_REQUEST, "bad-block", "the payload is not as long as the block size")
        if offset == 0:
            self._forget(key)
            if not block.more:
                return payload
            self._begin(key, now_s)
        transfer = self._append(key, offset, request, now_s)
        if block.more:
            return None
        end, stored = offset + len(payload), transfer.stored
        whole = end == transfer.size
        self._forget(key, give_up=not whole)
        if not whole:
            raise RequestRefused(
                Code.REQUEST_ENTITY_INCOMPLETE, "gap", f"the last block ends at {end} of {transfer.size} bytes"
            )
        return bytes(transfer.body) if stored is None else stored

    def stored(self, endpoint: Endpoint, request: Request, sender: str = "") -> Stored | None:
        """Return where the body of this request is stored, if blocks of it are to come."""
        transfer = self._open.get(_key(endpoint, sender, request))
        return None if transfer is None else transfer.stored

    def _begin(self, key: _Key, now_s: float) -> None:
        while self._open:
            stalest = min(self._open, key=lambda each: self._open[each].until_s)
            if self._open[stalest].until_s > now_s:
                break
            self._forget(stalest)
        if len(self._open) >= self._most:
            raise _too_many(f"{self._most} block-wise transfers are under way")
        account = self._budget.open(key[0][0], partial(self._forget, key))
        account.admit(key[0][0])  # there is no login in CoAP
        self._open[key] = _Transfer(now_s, account)

    def _append(self, key: _Key, offset: int, request: Request, now_s: float) -> _Transfer[Stored]:
        payload = request.payload
        transfer = self._open.get(key)
        if transfer is None or (offset and transfer.until_s < now_s):
            self._forget(key)
            raise RequestRefused(Code.REQUEST_ENTITY_INCOMPLETE, NO_TRANSFER, "the blocks before this one are missing")
        if offset > transfer.size or (offset < transfer.size and not transfer.has(offset, payload)):
            raise RequestRefused(Code.REQUEST_ENTITY_INCOMPLETE, "gap", f"a block at {offset} after {transfer.size} bytes")
        if offset == transfer.size:
            try:
                self._add(transfer, request, key[1])
            except (RequestRefused, SlowDown):
                self._forget(key)
                raise
            transfer.size += len(payload)
            transfer.last = payload
        transfer.until_s = now_s + self._timeout_s
        return transfer

    def _add(self, transfer: _Transfer[Stored], request: Request, sender: str) -> None:
        size, payload = transfer.size + len(request.payload), request.payload
        if transfer.stored is None and size <= self._max_bytes:
            if not transfer.account.hold(size):
                raise _too_many("there is no room for this body")
            transfer.body += payload
            return
        if transfer.stored is None:
            begun, transfer.body = bytes(transfer.body), bytearray()
            transfer.stored = self._store(request, begun, sender)
            self._write(transfer.stored, begun)
        self._write(transfer.stored, payload)

    def _write(self, stored: Stored, data: bytes) -> None:
        try:
            stored.write(data)
        except Poison as error:
            if error.reason == "too-big":
                raise too_big(self._limit_bytes) from None
            raise RequestRefused(Code.REQUEST_ENTITY_INCOMPLETE, error.reason, str(error)) from None

    def _forget(self, key: _Key, *, give_up: bool = True) -> None:
        transfer = self._open.pop(key, None)
        if transfer is not None:
            transfer.account.close()
            if give_up and transfer.stored is not None:
                transfer.stored.give_up()


def _key(endpoint: Endpoint, sender: str, request: Request) -> _Key:
    return (endpoint, sender, request.method, request.path, request.query, request.content_format, request.tag)


def too_big(most_bytes: int, reason: str = "too-big", why: str = "") -> RequestRefused:
    """Return the error for a body of more bytes, with the largest one in Size1 (RFC 7959, section 2.9.3)."""
    size1 = ((Option.SIZE1, uint(most_bytes)),)
    return RequestRefused(Code.REQUEST_ENTITY_TOO_LARGE, reason, why or f"a body has at most {most_bytes} bytes", size1)


def _too_many(why: str) -> RequestRefused:
    max_age = ((Option.MAX_AGE, uint(RETRY_AFTER_S)),)
    return RequestRefused(Code.SERVICE_UNAVAILABLE, "too-many-transfers", why, max_age)
