"""The large body of one connection's present PUBLISH: stored as it comes."""

import asyncio
from functools import partial
from typing import Protocol

import msgspec

from fogline.errors import Poison, SlowDown
from fogline.events.event import Receipt
from fogline_edge.adapters.bodies.upload import BodyUpload
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.mqtt.protocol.primitives import Reason
from fogline_edge.adapters.mqtt.session.ack_order import PendingAck
from fogline_edge.adapters.mqtt.session.effects import StoreBody

RETRY_S = 1.0
"""Time after which a body for which there was no room is begun again. Meanwhile the connection is not read."""
_CODES = {"too-big": Reason.PACKET_TOO_LARGE, "no-room": Reason.QUOTA_EXCEEDED}


class BodyControl(Protocol):
    """The connection, as its large bodies see it."""

    def hold_body(self, *, held: bool) -> None:
        """Read no more of the body, or read on."""

    def refuse_body(self, code: Reason, why: str) -> None:
        """End the connection: the body cannot be stored."""

    def committed(self, pending: PendingAck, receipt: Receipt) -> None:
        """Acknowledge a message that is durable."""


class BodyReader:
    """Used on the loop. Without `bodies` none may begin."""

    def __init__(self, bodies: BodyUploads | None, control: BodyControl) -> None:
        self._bodies = bodies
        self._control = control
        self._upload: BodyUpload | None = None
        self._pending: PendingAck | None = None
        self._retry: asyncio.TimerHandle | None = None

    @property
    def most(self) -> int:
        """The largest body, in bytes; 0: none."""
        return 0 if self._bodies is None else self._bodies.most

    def begin(self, effect: StoreBody) -> None:
        """Begin a body, as soon as there is room for it."""
        self._retry = None
        assert self._bodies is not None
        event = msgspec.structs.replace(effect.arrival, data=b"")
        try:
            self._upload = self._bodies.begin(event, partial(self._control.hold_body, held=False), effect.size)
        except SlowDown:
            self._control.hold_body(held=True)
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._begin_again, effect)
            return
        except Poison as error:
            self._refuse(error)
            return
        self._pending = effect.pending
        self.add(effect.arrival.data, last=False)

    def add(self, data: bytes, *, last: bool) -> None:
        """Add bytes of the body. `last`: it is whole. Ignored for a message that is not stored."""
        upload, pending = self._upload, self._pending
        if upload is None or pending is None:
            return
        try:
            upload.write(data)
            if last:
                upload.finish(partial(self._control.committed, pending))
        except SlowDown as error:
            self._refuse(Poison("no-room", str(error)))
        except Poison as error:
            self._refuse(error)
        else:
            if last:
                self._upload = self._pending = None
            elif upload.crowded:
                self._control.hold_body(held=True)

    def give_up(self) -> None:
        """End a body that does not come whole."""
        upload, self._upload, self._pending = self._upload, None, None
        if self._retry is not None:
            self._retry.cancel()
        if upload is not None:
            upload.give_up()

    def _begin_again(self, effect: StoreBody) -> None:
        self.begin(effect)
        if self._retry is None and self._upload is not None and not self._upload.crowded:
            self._control.hold_body(held=False)

    def _refuse(self, error: Poison) -> None:
        self.give_up()
        code = _CODES.get(error.reason, Reason.IMPLEMENTATION_SPECIFIC)
        self._control.refuse_body(code, f"a large body cannot be stored ({error.reason}): {error}")
