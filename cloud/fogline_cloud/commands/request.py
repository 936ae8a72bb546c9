"""An operator's AMQP message to a command. Pure.

Eclipse Hono's command and control API: `to` `command/{tenant}[/{device}]`, `subject` the command, `reply-to`
`command_response/{tenant}/{reply_id}` (none: one-way), `correlation-id` or `message-id`. Ours beside it: the header
fields `durable` and `ttl`, the application property `idempotent` (may be run again).

| `durable` | `ttl` | the command |
|---|---|---|
| yes | yes | waits for a device that is away, until its ttl is over |
| no | yes | direct (delivered now or released), and expires with its ttl |
| either | no | direct, and expires after `direct_ttl_s`. JMS sets `durable` on everything by default |

The same message id from the same container with the same reply address is the same command, whenever it comes, at
whichever bridge.
"""

import base64
import uuid

from fogline import address
from fogline.command import MAX_COMMAND_BYTES, Command, Deadline, State, check_name, digest
from fogline.errors import Poison
from fogline.message import Message, pack_id
from fogline.principal import Principal
from fogline_cloud.bridge.reports import device_of
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.record import Record
from fogline_cloud.settings import CommandSettings

MAX_ID = 512


def record_of(
    message: Message, place: address.Commands, operator: Principal, now_ms: int, settings: CommandSettings, *, ids: CommandIds
) -> Record:
    """The command that a message asks for, without its gateway. Raises `Poison` naming what is wrong."""
    device = device_of(message, place)
    if len(message.body) > MAX_COMMAND_BYTES:
        raise Poison("too-big", f"a command may carry {MAX_COMMAND_BYTES} bytes, this one has {len(message.body)}")
    name = check_name(message.subject or "")
    reply_to = _reply_id(message, place.tenant)
    own_id = message.message_id
    correlation = message.correlation_id if message.correlation_id is not None else message.message_id
    if reply_to and correlation is None:
        raise Poison("malformed", "a command with a reply-to needs a correlation-id or a message-id")
    command_id = ids.new() if own_id is None else ids.of_message(place.tenant, operator.name, reply_to, pack_id(own_id))
    idempotent = message.properties.get("idempotent") is True
    command = Command(
        id=command_id,
        tenant=place.tenant,
        gateway="",
        device=device,
        name=name,
        deadline=Deadline("", 0),
        data=message.body,
        content_type=_content_type(message),
        reply=bool(reply_to),
        idempotent=idempotent,
    )
    return Record(
        id=command_id,
        tenant=place.tenant,
        gateway="",
        device=device,
        name=name,
        state=State.ACCEPTED,
        operator=str(operator)[:MAX_ID],
        accepted_ms=now_ms,
        expires_ms=now_ms + _ttl_ms(message, settings),
        changed_ms=now_ms,
        digest=digest(command).hex(),
        correlation=_packed(correlation),
        reply_to=reply_to,
        content_type=command.content_type,
        data_base64=base64.b64encode(message.body).decode(),
        durable=message.durable and message.ttl_ms is not None,
        idempotent=idempotent,
    )


def _reply_id(message: Message, tenant: str) -> str:
    if not message.reply_to:
        return ""
    try:
        place = address.parse_address(message.reply_to)
    except Poison:
        place = None
    if not isinstance(place, address.CommandResponse) or place.tenant != tenant:
        what = f"reply-to {address.shown(message.reply_to)} is not command_response/{tenant}/<reply id>"
        raise Poison("malformed", what)
    return place.reply_id


def _ttl_ms(message: Message, settings: CommandSettings) -> int:
    if message.ttl_ms is None:
        return int(settings.direct_ttl_s * 1000)
    if message.ttl_ms > settings.max_ttl_s * 1000:
        raise Poison("ttl", f"a ttl may be {settings.max_ttl_s:.0f} s at most, this one is {message.ttl_ms / 1000:.0f} s")
    return message.ttl_ms


def _content_type(message: Message) -> str | None:
    told = message.content_type
    if told is not None and (len(told) > MAX_ID or not told.isascii() or not told.isprintable()):
        raise Poison("malformed", "a content type is a short line of ASCII")
    return told


def _packed(value: str | int | uuid.UUID | bytes | None) -> str:
    packed = "" if value is None else pack_id(value)
    if len(packed) > MAX_ID:
        raise Poison("malformed", f"a correlation id may have {MAX_ID} characters")
    return packed
