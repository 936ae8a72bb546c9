"""Which gateway reaches a device: who was heard last, without going to and fro."""

import pytest

from fogline.codec import Batch
from fogline.testing.events import make_event
from fogline_cloud.commands import routes as module
from fogline_cloud.commands.routes import STAY_S, Routes


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_device_is_reached_by_the_gateway_that_sent_it(clock):
    routes = Routes()
    assert routes.gateway_of("lamp-1") is None
    assert routes.learn("gw-1", Batch.of([make_event(), make_event(2), make_event(device="gw-1")])) == ["lamp-1"]
    assert routes.learn("gw-1", Batch.of([make_event(3)])) == []
    assert (routes.gateway_of("lamp-1"), routes.gateway_of("gw-1")) == ("gw-1", None)


def test_a_device_that_two_gateways_hear_stays_until_the_first_is_silent(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    clock[0] += STAY_S
    assert routes.learn("gw-2", Batch.of([make_event()])) == []
    clock[0] += 1
    assert routes.learn("gw-2", Batch.of([make_event()])) == ["lamp-1"]
    assert routes.gateway_of("lamp-1") == "gw-2"


def test_a_device_that_says_it_takes_commands_moves_at_once(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    assert routes.learn("gw-2", Batch.of([make_event(ttd=0)])) == []
    assert routes.learn("gw-2", Batch.of([make_event(ttd=-1)])) == ["lamp-1"]


def test_what_was_written_down_gives_way_to_what_is_heard(clock):
    routes = Routes()
    routes.recall("lamp-1", "gw-3", 1)
    routes.recall("lamp-1", "gw-1", 3)
    routes.recall("lamp-1", "gw-4", 2)
    assert routes.gateway_of("lamp-1") == "gw-1"
    assert routes.learn("gw-2", Batch.of([make_event()])) == ["lamp-1"]
    routes.recall("lamp-1", "gw-1", 4)
    assert routes.gateway_of("lamp-1") == "gw-2"
