"""Replies on their way into Kafka: the command record that follows from each, or the reason to refuse it. Pure."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from fogline.address import shown
from fogline.command import MAX_COMMAND_BYTES
from fogline.errors import Poison
from fogline.event import Event
from fogline.gap import GAP_CONTENT_TYPE, Gap, GapReason, gap_event
from fogline_cloud.commands.record import Audit, Record, of_reply
from fogline_cloud.commands.registry import follows

MAX_SHOWN = 256
"""Characters of a refused event's own attributes that its gap record repeats."""


@dataclass(slots=True)
class Judged:
    """A batch of lane `reply`. `events`: as they land, with a gap record in place of each that is refused.

    `records`: the command records that follow, in order. `audits`: one for each refusal.
    """

    events: list[Event] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)


def judge(
    events: Sequence[Event],
    known: Callable[[str], Record | None],
    *,
    issued: Callable[[str], bool],
    tenant: str,
    now_ms: int,
) -> Judged:
    """Decide about the events of one batch. Events of another tenant than `tenant` are not decided about here.

    `known` returns the newest record of a command; `issued` tells if a bridge made an identifier.
    """
    judged = Judged()
    newest: dict[str, Record] = {}
    for event in events:
        if event.commandid is None or event.tenant != tenant or event.content_type == GAP_CONTENT_TYPE:
            judged.events.append(event)
            continue
        former = newest.get(event.commandid) or known(event.commandid)
        try:
            _check_sender(event, event.commandid, former, issued)
            record = of_reply(event, former, now_ms)
        except Poison as error:
            judged.events.append(_gap(event, error, now_ms))
            judged.audits.append(_audit(event, error, now_ms))
            continue
        judged.events.append(event)
        if record is not None and (former is None or follows(former, record)):
            newest[record.id] = record
            judged.records.append(record)
    return judged


def _check_sender(event: Event, command_id: str, former: Record | None, issued: Callable[[str], bool]) -> None:
    """Raise `Poison('not-authorised')` unless the command was sent to this gateway, for this device."""
    if former is None:
        if not issued(command_id):
            raise Poison("not-authorised", f"no bridge has made command {shown(command_id)}")
    elif (former.gateway, former.device) != (event.gateway, event.device):
        raise Poison("not-authorised", f"command {command_id} is not one of this gateway and this device")


def _gap(event: Event, error: Poison, now_ms: int) -> Event:
    """Return the gap record that takes the place of a refused reply: without what its sender had no right to say."""
    gap = Gap(GapReason.REFUSED, event.sequence, event.sequence, str(error))
    if error.reason != "not-authorised":
        body = base64.b64encode(event.data).decode() if len(event.data) <= MAX_COMMAND_BYTES else None
        gap = replace(
            gap,
            id=event.id[:MAX_SHOWN],
            device=event.device,
            content_type=event.content_type[:MAX_SHOWN],
            body_base64=body,
        )
    return gap_event(
        gap, tenant=event.tenant, gateway=event.gateway, stream=event.stream, lane=event.lane, now_ns=now_ms * 1_000_000
    )


def _audit(event: Event, error: Poison, now_ms: int) -> Audit:
    return Audit(
        time_ms=now_ms,
        command=(event.commandid or "")[:MAX_SHOWN],
        device=event.device,
        gateway=event.gateway,
        name=event.subject[:MAX_SHOWN],
        operator="",
        decision="REPLY REFUSED",
        why=str(error),
    )
