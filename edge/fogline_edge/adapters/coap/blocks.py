"""Bodies that come in blocks (RFC 7959, section 2.5), put together: pure, and bounded in number, size and time."""

from dataclasses import dataclass, field

from fogline_edge.adapters.coap.requests import Request
from fogline_edge.adapters.coap.wire import Code, Endpoint, Option, Refusal, uint

NO_TRANSFER = "no-transfer"
"""The reason of a `Refusal`: a block came, and nothing is here that it could go on from."""
RETRY_AFTER_S = 10
"""When a client may try again that could not begin, because too many bodies are under way."""

_Key = tuple[Endpoint, int, tuple[str, ...], tuple[tuple[str, str], ...], int | None, bytes | None]


@dataclass(slots=True)
class _Transfer:
    until_s: float
    body: bytearray = field(default_factory=bytearray)


class Transfers:
    """The bodies under way: at most `most` of up to `max_bytes`, each forgotten `timeout_s` after its last block."""

    def __init__(self, *, most: int, max_bytes: int, timeout_s: float) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._open: dict[_Key, _Transfer] = {}

    def __len__(self) -> int:
        return len(self._open)

    def feed(self, endpoint: Endpoint, request: Request, now_s: float) -> bytes | None:
        """The whole body, or `None` if more blocks are awaited.

        Raises `Refusal`: 4.13 with Size1, 4.08 for a gap, 4.00 for a block that is none, 5.03 for too many bodies.
        """
        block, payload = request.block1, request.payload
        offset = block.number * block.size if block else 0
        key = (endpoint, request.method, request.path, request.query, request.content_format, request.tag)
        if max(offset + len(payload), request.size1 or 0) > self._max_bytes:
            self._open.pop(key, None)
            raise Refusal(
                Code.REQUEST_ENTITY_TOO_LARGE,
                "too-big",
                f"a body may have {self._max_bytes} bytes",
                ((Option.SIZE1, uint(self._max_bytes)),),
            )
        if block is None:
            return payload
        if len(payload) > block.size or (block.more and len(payload) != block.size):
            raise Refusal(Code.BAD_REQUEST, "bad-block", "a block is not as long as it says")
        if offset == 0:
            self._open.pop(key, None)
            if not block.more:
                return payload
            self._begin(key, now_s)
        return self._append(key, offset, payload, more=block.more, now_s=now_s)

    def _begin(self, key: _Key, now_s: float) -> None:
        while self._open:
            stalest = min(self._open, key=lambda each: self._open[each].until_s)
            if self._open[stalest].until_s > now_s:
                break
            del self._open[stalest]
        if len(self._open) >= self._most:
            raise Refusal(
                Code.SERVICE_UNAVAILABLE,
                "too-many-transfers",
                f"{self._most} bodies are under way",
                ((Option.MAX_AGE, uint(RETRY_AFTER_S)),),
            )
        self._open[key] = _Transfer(now_s)

    def _append(self, key: _Key, offset: int, payload: bytes, *, more: bool, now_s: float) -> bytes | None:
        transfer = self._open.get(key)
        if transfer is None or (offset and transfer.until_s < now_s):
            self._open.pop(key, None)
            raise Refusal(Code.REQUEST_ENTITY_INCOMPLETE, NO_TRANSFER, "the blocks before this one are not here")
        body = transfer.body
        end = offset + len(payload)
        if offset > len(body) or (offset < len(body) and body[offset:end] != payload):
            raise Refusal(Code.REQUEST_ENTITY_INCOMPLETE, "gap", f"a block at {offset} after {len(body)} bytes")
        if offset == len(body):
            body += payload
        transfer.until_s = now_s + self._timeout_s
        if more:
            return None
        del self._open[key]
        if end != len(body):
            raise Refusal(Code.REQUEST_ENTITY_INCOMPLETE, "gap", f"the last block ends at {end}, of {len(body)} bytes")
        return bytes(body)
