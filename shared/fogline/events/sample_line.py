"""Lines of files with sample events, for trials of parsers and rules: one JSON object in each line. Pure."""

import base64
import binascii
import codecs
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Misconfigured
from fogline.events.event import parse_rfc3339


class SampleLine(msgspec.Struct, forbid_unknown_fields=True):
    """One event. It has its body either as text (`body`) or in base64 (`base64`), and `topic` and `subject` are the same."""

    topic: str | None = None
    subject: str | None = None
    content_type: str = "application/octet-stream"
    body: str | None = None
    base64: str | None = None
    device: str = "device-1"
    type: str = "telemetry"
    adapter: str = "mqtt"
    gateway: str = ""
    time: str | None = None
    recordedtime: str | None = None
    properties: str | None = None

    def __post_init__(self) -> None:
        if self.topic is not None and self.subject is not None:
            raise ValueError("give topic or subject, they are the same")
        if (self.body is None) == (self.base64 is None):
            raise ValueError("give the body either as body (text) or as base64")

    @property
    def channel(self) -> str:
        """The channel of the device."""
        return self.topic or self.subject or ""

    @property
    def data(self) -> bytes:
        """The body. Raises `ValueError` if the base64 is wrong."""
        if self.body is not None:
            return self.body.encode()
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except binascii.Error as error:
            raise ValueError(f"base64: {error}") from None


Line = TypeVar("Line", bound=SampleLine)


def read_lines(path: str, content: bytes, kind: type[Line]) -> Iterator[tuple[str, Line]]:
    """Yield each line of a file's `content` with its place, `path:number`. Raises `Misconfigured`, which names the place."""
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            given = msgspec.json.decode(line, type=kind)
            _ = given.data
            for time in filter(None, (given.time, given.recordedtime)):
                parse_rfc3339(time)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise Misconfigured(f"{where}: {explained(error, kind)}") from None
        yield where, given
