"""JSON of events that differ in four attributes only: the rest is encoded once."""

import base64
from typing import NamedTuple

import msgspec

from fogline.documents.json_payload import is_bare_json, is_json_type
from fogline.events.codec import encode_event
from fogline.events.event import Event


class EventTemplate(NamedTuple):
    """The pieces of an encoded event around its id, recordedtime, sequence and data."""

    before_id: bytes
    before_time: bytes
    before_sequence: bytes
    before_data: bytes
    before_base64: bytes
    as_json: bool


def template_of(event: Event) -> EventTemplate:
    """Make the template of all events that differ from `event` only in id, recordedtime, sequence and data.

    No JSON string holds a bare quotation mark, so a search for the names of the four attributes finds the attributes only.
    """
    alike = msgspec.structs.replace(event, content_type="application/json", data=b"0")
    known, wanted = msgspec.json.encode("application/json"), msgspec.json.encode(event.content_type)
    head, rest = encode_event(alike).split(b'"id":"', 1)
    before_time, rest = rest.split(b'","source":', 1)[1].split(b'"recordedtime":"', 1)
    before_sequence, rest = rest.split(b'","datacontenttype":', 1)[1].replace(known, wanted, 1).split(b'"sequence":', 1)
    last = b',"lane":' + rest.split(b',"lane":', 1)[1].removesuffix(b'"data":0}')
    return EventTemplate(
        head + b'"id":"',
        b'","source":' + before_time + b'"recordedtime":"',
        b'","datacontenttype":' + before_sequence + b'"sequence":',
        last + b'"data":',
        last + b'"data_base64":"',
        is_json_type(event.content_type),
    )


def fill_template(parts: EventTemplate, event_id: str, recordedtime: str, sequence: int, data: bytes) -> bytes:
    """Return the bytes that `encode_event` gives for an event with the attributes of `parts` and these four."""
    before_id, before_time, before_sequence, before_data, before_base64, as_json = parts
    values = (before_id, event_id.encode(), before_time, recordedtime.encode(), before_sequence, sequence)
    if as_json and is_bare_json(data):
        return b"%b%b%b%b%b%d%b%b}" % (*values, before_data, data)
    return b'%b%b%b%b%b%d%b%b"}' % (*values, before_base64, base64.b64encode(data))
