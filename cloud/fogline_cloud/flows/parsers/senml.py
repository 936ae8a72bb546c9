"""Parser `senml`: Sensor Measurement Lists in JSON (RFC 8428; a complete SensML list too), resolved (section 4.6).

A sum (`s`) is a reading of its own, `{name}.sum`, in unit times seconds. Binary data (`vd`) is a text in base64url.

More is accepted than the standard allows where devices need it: a record of base fields alone, and a name that begins with `/`,
as in LwM2M (OMA-TS-LightweightM2M, section 7.4.4). Not understood: a record that breaks another rule; the others are kept.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Poison
from fogline.events.event import Event, parse_rfc3339
from fogline_cloud.flows.parsers import Leftover, Reading
from fogline_cloud.flows.parsers.strict_json import loads

_NS = 1_000_000_000
_VERSION = 10
_RELATIVE_BELOW_S = 2**28  # a time below this is relative to now (section 4.5.3)
_MAX_TIME_S = 253_402_300_800  # the year 10000, beyond the range of a timestamp
_NAME = re.compile(r"[A-Za-z0-9/][A-Za-z0-9\-:./_]*")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}")


class _BaseFields(msgspec.Struct, frozen=True):
    """The base fields of one record, which hold for the records after it too."""

    bn: str | None = None
    bt: float | None = None
    bu: str | None = None
    bv: float | None = None
    bs: float | None = None
    bver: int | None = None


class _Record(_BaseFields, frozen=True):
    """One SenML record. Unknown labels are ignored (section 4.4) unless they end with `_`."""

    n: str | None = None
    u: str | None = None
    v: float | None = None
    vs: str | None = None
    vb: bool | None = None
    vd: str | None = None
    s: float | None = None
    t: float | None = None

    @property
    def is_base_alone(self) -> bool:
        """Return True if there are base fields and no others."""
        own = (self.n, self.u, self.v, self.vs, self.vb, self.vd, self.s, self.t)
        base = (self.bn, self.bt, self.bu, self.bv, self.bs, self.bver)
        return any(each is not None for each in base) and all(each is None for each in own)


class _Base(msgspec.Struct):
    """The base fields in force. A record may change them for itself and for the records after it."""

    name: str = ""
    time: float = 0.0
    unit: str | None = None
    value: float | None = None
    sum: float | None = None

    def take(self, record: _BaseFields) -> None:
        if record.bver is not None and record.bver > _VERSION:
            raise Poison("bad-version", f"SenML version {record.bver}; up to {_VERSION} is known")
        self.name = self.name if record.bn is None else record.bn
        self.time = self.time if record.bt is None else record.bt
        self.unit = self.unit if record.bu is None else record.bu
        self.value = self.value if record.bv is None else record.bv
        self.sum = self.sum if record.bs is None else record.bs


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. A relative time counts from the gateway's, and a time of 0 stands for the event's own time.

    Raises what `strict_json` does, and `Poison` (`malformed`, `must-understand`, `bad-version`) for the whole pack.
    """
    return resolved(loads(event.data), event)


def resolved(pack: Any, event: Event) -> Iterator[Reading | Leftover]:
    """Return the readings of a decoded pack with the labels of JSON, and name the rest. Raises `Poison` as `parse` does."""
    if not isinstance(pack, list) or not pack:
        raise Poison("malformed", "a SenML pack is an array of records")
    if any(isinstance(raw, dict) and any(label.endswith("_") for label in raw) for raw in pack):
        raise Poison("must-understand", "a label that ends with _ is not known, and must be understood")
    return _records(pack, parse_rfc3339(event.recordedtime) / _NS)


def _records(pack: list[Any], now_s: float) -> Iterator[Reading | Leftover]:
    base = _Base()
    for number, raw in enumerate(pack, 1):
        try:
            base.take(record := _decoded(raw))
            if isinstance(record, _Record):
                yield from _resolve(record, base, now_s)
            else:
                yield Leftover(f"record {number}", "a field has another type than SenML gives it")
        except msgspec.ValidationError as error:
            yield Leftover(f"records {number} to {len(pack)}", f"a base field cannot be read: {explained(error, _BaseFields)}")
            return
        except ValueError as error:
            yield Leftover(f"record {number}", str(error))


def _decoded(raw: Any) -> _BaseFields:
    """Return the record, or its base fields if others are wrong. Raises `msgspec.ValidationError` for a wrong base field."""
    if not isinstance(raw, dict):
        return _BaseFields()
    try:
        return msgspec.convert(raw, _Record)
    except (msgspec.ValidationError, OverflowError):
        pass
    try:
        return msgspec.convert(raw, _BaseFields)
    except OverflowError:
        raise msgspec.ValidationError("a number is too big for a double") from None


def _resolve(record: _Record, base: _Base, now_s: float) -> Iterator[Reading]:
    """Yield the readings of a record. Raises `ValueError` for what is not understood."""
    value, text = _value(record, base)
    total = None if record.s is None and base.sum is None else _finite((base.sum or 0.0) + (record.s or 0.0))
    if value is None and text is None and total is None:
        if record.is_base_alone:
            return
        raise ValueError("neither a value nor a sum")
    name = base.name + (record.n or "")
    if _NAME.fullmatch(name) is None:
        raise ValueError("its name must be of A-Z a-z 0-9 - : . / _ and begin with a letter, a digit or /")
    unit = record.u if record.u is not None else base.unit
    time_ns = _time(base.time + (record.t or 0.0), now_s)
    if value is not None or text is not None:
        yield Reading(name, value, text, unit, time_ns)
    if total is not None:
        yield Reading(f"{name}.sum", total, None, f"{unit}.s" if unit else None, time_ns)


def _value(record: _Record, base: _Base) -> tuple[float | None, str | None]:
    if sum(field is not None for field in (record.v, record.vs, record.vb, record.vd)) > 1:
        raise ValueError("more than one value")
    if record.v is not None:
        return _finite((base.value or 0.0) + record.v), None
    if record.vb is not None:
        return float(record.vb), None
    if record.vd is not None and _BASE64URL.fullmatch(record.vd) is None:
        raise ValueError("a data value is not base64url")
    text = record.vs if record.vs is not None else record.vd
    if text is None and record.s is None and base.value is not None:
        return _finite(base.value), None
    return None, text


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("a number is too big for a double")
    return number


def _time(seconds: float, now_s: float) -> int | None:
    if seconds == 0:
        return None
    absolute = seconds if seconds >= _RELATIVE_BELOW_S else now_s + seconds
    if not 0 <= absolute < _MAX_TIME_S:
        raise ValueError(f"a time of {seconds} s is out of range")
    return round(absolute * 1_000_000) * 1000
