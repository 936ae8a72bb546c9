"""Devices behind a broker: which are known, which are reachable, and what is kept of them."""

from fogline_edge.profiles.broker_commands import directory as module
from fogline_edge.profiles.broker_commands import last_states
from fogline_edge.profiles.broker_commands.directory import Directory
from fogline_edge.profiles.broker_commands.last_states import LastStates


def test_device_is_reachable_while_nothing_says_that_it_is_offline():
    devices = Directory({})
    devices.hear("plug", "haus/plug")
    assert (devices.is_reachable("plug"), devices.take_changed()) == (True, {"plug"})
    devices.set_online("plug", "haus/plug", online=False)
    assert (devices.is_reachable("plug"), devices.take_changed(), devices.offline) == (False, {"plug"}, 1)
    devices.set_online("plug", "haus/plug", online=False)
    assert devices.take_changed() == set()


def test_notes_bring_names_and_offline_devices_back_after_a_restart():
    devices = Directory({})
    devices.hear("plug", "haus/plug")
    devices.hear("lamp", "lamp")
    devices.set_online("lamp", "lamp", online=False)
    again = Directory(devices.take_unkept())
    assert (again.name_of("plug"), again.is_reachable("plug"), again.is_reachable("lamp")) == ("haus/plug", True, False)
    assert again.take_unkept() == {}


def test_listed_devices_are_those_of_the_list_and_gone_ones_lose_their_notes():
    devices = Directory({"lamp": b'{"name":"lamp","online":false}', "old": b"?"}, listed=True, program="bridge")
    assert list(devices) == []
    devices.replace({"lamp": "my lamp", "plug": "plug"})
    assert (devices.is_reachable("lamp"), devices.is_reachable("plug")) == (False, True)
    devices.replace({"plug": "plug"})
    assert (devices.take_unkept(), devices.name_of("lamp")) == ({"lamp": None}, None)


def test_without_its_program_no_device_is_reachable_and_all_have_changed():
    devices = Directory({}, listed=True, program="bridge")
    devices.replace({"lamp": "lamp", "plug": "plug", "bridge": "bridge"})
    devices.take_changed()
    devices.set_online("bridge", "bridge", online=False)
    assert devices.take_changed() == {"lamp", "plug", "bridge"}
    assert not any(map(devices.is_reachable, devices))


def test_devices_and_notes_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_NAMES", 2)
    devices = Directory({})
    for name in "abc":
        devices.hear(name, name)
        devices.set_online(name, name, online=False)
    assert (list(devices), set(devices.take_unkept())) == (["a", "b"], {"a", "b"})


def test_last_states_are_bounded_in_number_and_size(monkeypatch):
    monkeypatch.setattr(last_states, "MAX_STATES", 2)
    states = LastStates()
    for topic in "abc":
        states.note(topic, b"x")
    states.note("b", b"x" * (last_states.MAX_STATE_BYTES + 1))
    assert [states.get(topic) for topic in "abc"] == [b"", b"", b"x"]
