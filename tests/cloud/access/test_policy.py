"""The policy by itself. tests/e2e/test_access.py has peers that try."""

import pytest

from fogline.address import (
    CommandAddress,
    Control,
    DeviceAddress,
    EnrollAddress,
    HelloAddress,
    IngestAddress,
    Relay,
    Reports,
    shard_of,
)
from fogline.errors import Misconfigured
from fogline_cloud.access.access_file import (
    AccessFile,
    AdminGrant,
    DeviceBinding,
    ManagerGrant,
    OperatorGrant,
    Permissions,
    loosened,
    read_permissions,
)
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal, PrincipalKind


def peer(kind=PrincipalKind.CLIENT, name="alice", tenant="t"):
    return Principal(kind, tenant, name, "certificate")


def test_a_gateway_speaks_for_itself_only():
    policy, gateway = Policy("t", 8), peer(PrincipalKind.GATEWAY, "gw-1")
    own = shard_of("gw-1", 8)
    assert policy.may(gateway, Action.SEND, HelloAddress("t"))
    assert policy.may(gateway, Action.SEND, IngestAddress("t", own))
    assert policy.may(gateway, Action.RECEIVE, Control("t", "gw-1"))
    assert not policy.may(gateway, Action.SEND, IngestAddress("t", (own + 1) % 8))
    assert not policy.may(gateway, Action.RECEIVE, Control("t", "gw-2"))
    assert not policy.may(gateway, Action.SEND, Control("t", "gw-1"))
    assert not policy.may(gateway, Action.SEND, HelloAddress("other"))
    assert not Policy("t", 8, frozenset({"gw-2"})).may(gateway, Action.SEND, HelloAddress("t"))


def test_without_a_file_a_client_may_send_commands_and_events_and_nothing_of_a_gateway():
    policy = Policy("t", 8)
    assert policy.may(peer(), Action.SEND, CommandAddress("t", "lamp-1"), "switch")
    assert policy.may(peer(), Action.SEND, Reports("telemetry", "t", "lamp-1"))
    for address in (HelloAddress("t"), IngestAddress("t", 0), Control("t", "gw-1"), EnrollAddress("t", "alice")):
        assert not any(policy.may(peer(), action, address) for action in Action)


def test_a_client_reads_the_commands_that_it_may_send():
    grants = AccessFile(operator=[OperatorGrant(name="alice", devices=["lamp-*"], commands=["switch"])])
    policy = Policy("t", 8, access=lambda: Permissions(grants))
    for action in Action:
        assert policy.may(peer(), action, CommandAddress("t", "lamp-1"), "switch")
        assert policy.may(peer(), action, CommandAddress("t", ""))
        assert not policy.may(peer(), action, CommandAddress("t", "lamp-1"), "reboot")
        assert not policy.may(peer(), action, CommandAddress("t", "door-1"), "switch")
        assert not policy.may(peer(name="bob"), action, CommandAddress("t", ""))
        assert not policy.may(peer(PrincipalKind.DEVICE, "lamp-1"), action, CommandAddress("t", "lamp-1"), "switch")
        assert not policy.may(peer(PrincipalKind.GATEWAY, "gw-1"), action, CommandAddress("t", "lamp-1"), "switch")
    assert not policy.may(peer(tenant="other"), Action.RECEIVE, CommandAddress("t", ""))


def test_a_device_reports_about_itself_only():
    policy, lamp = Policy("t", 8), peer(PrincipalKind.DEVICE, "lamp-1")
    assert policy.may(lamp, Action.SEND, Reports("event", "t", "lamp-1"))
    assert policy.may(lamp, Action.SEND, Relay("t"))
    assert not policy.may(lamp, Action.SEND, Reports("event", "t", "lamp-2"))
    assert not policy.may(lamp, Action.SEND, CommandAddress("t", "lamp-1"), "switch")


def test_the_first_entry_of_a_device_counts_and_a_gateway_is_its_own_device():
    bindings = [DeviceBinding(name="lock-7", gateways=["gw-2"]), DeviceBinding(name="lock-*", gateways=["gw-1"])]
    access = Permissions(AccessFile(device=bindings, devices_without_entry="none"))
    policy = Policy("t", 8, access=lambda: access)
    assert [policy.may_speak_for("gw-1", each) for each in ("lock-1", "lock-7", "lamp-1", "gw-1")] == [True, False, False, True]
    assert policy.may_speak_for("gw-2", "lock-7")


def test_a_manager_changes_its_devices_and_an_operator_reads_those_that_it_commands():
    grants = AccessFile(
        manager=[ManagerGrant(name="bob", devices=["lamp-*"])],
        operator=[OperatorGrant(name="alice", devices=["lamp-1"], commands=["switch"])],
        admin=[AdminGrant(name="root")],
    )
    access = Permissions(grants)
    policy = Policy("t", 8, access=lambda: access)

    def may(name, action, device, command=""):
        return policy.may(peer(name=name), action, DeviceAddress("t", device), command)

    assert [may(each, Action.SEND, "lamp-1") for each in ("bob", "alice", "root", "eve")] == [True, False, True, False]
    assert [may(each, Action.RECEIVE, "lamp-1") for each in ("bob", "alice", "root", "eve")] == [True, True, True, False]
    assert [may(each, Action.RECEIVE, "lamp-2") for each in ("bob", "alice")] == [True, False]
    assert [may("alice", Action.SEND, "lamp-1", each) for each in ("switch", "reset")] == [True, False]
    assert not may("bob", Action.SEND, "lock-1")
    assert not policy.may(peer(PrincipalKind.DEVICE, "lamp-1"), Action.SEND, DeviceAddress("t", "lamp-1"))
    assert not policy.may(peer(PrincipalKind.GATEWAY, "gw-1"), Action.SEND, DeviceAddress("t", "lamp-1"))


def test_two_grants_do_not_mix():
    """Who may dim one lamp and switch another may not switch the first."""
    grants = [
        OperatorGrant(name="alice", devices=["lamp-1"], commands=["dim"]),
        OperatorGrant(name="alice", devices=["lamp-2"], commands=["switch"]),
    ]
    access = Permissions(AccessFile(operator=grants))
    allowed = [
        (device, name)
        for device in ("lamp-1", "lamp-2")
        for name in ("dim", "switch")
        if access.may_command("alice", device, name)
    ]
    assert allowed == [("lamp-1", "dim"), ("lamp-2", "switch")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[operator]]\nname = "alice"\n', "missing key `devices` in [operator[0]]"),
        ('[[operator]]\nname = "alice"\ndevices = []\n', "key `operator[0].devices`: "),
        ('[[operator]]\nname = "a b"\ndevices = ["*"]\n', "key `operator[0].name`: "),
        ('[[operators]]\nname = "alice"\n', "unknown key `operators`"),
        ('[[device]]\nname = "lock-1"\ngateway = "gw-1"\n', "unknown key `gateway` in [device[0]]"),
        ('[[quota]]\nkind = "operator"\n', "key `quota[0].kind`: "),
        ('[[quota]]\nkind = "client"\nevents_s = 0\n', "key `quota[0].events_s`: "),
        ('devices_without_entry = "first"\n', "key `devices_without_entry`: "),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, why):
    (tmp_path / "access.toml").write_text(text)
    with pytest.raises(Misconfigured) as error:
        read_permissions(str(tmp_path / "access.toml"))
    assert str(error.value).startswith(f"{tmp_path}/access.toml: ")
    assert why in str(error.value)


BOUND = """[[operator]]
name = "alice"
devices = ["lamp-*"]

[[device]]
name = "lock-*"
gateways = ["gw-2"]
"""


@pytest.mark.fault("S9")
@pytest.mark.parametrize("text", [BOUND, 'devices_without_entry = "none"\n' + BOUND, BOUND + "\n[[admin]]\nname = 'root'\n"])
def test_no_cut_of_a_file_lets_every_gateway_speak_for_a_device_that_was_bound(folder, text):
    path = folder / "access.toml"
    path.write_text(text)
    former, taken = read_permissions(str(path)), 0
    for end in range(len(text)):
        path.write_text(text[:end])
        try:
            new = read_permissions(str(path))
        except Misconfigured:
            continue
        if not loosened(former, new):
            taken += 1
            assert not new.may_speak_for("gw-1", "lock-1")
    assert taken, "no part of the file is a file"


def test_a_file_may_bind_devices_anew_and_a_file_without_bindings_may_stay_so():
    free, bound = Permissions(AccessFile()), Permissions(AccessFile(device=[DeviceBinding(name="a", gateways=["gw-1"])]))
    strict = Permissions(AccessFile(devices_without_entry="none"))
    harmless = [(free, free), (free, bound), (free, strict), (bound, strict), (strict, bound)]
    assert [loosened(*each) for each in harmless] == [""] * 5
    assert "half written" in loosened(bound, free)
    assert "half written" in loosened(strict, free)
