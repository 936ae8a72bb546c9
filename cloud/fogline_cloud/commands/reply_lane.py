"""Checks the replies that gateways send: each leads to a command record, or is refused with a gap record. Pure."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from fogline.address import shown
from fogline.commands.command import MAX_COMMAND_BYTES, RULE_PREFIX
from fogline.errors import Poison
from fogline.events.event import Event
from fogline.events.gap import GAP_CONTENT_TYPE, Gap, GapReason, gap_event
from fogline_cloud.audit.record import AuditRecord
from fogline_cloud.commands.kafka_form import in_hono_form, response_headers
from fogline_cloud.commands.record import CommandRecord, apply_reply
from fogline_cloud.commands.succession import may_replace
from fogline_cloud.kafka.records import Headers

MAX_SHOWN = 256
"""Characters of a refused event's attributes that its gap record repeats, at most."""


@dataclass(slots=True)
class CheckedReplies:
    """A checked batch of lane `reply`: `events` to write (refused replies as gap records), and the `records` that follow."""

    events: list[Event] = field(default_factory=list)
    records: list[CommandRecord] = field(default_factory=list)
    audits: list[AuditRecord] = field(default_factory=list)
    refused: int = 0
    headers: dict[int, Headers] = field(default_factory=dict)
    """Further headers of responses to commands that came over Kafka, by sequence."""


def check_replies(
    events: Sequence[Event],
    known: Callable[[str], CommandRecord | None],
    *,
    issued: Callable[[str], bool],
    tenant: str,
    now_ms: int,
) -> CheckedReplies:
    """Check one batch. `known`: the newest record of a command; `issued`: a bridge made the id. Other tenants' events pass."""
    checked = CheckedReplies()
    newest: dict[str, CommandRecord] = {}
    for event in events:
        if event.commandid is None or event.tenant != tenant or event.content_type == GAP_CONTENT_TYPE:
            checked.events.append(event)
            continue
        if event.commandid.startswith(RULE_PREFIX):  # a rule of the gateway has given the command: there is no record
            checked.events.append(event)
            continue
        former = newest.get(event.commandid) or known(event.commandid)
        try:
            _check_sender(event, event.commandid, former, issued)
            record = apply_reply(event, former, now_ms)
        except Poison as error:
            checked.events.append(refused_event(event, error, now_ms))
            checked.audits.append(_audit(event, error, now_ms))
            checked.refused += 1
            continue
        if former is not None and former.of_kafka:
            response = in_hono_form(event, former)
            checked.events.append(response)
            checked.headers[event.sequence] = response_headers(response, former.failure_headers)
            record = replace(record, reply_delivered=True) if record is not None else None
        else:
            checked.events.append(event)
        if record is not None and (former is None or may_replace(former, record)):
            newest[record.id] = record
            checked.records.append(record)
    return checked


def _check_sender(event: Event, command_id: str, former: CommandRecord | None, issued: Callable[[str], bool]) -> None:
    if former is None:
        if not issued(command_id):
            raise Poison("not-authorised", f"no bridge has made command {shown(command_id)}")
    elif (former.gateway, former.device) != (event.gateway, event.device):
        raise Poison("not-authorised", f"command {command_id} is not one of this gateway and this device")


def refused_event(event: Event, error: Poison, now_ms: int) -> Event:
    """Return the gap record for a refused event. It repeats nothing from a sender without the right to send it."""
    gap = Gap(GapReason.REFUSED, event.sequence, event.sequence, str(error))
    if error.reason != "not-authorised":
        body = base64.b64encode(event.data).decode() if len(event.data) <= MAX_COMMAND_BYTES else None
        id_, content_type = event.id[:MAX_SHOWN], event.content_type[:MAX_SHOWN]
        gap = replace(gap, id=id_, device=event.device, content_type=content_type, body_base64=body)
    return gap_event(
        gap, tenant=event.tenant, gateway=event.gateway, stream=event.stream, lane=event.lane, now_ns=now_ms * 1_000_000
    )


def _audit(event: Event, error: Poison, now_ms: int) -> AuditRecord:
    return AuditRecord(
        time_ms=now_ms,
        command=(event.commandid or "")[:MAX_SHOWN],
        device=event.device,
        gateway=event.gateway,
        name=event.subject[:MAX_SHOWN],
        who=f"gateway {event.tenant}/{event.gateway}",
        decision="REPLY REFUSED",
        why=str(error),
    )
