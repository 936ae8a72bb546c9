"""A device is reached by the gateway that sent its last event, without flapping between two gateways."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fogline.events.codec import Batch
from fogline.events.event import Lane
from fogline_cloud.commands import routes as module
from fogline_cloud.commands.routes import STAY_S, Routes
from fogline_lab.events import make_event


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


def test_a_device_of_two_gateways_stays_with_the_first_until_it_is_silent(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    clock[0] += STAY_S
    assert routes.learn("gw-2", Batch.of([make_event()])) == []
    clock[0] += 1
    assert routes.learn("gw-2", Batch.of([make_event()])) == ["lamp-1"]
    assert routes.gateway_of("lamp-1") == "gw-2"


def test_a_device_that_announces_it_takes_commands_moves_at_once(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    assert routes.learn("gw-2", Batch.of([make_event(ttd=0)])) == []
    assert routes.learn("gw-2", Batch.of([make_event(ttd=-1)])) == ["lamp-1"]


def test_a_restored_route_gives_way_to_an_event(clock):
    routes = Routes()
    routes.recall("lamp-1", "gw-3", 1)
    routes.recall("lamp-1", "gw-1", 3)
    routes.recall("lamp-1", "gw-4", 2)
    assert routes.gateway_of("lamp-1") == "gw-1"
    assert routes.learn("gw-2", Batch.of([make_event()])) == ["lamp-1"]
    routes.recall("lamp-1", "gw-1", 4)
    assert routes.gateway_of("lamp-1") == "gw-2"


def test_b8_two_bridges_agree_on_the_gateway_of_a_device_that_moved(clock):
    here, there = Routes(), Routes()
    here.learn("gw-1", Batch.of([make_event()]))
    there.recall("lamp-1", "gw-1", here.written_ms("lamp-1"))
    clock[0] += STAY_S + 1
    assert there.learn("gw-2", Batch.of([make_event()])) == ["lamp-1"]
    here.recall("lamp-1", "gw-2", there.written_ms("lamp-1"))
    assert (here.gateway_of("lamp-1"), there.gateway_of("lamp-1")) == ("gw-2", "gw-2")
    there.recall("lamp-1", "gw-1", 1)  # a claim of before, read late
    assert there.gateway_of("lamp-1") == "gw-2"


def test_b8_a_claim_that_was_not_committed_is_written_again(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    clock[0] += STAY_S + 1
    assert routes.learn("gw-1", Batch.of([make_event()])) == ["lamp-1"]
    routes.recall("lamp-1", "gw-1", routes.written_ms("lamp-1"))
    clock[0] += 10 * STAY_S
    assert routes.learn("gw-1", Batch.of([make_event()])) == []


def test_b8_a_device_of_two_bridges_does_not_flap_between_them(clock):
    here, there = Routes(), Routes()
    here.learn("gw-1", Batch.of([make_event()]))
    there.recall("lamp-1", "gw-1", here.written_ms("lamp-1"))
    assert there.learn("gw-2", Batch.of([make_event()])) == []
    assert there.gateway_of("lamp-1") == "gw-1"


def test_a_gateway_that_makes_up_devices_pushes_out_its_own_routes_only(clock, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROUTES_A_GATEWAY", 10)
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    for number in range(50):
        routes.learn("gw-2", Batch.of([make_event(device="valve-1"), make_event(2, device=f"d-{number}")]))
    assert (routes.gateway_of("lamp-1"), routes.gateway_of("valve-1"), routes.gateway_of("d-0")) == ("gw-1", "gw-2", None)
    assert len(routes._routes) == 11


def test_beyond_the_limit_of_all_gateways_the_device_silent_for_longest_is_forgotten(clock, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROUTES", 10)
    routes = Routes()
    for number in range(50):
        routes.recall(f"d-{number}", f"gw-{number}", number)
        routes.learn("gw-1", Batch.of([make_event()]))
    assert sorted(routes._routes) == sorted(["lamp-1", *(f"d-{number}" for number in range(41, 50))])
    assert len(routes._by_gateway) == 10
    assert routes.learn("gw-3", Batch.of([make_event(device="d-0")])) == ["d-0"]


def test_threads_that_learn_at_once_leave_routes_within_the_limit(monkeypatch):
    monkeypatch.setattr(module, "MAX_ROUTES", 10)
    routes = Routes()

    def flood(gateway: str) -> None:
        for number in range(500):
            routes.learn(gateway, Batch.of([make_event(device=f"d-{number % 30}", ttd=-1)]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(flood, [f"gw-{number}" for number in range(4)]))
    assert len(routes._routes) == 10
    assert sum(map(len, routes._by_gateway.values())) == 10


def reply(sequence, state="EXPIRED"):
    """The end of a command, which the gateway reports."""
    return make_event(sequence, lane=Lane.REPLY, commandid="C1", commandstate=state, status=408)


def test_a_device_comes_back_to_the_gateway_where_it_reports_although_commands_end_at_another(clock):
    """It polled once at gw-2, and the commands that wait for it there expire one after the other."""
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    routes.learn("gw-2", Batch.of([make_event(ttd=1)]))
    assert routes.gateway_of("lamp-1") == "gw-2"
    moved_s = None
    for second in range(0, 60, 5):
        clock[0] += 5
        assert routes.learn("gw-2", Batch.of([reply(second + 1)])) == []
        if routes.learn("gw-1", Batch.of([make_event(second + 1)])):
            moved_s = second + 5
            break
    assert moved_s == STAY_S + 5


def test_a_poll_at_another_gateway_does_not_move_a_device_that_listens_and_reports(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event(ttd=-1)]))
    clock[0] += STAY_S
    routes.learn("gw-1", Batch.of([make_event(2)]))
    assert routes.learn("gw-2", Batch.of([make_event(ttd=1)])) == []
    assert routes.learn("gw-2", Batch.of([make_event(ttd=-1)])) == ["lamp-1"], "it listens there now"


@pytest.mark.parametrize("why", ["it has left", "it is silent"])
def test_a_poll_moves_a_device_that_no_longer_listens_elsewhere(clock, why):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event(ttd=-1)]))
    if why == "it has left":
        assert routes.learn("gw-1", Batch.of([make_event(2, ttd=0)])) == []
    else:
        clock[0] += STAY_S + 1
    assert routes.learn("gw-2", Batch.of([make_event(ttd=1)])) == ["lamp-1"]


def test_that_a_device_has_left_is_no_sign_of_it(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event()]))
    clock[0] += STAY_S
    routes.learn("gw-1", Batch.of([make_event(2, ttd=0)]))
    clock[0] += 1
    assert routes.learn("gw-2", Batch.of([make_event()])) == ["lamp-1"]
    assert routes.learn("gw-3", Batch.of([make_event(device="lamp-2", ttd=0)])) == []
    assert routes.gateway_of("lamp-2") is None


def test_the_end_of_a_command_makes_no_device_known(clock):
    routes = Routes()
    assert routes.learn("gw-1", Batch.of([reply(1, "SUCCEEDED")])) == []
    assert routes.gateway_of("lamp-1") is None


def test_of_several_announcements_in_a_batch_the_last_one_counts(clock):
    routes = Routes()
    routes.learn("gw-1", Batch.of([make_event(ttd=-1), make_event(2, ttd=0)]))
    assert routes.learn("gw-2", Batch.of([make_event(ttd=1)])) == ["lamp-1"]
