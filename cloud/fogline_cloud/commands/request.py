"""Reads a command from an operator's AMQP message. Pure.

The message follows Eclipse Hono's command and control API: `to` is `command/{tenant}[/{device}]`, `subject` is the command's
name, `reply-to` is `command_response/{tenant}/{reply_id}` (absent: one-way), and `correlation-id` or `message-id` names it.
Fogline adds header fields `durable` and `ttl`, and properties `idempotent` (it may run twice) and `newest_wins` (it replaces
what waits). A `durable` command with a `ttl` waits for an absent device; any other is direct. The default `ttl` is
`direct_ttl_s` (JMS sets `durable` by default).

Messages with the same message id, container id and reply address are copies of one command, at any time and any bridge.
"""

import base64
import uuid

from msgspec.structs import replace

from fogline.address import CommandAddress, CommandResponse, parse_address, shown
from fogline.commands.command import MAX_COMMAND_BYTES, CommandState, Deadline, check_name, digest
from fogline.errors import Poison
from fogline.message import Message, pack_id
from fogline_cloud.access.principal import ASSERTED, KAFKA, Principal
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.record import FAILURE_METADATA, KAFKA_OWNER, CommandRecord, command_of
from fogline_cloud.device_address import device_of
from fogline_cloud.settings import CommandPolicySettings

MAX_ID = 512
REQUEST = "request"
"""Property with `CommandRecord.request`."""


def read_command(
    message: Message,
    address: CommandAddress,
    operator: Principal,
    now_ms: int,
    settings: CommandPolicySettings,
    *,
    ids: CommandIds,
    left_ms: int | None = None,
) -> CommandRecord:
    """Return the record of the command in a message, without its gateway. Raises `Poison`.

    `left_ms`: what is left of the time to live, if its sender stated the end.
    """
    tenant = address.tenant
    device = device_of(message, address)
    if len(message.body) > MAX_COMMAND_BYTES:
        raise Poison("too-big", f"a command may carry {MAX_COMMAND_BYTES} bytes; this one has {len(message.body)}")
    name = check_name(message.subject or "")
    reply_to = _reply_id(message, tenant)
    own_id = message.message_id
    correlation = message.correlation_id if message.correlation_id is not None else message.message_id
    if reply_to and correlation is None:
        raise Poison("malformed", "a command with a reply-to needs a correlation-id or a message-id")
    command_id = ids.new() if own_id is None else ids.of_message(tenant, _owner(operator), reply_to, pack_id(own_id))
    waits, newest_wins = message.durable and message.ttl_ms is not None, message.properties.get("newest_wins") is True
    if newest_wins and not waits:
        raise Poison("malformed", "newest_wins is for a command that waits for its device: make it durable, with a ttl")
    record = CommandRecord(
        id=command_id,
        tenant=tenant,
        gateway="",
        device=device,
        name=name,
        state=CommandState.ACCEPTED,
        operator=str(operator)[:MAX_ID],
        accepted_ms=now_ms,
        expires_ms=now_ms + _ttl_ms(message, settings, left_ms),
        changed_ms=now_ms,
        digest="",
        correlation=_packed(correlation),
        reply_to=reply_to,
        reply_owner=reply_owner(operator),
        content_type=_content_type(message),
        data_base64=base64.b64encode(message.body).decode(),
        durable=waits,
        idempotent=message.properties.get("idempotent") is True,
        newest_wins=newest_wins,
        failure_headers=_failure_headers(message) if operator.proof == KAFKA else {},
        request=_request(message),
    )
    return replace(record, digest=digest(command_of(record, Deadline("", 0))).hex())


def read_cancel(message: Message, address: CommandAddress, operator: Principal, *, ids: CommandIds) -> str | None:
    """Return the id of the command that a message asks to cancel; `None` if it asks for nothing of that kind. Raises `Poison`.

    Property `cancel` is the id, or `true` for the operator's own command whose message id is this message's correlation id.
    """
    asked = message.properties.get("cancel")
    if isinstance(asked, str):
        return asked
    if asked is True:
        if message.correlation_id is None:
            raise Poison("malformed", "a request to cancel needs a correlation-id: the message-id of the command")
        return ids.of_message(
            address.tenant, _owner(operator), _reply_id(message, address.tenant), pack_id(message.correlation_id)
        )
    if asked is None:
        return None
    raise Poison("malformed", "property `cancel` of a request to cancel must be a command's id, or true")


def read_approval(message: Message) -> str | None:
    """Return the id of the command that a message approves (property `approve`); `None` for another. Raises `Poison`."""
    asked = message.properties.get("approve")
    if asked is not None and not isinstance(asked, str):
        raise Poison("malformed", "property `approve` of an approval must be a command's id")
    return asked


def reply_owner(operator: Principal) -> str:
    """Return the owner of a peer's reply addresses: its name if that is proven, else "", which stands for all such peers."""
    if operator.proof == KAFKA:
        return KAFKA_OWNER
    return "" if operator.proof == ASSERTED else operator.name


def _failure_headers(message: Message) -> dict[str, str]:
    return {name: str(value) for name, value in message.properties.items() if name.startswith(FAILURE_METADATA)}


def _request(message: Message) -> str:
    text = message.properties.get(REQUEST, "")
    if not isinstance(text, str) or len(text) > MAX_ID:
        raise Poison("malformed", f"property {REQUEST} must be a text of at most {MAX_ID} characters")
    return text


def _owner(operator: Principal) -> str:
    """Return the name in the ids of an operator's commands. No AMQP peer can have that of the commands of Kafka."""
    return KAFKA_OWNER if operator.proof == KAFKA else operator.name


def _reply_id(message: Message, tenant: str) -> str:
    if not message.reply_to:
        return ""
    try:
        reply_address = parse_address(message.reply_to)
    except Poison:
        reply_address = None
    if not isinstance(reply_address, CommandResponse) or reply_address.tenant != tenant:
        raise Poison("malformed", f"reply-to {shown(message.reply_to)} is not command_response/{tenant}/<reply id>")
    return reply_address.reply_id


def _ttl_ms(message: Message, settings: CommandPolicySettings, left_ms: int | None) -> int:
    ttl_ms = int(settings.direct_ttl_s * 1000) if message.ttl_ms is None else message.ttl_ms
    if message.ttl_ms is not None and ttl_ms > settings.max_ttl_s * 1000:
        raise Poison("ttl", f"the time to live may be {settings.max_ttl_s:.0f} s at most (commands.max_ttl_s of the bridge)")
    return ttl_ms if left_ms is None else min(ttl_ms, left_ms)


def _content_type(message: Message) -> str | None:
    text = message.content_type
    if text is not None and (len(text) > MAX_ID or not text.isascii() or not text.isprintable()):
        raise Poison("malformed", f"a content type must be printable ASCII of at most {MAX_ID} characters")
    return text


def _packed(value: str | int | uuid.UUID | bytes | None) -> str:
    packed = "" if value is None else pack_id(value)
    if len(packed) > MAX_ID:
        raise Poison("malformed", f"a correlation id may have {MAX_ID} characters")
    return packed
