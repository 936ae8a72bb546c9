"""The command `fogline-history` at its gateway: executed there, whatever its device does."""

import json
import sqlite3
from contextlib import asynccontextmanager

import pytest

from fogline.amqp.outcome import ACCEPTED
from fogline.commands.history import HISTORY, read_page
from fogline.errors import SlowDown
from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt
from fogline_edge.downlink.device_queues import THE_GATEWAY
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.history.history_file import NAME
from fogline_edge.operate.status import read_status
from fogline_edge.rule_settings import ReduceTable, RuleSettings
from fogline_edge.settings import EdgeSettings
from fogline_lab.clock import pass_time
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.events import make_arrival
from fogline_lab.gateway.connected_gateway import durable_command, opened_gateway
from fogline_lab.gateway.outbox_use import put

KEPT = RuleSettings(reduce=[ReduceTable(name="same", on_change=True, keep_days=2)])


@asynccontextmanager
async def keeping(folder, rules=KEPT):
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), rules=rules)
    async with opened_gateway(settings) as gw:
        yield gw


def query(command_id="H1", data=b"{}", **other):
    return durable_command(command_id, name=HISTORY, durable=False, idempotent=True, data=data, **other)


async def reply(gw):
    (stream,) = [each for each in await gw.outbox.streams.pending() if each.lane is Lane.REPLY]
    rows = await gw.outbox.streams.read(stream.stream, 0, 100)
    return decode_event(rows[-1].body)


async def test_gateway_replies_with_the_events_that_a_rule_kept_back(folder):
    async with keeping(folder) as gw:
        for number in (1, 1, 1, 2):
            await put(gw.outbox, make_arrival(number))
        assert await gw.receive(query()) == ACCEPTED
        assert await gw.replies(1) == [("H1", "SUCCEEDED", 200)]
        event = await reply(gw)
        page = read_page(event.data)
        assert [json.loads(bytes(each))["data"] for each in page.events] == [{"n": 1}] * 2
        assert (page.next, page.history.events, event.device, event.subject) == (None, 2, "lamp-1", f"command/{HISTORY}")


async def test_device_never_sees_the_command_and_commands_of_the_device_do_not_delay_it(folder):
    async with keeping(folder) as gw:
        device = CommandDevice()
        gw.downlink.reachable("lamp-1", device)
        await gw.receive(durable_command("C1"))
        assert await device.has(1) == ["C1"]
        await gw.receive(query())
        assert await gw.replies(1) == [("H1", "SUCCEEDED", 200)]
        assert await gw.answer("C1") is Receipt.STORED
        assert device.ran == ["C1"]


@pytest.mark.parametrize(
    ("rules", "data", "why"),
    [
        (RuleSettings(), b"{}", "gateway gw-1 keeps no history: no rule of [[rules.reduce]] in its edge.toml has keep_days"),
        (KEPT, b'{"since_ms": "yesterday"}', "since_ms"),
        (KEPT, b'{"sinse_ms": 1}', "sinse_ms"),
        (KEPT, b"\xff", "not readable"),
        (KEPT, b"[" * 5000, "not readable"),
    ],
    ids=["no rule keeps events", "wrong type", "wrong key", "no UTF-8", "nested deeply"],
)
async def test_what_the_gateway_cannot_answer_is_refused_with_the_reason(folder, rules, data, why):
    async with keeping(folder, rules) as gw:
        await gw.receive(query(data=data))
        assert await gw.replies(1) == [("H1", "REJECTED", 422)]
        assert why in (await reply(gw)).data.decode()


async def test_damaged_history_is_a_failure_with_the_reason_and_status_shows_all_else(folder):
    async with keeping(folder) as gw:
        with sqlite3.connect(folder / "data" / NAME) as other:
            other.execute("DROP TABLE event")
        await gw.receive(query())
        assert await gw.replies(1) == [("H1", "FAILED", 500)]
        assert "cannot be read" in (await reply(gw)).data.decode()
        status = read_status(folder / "data")
    assert "cannot be read" in status["history"]["problem"]
    assert status["gateway"] == "acme/gw-1"


async def test_command_that_a_restart_interrupts_is_answered_after_it(folder):
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"), rules=KEPT)
    async with opened_gateway(settings) as gw:
        gw.downlink.reachable(THE_GATEWAY, CommandDevice())  # it never replies
        await gw.receive(query())
    async with keeping(folder) as gw:
        assert await gw.replies(1) == [("H1", "SUCCEEDED", 200)]


async def test_command_whose_time_is_over_before_the_reply_is_stored_is_expired(folder, monkeypatch):
    """To read changes nothing, so nothing is in doubt."""
    async with keeping(folder) as gw:
        monkeypatch.setattr(Downlink, "answer", crowded)
        await gw.receive(query(in_s=60))
        pass_time(61)
        assert await gw.replies(1) == [("H1", "EXPIRED", 408)]


def crowded(*_):
    """A full writer, as `CommandPort.answer` reports it."""
    raise SlowDown("too many events wait", retry_after_s=1)
