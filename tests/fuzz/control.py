"""Single messages between gateway, bridge and client: hello, commands, events; each through all its layers."""

from typing import Any

import msgspec

from fogline.address import parse_address
from fogline.amqp import wire
from fogline.amqp.backoff import Backoff
from fogline.commands.command import Command, Deadline, decode_command, digest, encode_command, signed_bytes
from fogline.events.codec import Beacon
from fogline.events.event import Lane
from fogline.gateway import hello
from fogline.gateway.gateway_statistics import GatewayStatistics, decode_statistics
from fogline.message import Message
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.consumers.client_events import event_of
from fogline_cloud.bridge.gateways.fleet import FleetStatistics
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.request import read_command
from fogline_cloud.kafka.records import record_of
from fogline_cloud.settings import CommandPolicySettings
from fogline_edge.adapters.mqtt.protocol.packets import Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_lab.device.mqtt_talk import MqttTalk
from fogline_lab.events import BEACON, NOW_NS, STREAM
from fuzz.amqp_messages import message_form
from fuzz.amqp_values import long_symbol, long_text, uint
from fuzz.forms import Decoder, Layer
from fuzz.json_forms import json_form
from shared.example_statistics import STATISTICS as EXAMPLE

MAX_KEPT_BYTES = 1000
DAY_S = 86_400
IDS = CommandIds(b"k" * 32)
OPERATOR = Principal(PrincipalKind.CLIENT, "acme", "desk", "asserted")


def plain(value: object) -> Any:
    """A value as a tree."""
    return msgspec.json.decode(msgspec.json.encode(value))


def stored(number: int) -> None:
    """A gateway keeps it in SQLite, the flow in a table."""
    number.to_bytes(8, "big", signed=True)


def commanded(beacon: Beacon) -> None:
    """A command to the gateway whose clock this is goes out with a deadline on it."""
    deadline = Deadline(beacon.boot_id, beacon.boottime_ms + 60_000)
    command = Command(id="C", tenant="acme", gateway="gw-1", device="lamp-1", name="switch", deadline=deadline)
    assert len(wire.encode(encode_command(command))) < 1000


# --- hello and its answer


def _greeted(asked: hello.Hello) -> None:
    commanded(asked.beacon)
    assert asked.version.isprintable(), "the log would be disturbed"
    assert all(len(each.stream) < MAX_KEPT_BYTES for each in asked.streams)


def _resumed(welcome: hello.Welcome) -> None:
    wait_s = Backoff().requested_s(welcome.retry_after_s)
    assert 0 <= wait_s <= DAY_S, f"the gateway would wait for {wait_s} s"
    assert welcome.refused.isprintable(), "the log would be disturbed"
    for mark in welcome.marks:
        stored(mark.hwm)
        stored(mark.chain_sequence)
        hello.resume(hello.Own(0, "", 0, None), mark)
        hello.resume(hello.Own(5, "00", 9, "00", 7), mark)


def _exposed(statistics: GatewayStatistics) -> None:
    fleet = FleetStatistics(lambda: NOW_NS / 1e9)
    fleet.reported("gw-1", 0, statistics)
    samples = [(each.name, each.labels) for each in fleet.read(["gw-1"], [0])]
    assert len(samples) == len(set(samples)) < 60, "the series of a gateway are bounded"


QUESTION = b"CORRELATION-ID-1"
"""Stands for the UUID of the hello that is answered."""


def _hello_message(body: bytes) -> bytes:
    properties = {"reply-to": long_text(b"control/acme/gw-1"), "correlation-id": b"\x98" + QUESTION}
    return message_form("hello", body=body, properties=properties).render({})


HELLO_TREE = plain(
    hello.Hello(
        protocol=1, version="0.1", gateway="gw-1", beacon=BEACON, streams=[hello.OpenStream(STREAM, Lane.ALARM)], shards=4
    )
)
WELCOME_TREE = plain(
    hello.Welcome(
        protocol=1,
        shard=1,
        shards=4,
        max_message_bytes=1,
        marks=[hello.Mark(STREAM, 1, 1, "00")],
        refused="",
        redirect="127.0.0.1:1",
    )
)
HELLO = Decoder(
    "hello",
    (
        Layer("message", wire.decode),
        Layer("hello", lambda message: hello.decode_hello(message.body)),
        Layer("clock", _greeted),
    ),
    [json_form("hello", HELLO_TREE, "hello", _hello_message)],
)
STATISTICS = Decoder(
    "statistics",
    (
        Layer("message", wire.decode),
        Layer("statistics", lambda message: decode_statistics(message.body)),
        Layer("metrics", _exposed),
    ),
    [json_form("statistics", plain(EXAMPLE), "statistics", lambda body: message_form("statistics", body=body).render({}))],
)
WELCOME = Decoder(
    "welcome",
    (
        Layer("message", wire.decode),
        Layer("welcome", lambda message: hello.decode_welcome(message.body)),
        Layer("resume", _resumed),
    ),
    [json_form("welcome", WELCOME_TREE, "welcome", _hello_message)],
)


# --- commands, one way and the other


def _signed(command: Command) -> Command:
    digest(command)
    signed_bytes(command)
    command.deadline.left_ms(BEACON)
    return command


def _journalled(command: Command) -> Command:
    stored(command.deadline.boottime_ms)
    words = (command.deadline.boot_id, command.correlation, command.key_id, command.content_type or "")
    assert sum(map(len, words)) < 3 * MAX_KEPT_BYTES, "a command takes too much of the journal"
    return command


def _delivered(command: Command) -> None:
    """To a device that is connected by MQTT 5, where a content type travels along."""
    talk = MqttTalk(V5, with_commands=True)
    talk.connect("lamp-1", clean_start=False)
    talk.settled(Subscribe(packet_id=1, filters=(("command///req/#", 1),)))
    talk.execute(msgspec.structs.replace(command, device="lamp-1"))


COMMAND_PROPERTIES = {
    "message-id": long_text(b"CMD-1"),
    "subject": long_text(b"switch"),
    "content-type": long_symbol(b"application/json"),
}
COMMAND = Decoder(
    "command",
    (
        Layer("message", wire.decode),
        Layer("command", decode_command),
        Layer("signature", _signed),
        Layer("journal", _journalled),
        Layer("device", _delivered),
    ),
    [
        message_form(
            "command",
            body=b"{}",
            header={"durable": b"\x41"},
            properties=COMMAND_PROPERTIES,
            application={
                "fogline": "command",
                "tenant": "acme",
                "gateway": "gw-1",
                "device_id": "lamp-1",
                "reply": True,
                "idempotent": False,
                "correlation": "",
                "deadline_boot": BEACON.boot_id,
                "deadline_ms": 1,
                "key_id": "k",
                "signature": b"s",
            },
            fields_aim="command",
            properties_aim="command",
        )
    ],
)


def _requested(message: Message) -> object:
    return read_command(message, parse_address("command/acme/lamp-1"), OPERATOR, 1, CommandPolicySettings(), ids=IDS)  # type: ignore[arg-type]


REQUEST = Decoder(
    "operator's command",
    (Layer("message", wire.decode), Layer("request", _requested), Layer("record", msgspec.json.encode)),
    [
        message_form(
            "operator's command",
            body=b"{}",
            header={"durable": b"\x41", "ttl": uint(60_000)},
            properties={
                **COMMAND_PROPERTIES,
                "to": long_text(b"command/acme/lamp-1"),
                "reply-to": long_text(b"command_response/acme/desk"),
                "correlation-id": long_text(b"c"),
            },
            application={"idempotent": True, "device_id": "lamp-1"},
            fields_aim="request",
            properties_aim="request",
        )
    ],
)


def _reported(message: Message) -> object:
    return event_of(message, parse_address("event/acme"), NOW_NS)  # type: ignore[arg-type]


CLIENT_EVENT = Decoder(
    "client's event",
    (Layer("message", wire.decode), Layer("event", _reported), Layer("record", record_of)),
    [
        message_form(
            "client's event",
            body=b"{}",
            header={"ttl": uint(60_000)},
            properties={"to": long_text(b"event/acme/lamp-1"), "content-type": long_symbol(b"application/json")},
            application={
                "device_id": "lamp-1",
                "cloudEvents:id": "1",
                "cloudEvents:source": "/here",
                "cloudEvents:type": "t",
                "cloudEvents:subject": "s",
                "cloudEvents:time": "2026-01-01T00:00:00Z",
                "cloudEvents_datacontenttype": "text/plain",
            },
            fields_aim="event",
            properties_aim="event",
        )
    ],
)
CONTROL = (HELLO, WELCOME, STATISTICS, COMMAND, REQUEST, CLIENT_EVENT)
