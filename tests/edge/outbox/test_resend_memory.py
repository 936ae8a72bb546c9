"""The last message of a slot, and the runs of the gateway that it may come from."""

import asyncio

import pytest

from fogline.dead_letter import DEAD_TYPE
from fogline.events.codec import decode_event
from fogline.events.event import POSSIBLE_DUPLICATE, Receipt
from fogline.events.identity import AckDelivery, Retransmission
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.memory import resend_memory as module
from fogline_edge.outbox.memory.resend_memory import ResendMemory
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival

LARGE = 10**9
STARTED_S = 100
FIRST = Retransmission(b"client", again=False, number=1)
MESSAGE = make_arrival(1)


def marked(delivery):
    return Retransmission(b"client", again=True, number=1, ack_delivery=delivery)


@pytest.fixture
def database(memory):
    connection = open_database(memory / "outbox.db", LARGE)
    connection.execute("BEGIN")
    yield connection
    connection.close()


def noted(database, age_s):
    """Store a message of this age in the file only, as a former run did."""
    slots = ResendMemory(database, LARGE)
    slots.note(MESSAGE, FIRST, age_s)
    slots.save()
    return ResendMemory(database, LARGE, STARTED_S)


@pytest.mark.parametrize("age_s", [STARTED_S - 50, STARTED_S, STARTED_S + 1])
def test_an_acknowledgement_that_is_unproven_leaves_a_resend_in_any_run(database, age_s):
    assert noted(database, age_s).repeats(MESSAGE, marked(AckDelivery.UNPROVEN), STARTED_S + 10)


@pytest.mark.parametrize("delivery", [AckDelivery.PROVEN, AckDelivery.DOUBTFUL])
@pytest.mark.parametrize(("age_s", "resend"), [(STARTED_S - 50, True), (STARTED_S, True), (STARTED_S + 1, False)])
def test_after_a_restart_nothing_is_known_of_acknowledgements_before_it(database, delivery, age_s, resend):
    """G4: and a rollback is no restart."""
    slots = noted(database, age_s)
    assert slots.repeats(MESSAGE, marked(delivery), STARTED_S + 10) == resend
    slots.rolled_back()
    assert slots.repeats(MESSAGE, marked(delivery), STARTED_S + 10) == resend


def test_message_of_the_start_second_is_recognised_while_it_is_in_memory(database):
    slots = ResendMemory(database, LARGE, STARTED_S)
    slots.note(MESSAGE, FIRST, STARTED_S, "ID")
    assert not slots.repeats(MESSAGE, marked(AckDelivery.DOUBTFUL), STARTED_S)
    assert slots.repeated_id(MESSAGE, FIRST) == "ID"
    assert slots.repeated_id(make_arrival(2), FIRST) is None
    assert slots.repeated_id(make_arrival(1, device="lamp-2"), FIRST) is None
    slots.forget(FIRST.slot, FIRST.number)
    assert slots.repeated_id(MESSAGE, FIRST) is None


def test_so_many_ids_are_in_memory(database, monkeypatch):
    monkeypatch.setattr(module, "MAX_IDS", 3)
    slots = ResendMemory(database, LARGE)
    for number in (1, 2, 1, 3, 4):
        slots.note(MESSAGE, Retransmission(b"client", again=False, number=number), 5, f"ID{number}")
    ids = [slots.repeated_id(MESSAGE, Retransmission(b"client", again=True, number=each)) for each in (1, 2, 3, 4)]
    assert ids == ["ID1", None, "ID3", "ID4"]


def test_so_many_pages_of_slots_are_in_memory(database, monkeypatch):
    monkeypatch.setattr(module, "MAX_PAGES", 3)
    slots = ResendMemory(database, LARGE)
    for number in range(10):
        slots.note(MESSAGE, Retransmission(b"client-%d" % number, again=False), 5)
    assert len(slots._pages) == 3
    assert slots._entries == 3


@pytest.mark.parametrize("changed", [{"device": "lamp-2"}, {"channel": "other"}, {"data": b"{}"}], ids=str)
def test_packet_id_belongs_to_the_client_for_every_device(database, changed):
    """The last message of an id is one, of whatever device: after another one the first is no resend any more."""
    slots, again = ResendMemory(database, LARGE), marked(AckDelivery.UNPROVEN)
    other = make_arrival(**{"n": 1, **changed})
    slots.note(MESSAGE, FIRST, 5)
    assert not slots.repeats(other, again, 5)
    assert slots.repeats(MESSAGE, again, 5)
    slots.note(other, FIRST, 5)
    assert slots.repeats(other, again, 5)
    assert not slots.repeats(MESSAGE, again, 5)


async def put(outbox, arrival):
    done = asyncio.get_running_loop().create_future()
    outbox.port.put(arrival, done.set_result)
    return await within(done, "nothing was committed")


@pytest.mark.parametrize(("own", "expected"), [(None, ""), ("a=b", "a=b&")])
async def test_in_doubt_an_event_names_the_first_beside_its_own_properties(folder, own, expected):
    """G4."""
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder)))
    assert await put(outbox, make_arrival(1, retransmission=FIRST)) is Receipt.STORED
    doubtful = {"retransmission": marked(AckDelivery.DOUBTFUL), "properties": own}
    assert await put(outbox, make_arrival(1, **doubtful)) is Receipt.STORED
    (stream,) = await outbox.streams.pending()
    first, second = [decode_event(row.body) for row in await outbox.streams.read(stream.stream, 0, 9)]
    assert second.properties == f"{expected}{POSSIBLE_DUPLICATE}={first.id}"
    assert (stream.counts.acknowledged, stream.counts.stored, stream.counts.duplicate) == (2, 2, 0)
    await outbox.close()


async def test_a_dead_letter_in_doubt_is_a_dead_letter(folder):
    outbox = Outbox.open(EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder)))
    dead = {"type": DEAD_TYPE, "retransmission": FIRST}
    assert await put(outbox, make_arrival(1, **dead)) is Receipt.DEAD
    assert await put(outbox, make_arrival(1, **{**dead, "retransmission": marked(AckDelivery.DOUBTFUL)})) is Receipt.DEAD
    (stream,) = await outbox.streams.pending()
    assert stream.counts.dead == 2
    await outbox.close()
