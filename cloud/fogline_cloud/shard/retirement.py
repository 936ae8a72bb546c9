"""Forgets the streams that ended long ago. Pure.

Otherwise a shard would keep an entry for each stream that was ever opened. An old copy of an outbox may still hold the events
of such a stream. The bridge then answers its hello as for a new stream, but the gateway sees that the events are old, and
sends them marked `replayed` (`fogline.gateway.hello.resume`).
"""

from collections.abc import Collection

from fogline.gateway.hello import KNOWN_MS
from fogline_cloud.shard.admission import StreamKey, StreamState

INTERVAL_MS = 3_600_000
"""Time between two looks at all streams."""


class Retirement:
    """The streams of one shard that its gateways still have."""

    def __init__(self) -> None:
        self._announced: dict[str, Collection[str]] = {}
        self._next_ms = 0

    def announced(self, gateway: str, streams: Collection[str]) -> None:
        """Note the streams of a gateway's hello: those that it writes to, or that have unsettled events."""
        self._announced[gateway] = frozenset(streams)

    def retired(self, known: dict[StreamKey, StreamState], now_ms: int) -> tuple[list[StreamKey], list[StreamState]]:
        """Remove from `known` the streams that their gateway does not have any more and that last changed `KNOWN_MS` ago.

        Returns their keys, and the states whose time of the last change is not known: it is set to `now_ms`, and is to be
        saved. Does nothing if it was called less than `INTERVAL_MS` ago.
        """
        if now_ms < self._next_ms:
            return [], []
        self._next_ms = now_ms + INTERVAL_MS
        undated = [each for each in known.values() if not each.changed_ms]
        for each in undated:
            each.changed_ms = now_ms
        old = [key for key, each in known.items() if each.changed_ms <= now_ms - KNOWN_MS and self._has_ended(*key)]
        for key in old:
            del known[key]
        return old, undated

    def _has_ended(self, gateway: str, stream: str) -> bool:
        streams = self._announced.get(gateway)
        return streams is not None and stream not in streams
