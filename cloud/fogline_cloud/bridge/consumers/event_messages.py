"""Kafka records as messages for AMQP consumers: Eclipse Hono's properties, and CloudEvents in binary mode. Pure."""

import re
from collections.abc import Mapping

from fogline.amqp.wire import as_int
from fogline.documents.media_type import RESERVED
from fogline.message import Message
from fogline_cloud.kafka.committed_records import CommittedRecord

_NUMBERS = frozenset({"creation-time", "status", "ttd"})
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""A number that AMQP has a type for."""
_CLOUD_EVENT = "ce_"
_AMQP_PREFIX = "cloudEvents_"
"""Prefix of CloudEvents attributes (CloudEvents AMQP binding 1.0, section 3.1.3.1)."""
_OWN = "fogline_"
_AT_LEAST_ONCE = as_int(1)
"""Hono's property `qos`, of every event."""
_MAX_INT = 2**31


def properties_of(record: CommittedRecord) -> dict[str, str | int]:
    """Return the application properties of a record, by which consumers select. `ce_id` becomes `cloudEvents_id`."""
    found: dict[str, str | int] = {}
    for name, value in record.headers:
        text = value.decode("utf-8", "replace")
        if name.startswith(_CLOUD_EVENT):
            found[_AMQP_PREFIX + name.removeprefix(_CLOUD_EVENT)] = text
        elif not name.startswith(_OWN):
            found[name] = int(text) if name in _NUMBERS and _NUMBER.fullmatch(text) else text
    return found


def is_event(properties: Mapping[str, str | int]) -> bool:
    """Return True for an event of a device; other records are gateways' or bridges' own (gap records, dead letters, ...)."""
    return not str(properties.get("content-type", "")).startswith(RESERVED) and "device_id" in properties


def message_of(record: CommittedRecord, properties: Mapping[str, str | int], address: str) -> Message:
    """Return the message. `address`: that of the link, such as `telemetry/acme`."""
    content_type, created_ms, ttd_s = (properties.get(name) for name in ("content-type", "creation-time", "ttd"))
    hono: dict[str, str | int] = {"qos": _AT_LEAST_ONCE}
    if isinstance(ttd_s, int) and abs(ttd_s) < _MAX_INT:
        hono["ttd"] = as_int(ttd_s)
    return Message(
        body=record.value,
        to=address,
        message_id=str(properties.get("cloudEvents_id", f"{record.topic}/{record.partition}/{record.offset}")),
        content_type=None if content_type is None else str(content_type),
        created_ms=created_ms if isinstance(created_ms, int) else None,
        durable=True,
        properties={**{name: value for name, value in properties.items() if name != "content-type"}, **hono},
    )
