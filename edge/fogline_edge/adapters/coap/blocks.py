"""Block-wise transfer with Block1 (RFC 7959, section 2.5). Pure, and bounded in number, size and time."""

from dataclasses import dataclass, field
from functools import partial

from fogline.transport.byte_budget import ByteAccount, ByteBudget
from fogline_edge.adapters.coap.requests import Request
from fogline_edge.adapters.coap.wire import Code, Endpoint, Option, RequestRefused, uint

NO_TRANSFER = "no-transfer"
"""Reason of a `RequestRefused`: a block arrived that continues no transfer."""
RETRY_AFTER_S = 10
"""Max-Age of the 5.03 for a client that cannot begin because too many transfers are under way."""

_Key = tuple[Endpoint, str, int, tuple[str, ...], tuple[tuple[str, str], ...], int | None, bytes | None]


@dataclass(slots=True)
class _Transfer:
    until_s: float
    account: ByteAccount
    body: bytearray = field(default_factory=bytearray)


class BlockTransfers:
    """Transfers under way: at most `most` of up to `max_bytes`, each forgotten `timeout_s` after its latest block."""

    def __init__(self, budget: ByteBudget, *, most: int, max_bytes: int, timeout_s: float) -> None:
        self._budget = budget
        self._most = most
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._open: dict[_Key, _Transfer] = {}

    def feed(self, endpoint: Endpoint, request: Request, now_s: float, sender: str = "") -> bytes | None:
        """Return the whole body, `None` if blocks are to come. Raises `RequestRefused` (4.13 with Size1, 4.08, 4.00, 5.03).

        `sender`: as in `Exchange`, so that no block without protection gets into a protected body.
        """
        block, payload = request.block1, request.payload
        offset = block.number * block.size if block else 0
        key = (endpoint, sender, request.method, request.path, request.query, request.content_format, request.tag)
        if max(offset + len(payload), request.size1 or 0) > self._max_bytes:
            self._forget(key)
            size1 = ((Option.SIZE1, uint(self._max_bytes)),)
            raise RequestRefused(Code.REQUEST_ENTITY_TOO_LARGE, "too-big", f"a body has at most {self._max_bytes} bytes", size1)
        if block is None:
            return payload
        if len(payload) > block.size or (block.more and len(payload) != block.size):
            raise RequestRefused(Code.BAD_REQUEST, "bad-block", "the payload is not as long as the block size")
        if offset == 0:
            self._forget(key)
            if not block.more:
                return payload
            self._begin(key, now_s)
        return self._append(key, offset, payload, more=block.more, now_s=now_s)

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

    def _append(self, key: _Key, offset: int, payload: bytes, *, more: bool, now_s: float) -> bytes | None:
        transfer = self._open.get(key)
        if transfer is None or (offset and transfer.until_s < now_s):
            self._forget(key)
            raise RequestRefused(Code.REQUEST_ENTITY_INCOMPLETE, NO_TRANSFER, "the blocks before this one are missing")
        body = transfer.body
        end = offset + len(payload)
        if offset > len(body) or (offset < len(body) and body[offset:end] != payload):
            raise RequestRefused(Code.REQUEST_ENTITY_INCOMPLETE, "gap", f"a block at {offset} after {len(body)} bytes")
        if offset == len(body):
            if not transfer.account.hold(len(body) + len(payload)):
                self._forget(key)
                raise _too_many("there is no room for this body")
            body += payload
        transfer.until_s = now_s + self._timeout_s
        if more:
            return None
        self._forget(key)
        if end != len(body):
            raise RequestRefused(Code.REQUEST_ENTITY_INCOMPLETE, "gap", f"the last block ends at {end} of {len(body)} bytes")
        return bytes(body)

    def _forget(self, key: _Key) -> None:
        transfer = self._open.pop(key, None)
        if transfer is not None:
            transfer.account.close()


def _too_many(why: str) -> RequestRefused:
    max_age = ((Option.MAX_AGE, uint(RETRY_AFTER_S)),)
    return RequestRefused(Code.SERVICE_UNAVAILABLE, "too-many-transfers", why, max_age)
