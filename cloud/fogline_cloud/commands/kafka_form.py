"""Responses in the form of Eclipse Hono's Command & Control API for Kafka. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from fogline.commands.command import CommandState
from fogline.events.event import Event, Lane, TimeQuality, rfc3339
from fogline.events.identity import semantic_id
from fogline.message import unpack_id
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.kafka.records import Headers

FAILURE_TYPE = "application/vnd.eclipse-hono-delivery-failure-notification+json"
"""Content type of a response that no device has given."""
_MAX_TEXT = 1024
_BY_DEVICE = (CommandState.SUCCEEDED, CommandState.FAILED)


class FailedCommand(msgspec.Struct, frozen=True):
    """What a notification needs of its command. `correlation`: "" for a one-way command, which gets none."""

    id: str
    tenant: str
    device: str
    name: str
    correlation: str
    failure_headers: dict[str, str]


def failure_event(command: FailedCommand, state: CommandState, status: int, why: str, now_ns: int) -> Event:
    """Return the notification that a command was not delivered, or that nothing is known of it."""
    subject = f"command/{command.name}"[:_MAX_TEXT]
    return Event(
        id=semantic_id(1, command.tenant, command.device, subject, b"", f"{command.id}/{state}".encode()),
        tenant=command.tenant,
        device=command.device,
        type="reply",
        subject=subject,
        recordedtime=rfc3339(now_ns),
        content_type=FAILURE_TYPE,
        data=_failure(why),
        gateway="",
        stream="",
        sequence=0,
        lane=Lane.REPLY,
        timequality=TimeQuality.SYNCED,
        dedup="weak",
        adapter="fogline",
        commandid=command.id,
        commandstate=state.value,
        correlationid=command.correlation,
        status=status,
    )


def verdict_event(record: CommandRecord, now_ns: int) -> Event:
    """Return the notification for a verdict that no device gave."""
    command = FailedCommand(record.id, record.tenant, record.device, record.name, _correlation(record), record.failure_headers)
    why = record.reply_body.decode("utf-8", "replace") or record.why or record.state.value
    return failure_event(command, record.state, record.status or 500, why, now_ns)


def in_hono_form(event: Event, record: CommandRecord) -> Event:
    """Return a gateway's reply with the correlation id as the application wrote it; a notification if no device gave it."""
    event = msgspec.structs.replace(event, correlationid=_correlation(record))
    if event.commandstate in _BY_DEVICE:
        return event
    why = event.data.decode("utf-8", "replace") or str(event.commandstate)
    return msgspec.structs.replace(event, content_type=FAILURE_TYPE, data=_failure(why))


def response_headers(event: Event, failure_headers: Mapping[str, str]) -> Headers:
    """Return the headers that a response has beside those of every event."""
    more: Sequence[tuple[str, str]] = list(failure_headers.items()) if event.content_type == FAILURE_TYPE else []
    return [(name, value.encode()) for name, value in (("tenant_id", event.tenant), *more)]


def _correlation(record: CommandRecord) -> str:
    return str(unpack_id(record.correlation)) if record.correlation else ""


def _failure(why: str) -> bytes:
    return msgspec.json.encode({"error": why[:_MAX_TEXT]})
