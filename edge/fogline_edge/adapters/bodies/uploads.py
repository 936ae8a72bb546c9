"""All large bodies that come at present, with their limits; and the end of those that a former run of the gateway began."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fogline.errors import Poison, SlowDown
from fogline.events.event import Arrival, Lane
from fogline.events.large_body import CHUNK_CONTENT_TYPE, UNFINISHED, BodyNote, decode_note, end_of_body, unfinished_key
from fogline_edge.adapters.bodies.upload import BodyUpload
from fogline_edge.adapters.port import Port
from fogline_edge.body_settings import BodySettings, largest_body

_log = logging.getLogger(__name__)


@dataclass
class BodyCounters:
    """Counters of large bodies. `uploads`: those that come now. `refused`: those that could not begin, by reason."""

    uploads: int = 0
    whole: int = 0
    given_up: int = 0
    bytes: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class BodyUploads:
    """Begins uploads. Used on the loop. `private`: returns the names of the rules that remove fields of such an event.

    `outbox_bytes`: limit of the outbox.
    """

    def __init__(
        self, port: Port, settings: BodySettings, outbox_bytes: int, private: Callable[[Arrival], Sequence[str]]
    ) -> None:
        self.port = port
        self.settings = settings
        self.counters = BodyCounters()
        self.most = largest_body(settings, outbox_bytes)
        self._private = private
        self._open: dict[BodyUpload, str] = {}  # until nothing of them waits for room: a full outbox must not gather them

    def end_former(self) -> None:
        """End the bodies that a former run of the gateway has not got whole. Call it once, before the first `begin`."""
        for key, value in self.port.kept(UNFINISHED).items():
            try:
                body, note = decode_note(key, value)
            except Poison as error:
                _log.warning("a note of a large body is damaged: %s; its chunks are deleted after tables.body_days", error)
                self._drop_note(key)
                continue
            begun = note or BodyNote(self.port.gateway, "bodies", "fogline", "telemetry")
            chunk = Arrival(
                device=begun.device,
                channel=begun.channel,
                lane=Lane.BULK,
                content_type=CHUNK_CONTENT_TYPE,
                data=b"",
                adapter=begun.adapter,
                type=begun.type,
            )
            self._end(end_of_body(chunk, body), key)

    def begin(self, event: Arrival, on_room: Callable[[], None], size: int) -> BodyUpload:
        """Begin a body. `event`: without data. `size`: in bytes, as far as it is known. `on_room`: see `BodyUpload`.

        Raises `Poison` (`too-big`, `private`) if the body cannot be stored, and `SlowDown` if too many bodies come.
        """
        if size > self.most:
            raise self._refused("too-big", f"a body has at most {self.most} bytes")
        if rules := self._private(event):
            why = f"rule {rules[0]} removes private fields of this event, and no rule reads a large body"
            raise self._refused("private", why)
        of_device = sum(each == event.device for each in self._open.values())
        if len(self._open) >= self.settings.max_uploads or of_device >= self.settings.max_device_uploads:
            raise SlowDown("too many large bodies come at this time", retry_after_s=10)
        upload = BodyUpload(self, event, on_room)
        self._open[upload] = event.device
        self.counters.uploads += 1
        return upload

    def _refused(self, reason: str, why: str) -> Poison:
        self.counters.refused[reason] = self.counters.refused.get(reason, 0) + 1
        return Poison(reason, why)

    def ended(self, upload: BodyUpload, *, whole: bool) -> None:
        """See `UploadOwner.ended`."""
        self.counters.uploads -= 1
        if whole:
            self.counters.whole += 1
            self.counters.bytes += upload.size
        else:
            self.counters.given_up += 1
            text = "a body of device %s was given up after %d bytes"
            _log.info(text, upload.event.device, upload.size, extra={"reason": "body-given-up"})

    def committed(self, upload: BodyUpload) -> None:
        """See `UploadOwner.committed`."""
        del self._open[upload]
        self._drop_note(unfinished_key(upload.id))

    def _end(self, end: Arrival, note: str) -> None:
        try:
            self.port.put(end, lambda _: self._drop_note(note))
        except SlowDown:
            self.port.when_room(lambda: self._end(end, note))

    def _drop_note(self, key: str) -> None:
        """Drop a note that the file has no more, because event or end is committed: the port has it in memory."""
        self.port.keep(key, None, lambda: None)
