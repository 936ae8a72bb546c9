"""Reads a command from a record of `hono.command.{tenant}` (Eclipse Hono's Command & Control API for Kafka). Pure.

The record becomes the message that an AMQP operator would send, so that both take the same way. Its message id is its place in
Kafka and its time, so each copy of a record is the same command.
"""

from collections.abc import Mapping

from fogline.address import CommandAddress, CommandResponse, shown
from fogline.commands.command import check_name
from fogline.errors import Poison
from fogline.message import Message
from fogline_cloud.access.principal import KAFKA, Principal, PrincipalKind
from fogline_cloud.commands.kafka_form import FailedCommand
from fogline_cloud.commands.record import FAILURE_METADATA
from fogline_cloud.kafka.committed_records import CommittedRecord

MAX_HEADERS = 16
MAX_HEADER = 1024
MAX_CORRELATION = 500
_SENDER = "hono.command"
_REPLY_ID = "kafka"


def sender(tenant: str) -> Principal:
    """Return the principal of all commands of the topic: Kafka decides who may write there."""
    return Principal(PrincipalKind.CLIENT, tenant, _SENDER, KAFKA)


def read_kafka_command(record: CommittedRecord, tenant: str, ttl_ms: int) -> Message:
    """Return the command of a record as a message. `ttl_ms`: what is left of its time to live. Raises `Poison`."""
    headers, command = _texts(record), answerable(record, tenant)
    failure_headers = _failure_headers(headers)
    if not headers.get("device_id"):
        raise Poison("malformed", "the header device_id is missing")
    if record.key and record.key != headers["device_id"].encode():
        raise Poison("malformed", f"the key {shown(record.key.decode('utf-8', 'replace'))} is not the header device_id")
    if _wants_response(headers) and not command.correlation:
        raise Poison(
            "malformed",
            f"a command with response-required needs the header correlation-id, of {MAX_CORRELATION} characters at most",
        )
    if failure_headers != command.failure_headers:
        raise Poison("malformed", f"at most {MAX_HEADERS} headers {FAILURE_METADATA}*, of {MAX_HEADER} characters each")
    return Message(
        body=record.value,
        to=str(CommandAddress(tenant, command.device)),
        subject=check_name(command.name),
        message_id=command.id,
        correlation_id=command.correlation or None,
        reply_to=str(CommandResponse(tenant, _REPLY_ID)) if command.correlation else None,
        content_type=headers.get("content-type"),
        ttl_ms=ttl_ms,
        properties=dict(failure_headers),
    )


def answerable(record: CommittedRecord, tenant: str) -> FailedCommand:
    """Return what a notification about a record needs, also if the record is no command. What is too long is left out."""
    headers = _texts(record)
    correlation, failure_headers = headers.get("correlation-id", ""), _failure_headers(headers)
    longest = max((len(text) for each in failure_headers.items() for text in each), default=0)
    is_short = len(failure_headers) <= MAX_HEADERS and longest <= MAX_HEADER
    return FailedCommand(
        id=f"{record.partition}/{record.offset}/{record.time_ms}",
        tenant=tenant,
        device=headers.get("device_id") or record.key.decode("utf-8", "replace"),
        name=headers.get("subject", ""),
        correlation=correlation if _wants_response(headers) and len(correlation) <= MAX_CORRELATION else "",
        failure_headers=failure_headers if is_short else {},
    )


def _texts(record: CommittedRecord) -> Mapping[str, str]:
    return {name: value.decode("utf-8", "replace") for name, value in record.headers}


def _failure_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.startswith(FAILURE_METADATA)}


def _wants_response(headers: Mapping[str, str]) -> bool:
    return headers.get("response-required", "").lower() == "true"
