"""The last state that each device showed, for as many as there is room for. Pure."""

from collections import OrderedDict

MAX_STATES = 1024
MAX_STATE_BYTES = 4096


class LastStates:
    """The last payload of each topic, of the topics that changed last. A payload over `MAX_STATE_BYTES` is not kept."""

    def __init__(self) -> None:
        self._payloads: OrderedDict[str, bytes] = OrderedDict()

    def note(self, topic: str, payload: bytes) -> None:
        """Keep a payload."""
        self._payloads.pop(topic, None)
        if len(payload) <= MAX_STATE_BYTES:
            self._payloads[topic] = payload
            if len(self._payloads) > MAX_STATES:
                self._payloads.popitem(last=False)

    def get(self, topic: str) -> bytes:
        """Return the last payload of a topic, b"" if none is kept."""
        return self._payloads.get(topic, b"")
