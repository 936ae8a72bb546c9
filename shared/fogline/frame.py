"""Events that differ from one another in four attributes only: all else of their JSON is made once."""

import base64
from typing import NamedTuple

import msgspec

from fogline.codec import encode_event
from fogline.event import Event
from fogline.json_payload import is_bare_json, is_json_type


class Frame(NamedTuple):
    """An encoded event in the pieces between id, recordedtime, sequence and data. All but those four is in it."""

    before_id: bytes
    before_time: bytes
    before_sequence: bytes
    before_data: bytes
    before_base64: bytes
    as_json: bool


def frame_of(event: Event) -> Frame:
    """What `event` has in common with events that differ from it in id, recordedtime, sequence and data only.

    In JSON no string holds a bare quotation mark, so that the names of the four attributes are found where they are.
    """
    alike = msgspec.structs.replace(event, content_type="application/json", data=b"0")
    known, wanted = msgspec.json.encode("application/json"), msgspec.json.encode(event.content_type)
    head, rest = encode_event(alike).split(b'"id":"', 1)
    before_time, rest = rest.split(b'","source":', 1)[1].split(b'"recordedtime":"', 1)
    before_sequence, rest = rest.split(b'","datacontenttype":', 1)[1].replace(known, wanted, 1).split(b'"sequence":', 1)
    last = b',"lane":' + rest.split(b',"lane":', 1)[1].removesuffix(b'"data":0}')
    return Frame(
        head + b'"id":"',
        b'","source":' + before_time + b'"recordedtime":"',
        b'","datacontenttype":' + before_sequence + b'"sequence":',
        last + b'"data":',
        last + b'"data_base64":"',
        is_json_type(event.content_type),
    )


def encode_framed(parts: Frame, event_id: str, recordedtime: str, sequence: int, data: bytes) -> bytes:
    """The same bytes as `encode_event`, for an event that has no other attributes than those of `parts`."""
    before_id, before_time, before_sequence, before_data, before_base64, as_json = parts
    values = (before_id, event_id.encode(), before_time, recordedtime.encode(), before_sequence, sequence)
    if as_json and is_bare_json(data):
        return b"%b%b%b%b%b%d%b%b}" % (*values, before_data, data)
    return b'%b%b%b%b%b%d%b%b"}' % (*values, before_base64, base64.b64encode(data))
