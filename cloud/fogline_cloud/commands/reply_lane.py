"""Checks the replies that gateways send: each leads to a command record, or is refused with a gap record. Pure."""

import base64
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from fogline.address import shown
from fogline.command import MAX_COMMAND_BYTES
from fogline.errors import Poison
from fogline.event import Event
from fogline.gap import GAP_CONTENT_TYPE, Gap, GapReason, gap_event
from fogline.process.rates import MAX_DEVICES, DeviceRates
from fogline_cloud.commands.record import Audit, CommandRecord, apply_reply
from fogline_cloud.commands.registry import may_replace

MAX_SHOWN = 256
"""Characters of a refused event's attributes that its gap record repeats, at most."""
BURST = 20
"""Audit lines that one gateway may cause in a burst."""
RATE_S = 1 / 60
"""Audit lines per second that one gateway may cause in the long run."""


@dataclass(slots=True)
class CheckedReplies:
    """A checked batch of lane `reply`: `events` to write (refused replies as gap records), and the `records` that follow."""

    events: list[Event] = field(default_factory=list)
    records: list[CommandRecord] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)


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
        former = newest.get(event.commandid) or known(event.commandid)
        try:
            _check_sender(event, event.commandid, former, issued)
            record = apply_reply(event, former, now_ms)
        except Poison as error:
            checked.events.append(_gap(event, error, now_ms))
            checked.audits.append(_audit(event, error, now_ms))
            continue
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


def _gap(event: Event, error: Poison, now_ms: int) -> Event:
    """Return the gap record for a refused reply. It repeats nothing from a sender without the right to send it."""
    gap = Gap(GapReason.REFUSED, event.sequence, event.sequence, str(error))
    if error.reason != "not-authorised":
        body = base64.b64encode(event.data).decode() if len(event.data) <= MAX_COMMAND_BYTES else None
        id_, content_type = event.id[:MAX_SHOWN], event.content_type[:MAX_SHOWN]
        gap = replace(gap, id=id_, device=event.device, content_type=content_type, body_base64=body)
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


class RefusalAudits:
    """Selects the audit lines to write, so that no gateway can fill the audit topic; the next line counts the omitted ones."""

    def __init__(self) -> None:
        self._rates = DeviceRates(RATE_S, BURST)
        self._omitted: OrderedDict[str, int] = OrderedDict()

    def select(self, audits: Iterable[Audit], now_s: float) -> Iterator[Audit]:
        """Yield the lines that may be written at `now_s` (monotonic seconds)."""
        for audit in audits:
            if self._rates.bucket(audit.gateway, now_s).take(now_s):
                omitted = self._omitted.pop(audit.gateway, 0)
                yield replace(audit, why=f"{audit.why} ({omitted} more refused before)") if omitted else audit
                continue
            self._omitted[audit.gateway] = self._omitted.get(audit.gateway, 0) + 1
            if len(self._omitted) > MAX_DEVICES:
                self._omitted.popitem(last=False)
