"""Large bodies beside the tables: folder `bodies`, with one folder for each body.

| object | content |
|---|---|
| `{day}/gateway={gateway}/{id}/000007` | chunk 7 of a body, as the gateway sent it. The day is that of the id |
| `{day}/gateway={gateway}/{id}/event` | written when the event came: its `dataref` |
| `ended/gateway={gateway}/{id}` | written when the gateway said that no event comes |

Every object has one content for ever, so that it does not matter how often, in which order, or by which worker it is written:
a body needs no assembly, and a flow that goes on after a kill needs no state of it. The chunks in the order of their names are
the body.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from fogline.address import is_identifier
from fogline.errors import Poison
from fogline.events.event import Event
from fogline.events.large_body import BodyChunk, BodyEnd, BodyRef, day_of, read_dataref
from fogline_cloud.flows.tables.files import TableFolder

EVENT = "event"
"""Name of the object beside the chunks of a body whose event has come."""
ENDED = "ended"
"""Folder of the names of bodies to which no event comes."""


class ChunkMissing(Exception):
    """A chunk of a body is not there yet, or not any more. The message says which."""


def bodies_in(tables: str, storage: dict[str, str]) -> TableFolder:
    """Return the folder of large bodies. `tables`: that of the tables."""
    return TableFolder(f"{tables.rstrip('/')}/bodies", storage)


class BodyFolder:
    """Writes and reads bodies. Raises `OSError` if the store is away."""

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        self._opened: Any = None

    @property
    def _system(self) -> Any:
        if self._opened is None:
            if "://" not in self._folder.path:
                Path(self._folder.path).mkdir(parents=True, exist_ok=True)
            self._opened = self._folder.file_system()
        return self._opened

    def keep(self, events: Iterable[Event]) -> None:
        """Write the chunks among these events, and note which bodies have their event or their end."""
        for event in events:
            if not is_identifier(event.gateway):  # a foreign record, which cannot have chunks
                continue
            with suppress(Poison):  # its row says that it is dead
                part = read_dataref(event.dataref or "")
                match part:
                    case BodyChunk():
                        self._write(chunk_path(event.gateway, part.id, part.number), event.data)
                    case BodyRef():
                        self._write(f"{body_path(event.gateway, part.id)}/{EVENT}", str(part).encode())
                    case BodyEnd():
                        self._write(f"{ENDED}/gateway={event.gateway}/{part.id}", str(part).encode())

    def chunks(self, event: Event) -> Iterator[bytes]:
        """Yield the body of an event in pieces. Raises `ChunkMissing`, and `Poison` (`bad-dataref`, `body-damaged`)."""
        ref = read_dataref(event.dataref or "")
        if not isinstance(ref, BodyRef) or not is_identifier(event.gateway):
            raise Poison("bad-dataref", f"event {event.id} refers to no body")
        found, size = hashlib.sha256(), 0
        for number in range(ref.chunks):
            data = self._read(chunk_path(event.gateway, ref.id, number))
            found.update(data)
            size += len(data)
            yield data
        if size != ref.size or found.hexdigest() != ref.sha256:
            raise Poison("body-damaged", f"body {ref.id} has {size} bytes with another SHA-256 than its event says")

    def has_event(self, event: Event) -> bool:
        """Return True if the body is known to belong to an event, and was not deleted since."""
        path = f"{body_path(event.gateway, read_dataref(event.dataref or '').id)}/{EVENT}"
        return bool(self._system.get_file_info(path).type is pafs.FileType.File)

    def _write(self, path: str, data: bytes) -> None:
        with self._system.open_output_stream(path, buffer_size=len(data) + 1) as out:  # else it passes on no bytes
            out.write(data)

    def _read(self, path: str) -> bytes:
        try:
            with self._system.open_input_file(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise ChunkMissing(f"chunk {path} is not there") from None


def body_path(gateway: str, body: str) -> str:
    """Return the folder of a body within that of all bodies."""
    return f"{day_of(body)}/gateway={gateway}/{body}"


def chunk_path(gateway: str, body: str, number: int) -> str:
    """Return the path of a chunk."""
    return f"{body_path(gateway, body)}/{number:06}"
