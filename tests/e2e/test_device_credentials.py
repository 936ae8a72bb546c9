"""Keys of devices on a real broker: from the command line to the gateways that may hear the device, and to no other reader."""

import base64
import json
import logging

import pytest
from msgspec.structs import replace

from edge.coap.client import request
from edge.coap.dtls_wire import secure_wire, secured
from fogline.commands.signature import make_key, read_keys
from fogline.gateway.device_credentials import PskKey
from fogline_cloud.audit.record import decode_audit
from fogline_cloud.credentials.vault import make_vault_key
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.settings import DeviceSettings
from fogline_edge.adapters.coap.wire import Code
from fogline_edge.credentials.credential_file import FILE, CredentialFile
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_lab.gateway.keyed_gateway import keyed_gateway
from fogline_lab.line.line import serving
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import until


@pytest.fixture
def keyed(line):
    """A tenant whose bridge keeps keys of devices."""
    file = line.folder / "credentials.key"
    file.write_text(make_vault_key() + "\n")
    file.chmod(0o600)
    line.cloud = replace(line.cloud, devices=DeviceSettings(credentials_key=str(file)))
    return line


async def gives(fogline, *words: str):
    """The credential that the command line prints."""
    status, out, err = await fogline("device", "credentials", *words, "--json")
    found = json.loads(out) if out else {"why": err}
    assert (status, found.get("ok")) == (0, True), found
    return found.get("credential")


def identities(store: CredentialStore) -> set[str]:
    return {key.identity for each in store.all for key in each.keys if isinstance(key, PskKey)}


async def test_a_key_reaches_the_gateway_is_rotated_and_revoked_and_shows_nowhere(keyed, fogline, caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(keyed), keyed_gateway(keyed.settings()) as store:
        first = await gives(fogline, "add", "lamp-1", "--kind", "psk")
        await until(lambda: identities(store) == {"lamp-1"}, "the gateway does not get the key")
        second = await gives(fogline, "rotate", "lamp-1")
        await until(lambda: identities(store) == {"lamp-1", second["identity"]}, "the gateway does not get the second key")
        assert store.psk(b"lamp-1") is not None
        third = await gives(fogline, "add", "lamp-2", "--kind", "oscore")
        _, out, _ = await fogline("device", "credentials", "list", "--json")
        (lamp, other) = json.loads(out)
        assert [(each["number"], each["kind"], each["until"] is None) for each in lamp["keys"]] == [
            (1, "psk", False),
            (2, "psk", True),
        ]
        assert [each["kind"] for each in other["keys"]] == ["oscore"]
        await gives(fogline, "revoke", "lamp-1", "--number", "1")
        await until(lambda: identities(store) == {second["identity"]}, "the key is not revoked at the gateway")
        await gives(fogline, "revoke", "lamp-1")
        await until(lambda: not identities(store), "the keys are not revoked at the gateway")
        assert store.is_protected("lamp-1")
        await gives(fogline, "revoke", "lamp-1", "--unprotect")
        await until(lambda: not store.is_protected("lamp-1"), "the device is still protected")
        table = (await fogline("device", "credentials", "list"))[1]
    secrets = [first["key"], second["key"], third["secret"], third["salt"]]
    kafka = KafkaClients(keyed.cloud.kafka)
    places = {(each.name, part): None for each in topics.all_topics(keyed.tenant, 2) for part in range(each.partitions)}
    values = [each.value for each in read_committed(kafka, places)]
    for text in (caplog.text.encode(), out.encode(), table.encode(), *values):
        assert not any(secret.encode() in text for secret in secrets)
    noted = [
        decode_audit(each.value) for each in read_committed(kafka, {(topics.audit(keyed.tenant), n): None for n in (0, 1)})
    ]
    assert [each.decision for each in noted if each.device == "lamp-1"] == [
        "DEVICE ADD KEY",
        "DEVICE ROTATE KEY",
        "DEVICE REVOKE KEYS",
        "DEVICE REVOKE KEYS",
        "DEVICE REVOKE KEYS",
    ]


@pytest.mark.fault("S11")
async def test_a_session_over_dtls_lasts_as_long_as_its_key(keyed, fogline):
    async with serving(keyed), keyed_gateway(keyed.settings()) as store, secured(MemoryPort(), store) as listener:
        first = base64.b64decode((await gives(fogline, "add", "lamp-1", "--kind", "psk"))["key"])
        await until(lambda: identities(store) == {"lamp-1"}, "the gateway does not get the key")
        second = await gives(fogline, "rotate", "lamp-1")
        await until(lambda: second["identity"] in identities(store), "the gateway does not get the second key")
        address, new = listener.addresses["coaps"], base64.b64decode(second["key"])
        with (
            secure_wire(address, "lamp-1", first) as old_session,
            secure_wire(address, second["identity"], new) as new_session,
        ):
            assert await old_session.handshake()
            assert await new_session.handshake()
            await gives(fogline, "revoke", "lamp-1", "--number", "1")
            await old_session.ended()
            assert (await new_session.ask(request("t"))).code == Code.CHANGED
        with secure_wire(address, "lamp-1", first) as late:
            assert not await late.handshake()


async def test_a_gateway_that_was_offline_works_with_what_it_has_and_learns_of_a_revocation_when_it_comes(
    keyed, fogline, caplog
):
    caplog.set_level(logging.INFO)

    async with serving(keyed):
        async with keyed_gateway(keyed.settings()) as store:
            await gives(fogline, "add", "lamp-1", "--kind", "psk")
            await gives(fogline, "add", "lamp-2", "--kind", "psk")
            await until(lambda: identities(store) == {"lamp-1", "lamp-2"}, "the gateway does not get the keys")
        file = keyed.folder / "gw-1" / FILE
        assert file.stat().st_mode & 0o777 == 0o600
        offline = CredentialFile(keyed.folder / "gw-1", f"{keyed.tenant}/gw-1").read()
        assert offline.psk(b"lamp-1") is not None
        await gives(fogline, "revoke", "lamp-1")
    async with serving(keyed), keyed_gateway(keyed.settings()) as store:  # another bridge, which has read the topic
        await until(lambda: identities(store) == {"lamp-2"}, "the gateway does not learn of the revocation")
    caplog.clear()
    async with serving(keyed), keyed_gateway(keyed.settings()) as store:
        await gives(fogline, "add", "lamp-3", "--kind", "psk")
        await until(lambda: "lamp-3" in identities(store), "the gateway does not get the key")
    sent = [each.message for each in caplog.records if each.message.startswith("the bridge has sent credentials")]
    assert sent == ["the bridge has sent credentials: 3 devices have keys"]  # all else was there


async def test_only_gateways_that_may_hear_the_device_get_its_key(keyed, fogline):
    access = keyed.folder / "access.toml"
    access.write_text('[[admin]]\nname = "*"\n[[device]]\nname = "lamp-*"\ngateways = ["gw-1"]\n')
    keyed.cloud = replace(keyed.cloud, bridge=replace(keyed.cloud.bridge, access=str(access)))
    async with (
        serving(keyed) as bridge,
        keyed_gateway(keyed.settings()) as near,
        keyed_gateway(keyed.settings("gw-2")) as far,
    ):
        await gives(fogline, "add", "lamp-1", "--kind", "psk")
        await gives(fogline, "add", "pump-1", "--kind", "psk")
        await until(lambda: identities(near) == {"lamp-1", "pump-1"}, "the gateway does not get the keys")
        await until(lambda: identities(far) == {"pump-1"}, "the other gateway does not get its key")
        access.write_text('[[admin]]\nname = "*"\n[[device]]\nname = "lamp-*"\ngateways = ["gw-2"]\n')
        bridge.read_again()
        await until(lambda: identities(near) == {"pump-1"}, "the gateway keeps a key of a device that is no longer its own")
        await until(lambda: identities(far) == {"lamp-1", "pump-1"}, "the device's new gateway does not get its key")


async def test_keys_that_are_not_signed_by_a_known_key_count_nowhere(keyed, fogline):
    private, public = make_key()
    (keyed.folder / "signing.key").write_text(private)
    commands = replace(keyed.cloud.commands, signing_key=str(keyed.folder / "signing.key"), key_id="k1")
    strict, foreign = read_keys({"k1": public}, "keys"), read_keys({"k1": make_key()[1]}, "keys")
    keyed.cloud = replace(keyed.cloud, commands=commands)
    async with (
        serving(keyed),
        keyed_gateway(keyed.settings(), strict) as trusting,
        keyed_gateway(keyed.settings("gw-2"), foreign) as doubting,
    ):
        await gives(fogline, "add", "lamp-1", "--kind", "psk")
        await until(lambda: identities(trusting) == {"lamp-1"}, "the gateway does not get the key")
        assert identities(doubting) == set()


async def test_a_bridge_without_a_key_for_them_neither_takes_keys_nor_takes_them_away(keyed, fogline):
    async with serving(keyed), keyed_gateway(keyed.settings()) as store:
        await gives(fogline, "add", "lamp-1", "--kind", "psk")
        await until(lambda: identities(store) == {"lamp-1"}, "the gateway does not get the key")
    keyed.cloud = replace(keyed.cloud, devices=DeviceSettings())
    async with serving(keyed) as bridge, keyed_gateway(keyed.settings()) as store:
        status, _, err = await fogline("device", "credentials", "add", "lamp-2", "--kind", "psk")
        assert (status, "set devices.credentials_key" in err) == (1, True)
        assert "no devices.credentials_key" in bridge._keys.table.problem
        assert identities(store) == {"lamp-1"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "lamp-1"), "--kind: choose psk"),
        (("add", "lamp-1", "--kind", "psk", "--identity", "other"), "the identity of a key is lamp-1, or lamp-1/"),
        (("add", "lamp-1", "--from", "missing.json"), "--from: cannot read missing.json"),
    ],
    ids=str,
)
async def test_wrong_input_is_one_sentence_and_status_2(line, fogline, words, says):
    status, _, err = await fogline("device", "credentials", *words)
    assert (status, err.count("\n")) == (2, 1)
    assert says in err


async def test_devices_need_a_new_identity_and_known_numbers(keyed, fogline):
    async with serving(keyed):
        await gives(fogline, "add", "lamp-1", "--kind", "psk")
        for words, says in (
            (("add", "lamp-1", "--kind", "psk"), "identity lamp-1 is in use"),
            (("revoke", "lamp-1", "--number", "2"), "device lamp-1 has no key 2"),
            (("revoke", "lamp-2"), "device lamp-2 has no key"),
            (("rotate", "lamp-1", "--kind", "oscore"), "has no key of this kind"),
        ):
            status, _, err = await fogline("device", "credentials", *words)
            assert (status, says in err) == (1, True), err
        assert (await fogline("device", "credentials", "revoke", "lamp-1", "--number", "1"))[0] == 0
        assert (await fogline("device", "credentials", "revoke", "lamp-1", "--number", "1"))[0] == 0  # a copy of the message
