"""The body of an event as the file stores it: its CloudEvents JSON, compressed with a dictionary of what all events share.

Each row can be read alone, also from a damaged file. Its checksum tells whether it is sound. 473 bytes typically take 126.
"""

import threading

import zstandard

from fogline.errors import Poison

_PACKED = b"\x01"
"""The first byte of a compressed body, which names the dictionary. A body that begins with `{` is stored as it is."""
_DICTIONARY = (
    b'{"n":1,"t":21.5,"value":0,"temperature":20.0,"humidity":50.0,"battery":100,"state":"ON","time":"'
    b'"timequality":"unsynced","dedup":"strong","dedup":"good","adapter":"coap","adapter":"ble","data_base64":"'
    b'application/octet-stream","type":"alarm","lane":"alarm","lane":"bulk","properties":"'
    b'{"specversion":"1.0","id":".1.","source":"/default/devices/","type":"telemetry","subject":"telemetry",'
    b'"recordedtime":"2026-01-01T00:00:00.000000Z","datacontenttype":"application/json","gateway":"gw-1","stream":"",'
    b'"sequence":1,"lane":"telemetry","timequality":"synced","dedup":"weak","adapter":"mqtt","data":{"'
)
_WITH = zstandard.ZstdCompressionDict(_DICTIONARY, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
_WITH.precompute_compress(level=1)
_GAP = b'{"specversion":"1.0","id":"gap-'
MAX_BYTES = 8 * 1024 * 1024  # more than any event has


class _PerThread(threading.local):
    """A compressor and a decompressor for each thread: they keep state between calls."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=1, dict_data=_WITH, write_checksum=True, write_dict_id=False).compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=_WITH).decompress


_local = _PerThread()


def pack_body(body: bytes) -> bytes:
    """Return the body as it is stored. A gap record stays as it is, for a query."""
    if body.startswith(_GAP):
        return body
    packed = _PACKED + _local.compress(body)
    return packed if len(packed) < len(body) else body


def unpack_body(stored: object) -> bytes:
    """Return the body of a stored one. Raises `Poison('malformed')`, also if damage made it a value that is no BLOB."""
    if not isinstance(stored, bytes):
        raise Poison("malformed", "a stored event is no BLOB")
    if not stored.startswith(_PACKED):
        return stored
    try:
        if zstandard.frame_content_size(stored[1:]) > MAX_BYTES:
            raise Poison("malformed", "a stored event is larger than any event")
        return _local.decompress(stored[1:])
    except zstandard.ZstdError as error:
        raise Poison("malformed", f"a stored event cannot be decompressed: {error}") from None
