"""Lets parsers read large bodies: `event.body()`."""

import contextlib
from collections.abc import Iterator

from fogline.errors import Poison
from fogline.events.event import BODY_READER, Event
from fogline_cloud.flows.bodies.body_folder import BodyFolder, ChunkMissing
from fogline_cloud.flows.parsers import Retry


@contextlib.contextmanager
def reading_bodies(bodies: BodyFolder | None) -> Iterator[None]:
    """Let `event.body()` read from these bodies within the block, also in a child process that is forked there.

    It raises `Retry` if a chunk has not come yet, and `Poison` if the body was deleted (`body-gone`) or damaged.
    """
    if bodies is None:
        yield
        return

    def read(event: Event) -> bytes:
        try:
            return b"".join(bodies.chunks(event))
        except ChunkMissing as error:
            if bodies.has_event(event):
                raise Retry(f"{error}: it was lost at the gateway, or comes later") from None
            raise Poison("body-gone", f"{error}: the body is not kept any more") from None

    token = BODY_READER.set(read)
    try:
        yield
    finally:
        BODY_READER.reset(token)
