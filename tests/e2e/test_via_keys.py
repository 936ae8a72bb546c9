"""Keys of devices by way of a router: they reach the gateway, count until they are revoked, and the router reads none."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from fogline.amqp.wire import decode
from fogline.gateway.credential_transfer import is_credentials
from fogline.gateway.device_credentials import PskKey
from fogline_cloud.authority.certificates import Role
from fogline_cloud.cli.main import main
from fogline_cloud.credentials.vault import make_vault_key
from fogline_cloud.settings import DeviceSettings
from fogline_lab.credentials.authority_folder import HERE
from fogline_lab.gateway.keyed_gateway import keyed_gateway
from fogline_lab.intermediary.hostile_router import HostileRouter
from fogline_lab.intermediary.mischief import Mischief
from fogline_lab.intermediary.router import Router
from fogline_lab.line.line import serving
from fogline_lab.line.via_line import behind
from fogline_lab.waiting import until


@pytest.fixture
def keyed(line):
    """A tenant whose bridge keeps keys of devices."""
    file = line.folder / "credentials.key"
    file.write_text(make_vault_key() + "\n")
    file.chmod(0o600)
    line.cloud = replace(line.cloud, devices=DeviceSettings(credentials_key=str(file)))
    return line


@asynccontextmanager
async def keys_by_way_of(router, line, capsys):
    """A bridge, and the command line of an operator with a certificate. Yields what runs a command."""
    _, site = behind(line, router.port)
    tls = site.files(Role.OPERATOR, "alice")

    async def run(*words: str):
        config = line.folder / "operator.toml"
        files = f'{{ ca = "{tls.ca}", certificate = "{tls.certificate}", key = "{tls.key}" }}'
        config.write_text(f'tenant = "{line.tenant}"\n[operator]\nbridge = "{HERE}:{line.port}"\ntls = {files}\n')
        status = await asyncio.to_thread(main, ["device", "credentials", *words, "--json", "--config", str(config)])
        printed = capsys.readouterr()
        found = json.loads(printed.out or "{}")
        assert (status, found.get("ok")) == (0, True), printed.err
        return found.get("credential")

    async with serving(line) as run.bridge:
        yield run


REFUSED = "does not take keys"  # the bridge tries again until the number of its message fits: for hours, after many messages


def identities(store):
    return {key.identity for each in store.all for key in each.keys if isinstance(key, PskKey)}


async def test_keys_reach_a_gateway_behind_a_router_and_end_there(keyed, capsys):
    async with Router() as router, keys_by_way_of(router, keyed, capsys) as run:
        await run("add", "lamp-1", "--kind", "psk")
        async with keyed_gateway(keyed.settings()) as store:
            await until(lambda: identities(store) == {"lamp-1"}, "the gateway does not get the key that was there")
            second = await run("rotate", "lamp-1")
            await until(lambda: identities(store) == {"lamp-1", second["identity"]}, "the gateway does not get the new key")
            await run("revoke", "lamp-1", "--number", "1")
            await until(lambda: identities(store) == {second["identity"]}, "the key is not revoked at the gateway")
            assert "it was revoked or replaced (key 1 of lamp-1" in store.reasons.of_psk(b"lamp-1")
        await run("revoke", "lamp-1")
        async with keyed_gateway(keyed.settings()) as store:
            await until(lambda: not identities(store), "a gateway that was away does not learn of the revocation")
            assert store.is_protected("lamp-1")


def keys_sent(enemy) -> int:
    """The messages with keys that came to the router."""
    return sum(each.address.startswith("control/") and is_credentials(decode(each.data)) for each in enemy.passed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Mischief))
async def test_an_enemy_at_the_router_neither_reads_nor_changes_keys_nor_keeps_them_away(keyed, capsys, caplog, kind):
    """He does his mischief to one message with keys, and to none from then on."""
    async with HostileRouter(61) as router, keys_by_way_of(router, keyed, capsys) as run:
        first = await run("add", "lamp-1", "--kind", "psk")
        async with keyed_gateway(keyed.settings()) as store:
            await until(lambda: identities(store) == {"lamp-1"}, "the gateway does not get the key")
            enemy = router.enemy
            before = keys_sent(enemy)
            enemy.kinds, enemy.share, enemy.places = [kind], 1.0, ("control/",)
            second = await run("rotate", "lamp-1", "--overlap", "0s")
            await until(lambda: keys_sent(enemy) > before, "no message with keys comes to the router")
            enemy.truce()
            wanted = {second["identity"]}
            await until(lambda: identities(store) == wanted, "the gateway does not get the key after a truce", 120)
            enemy.replay("control/")
            await run("add", "lamp-2", "--kind", "psk")
            wanted.add("lamp-2")
            await until(lambda: identities(store) == wanted, "the gateway takes no change after a replay", 120)
            assert store.psk(b"lamp-1") is None
        assert REFUSED not in caplog.text
        passed = b"".join(each.data for each in enemy.passed)
        for each in (first, second):
            assert each["key"].encode() not in passed
            assert base64.b64decode(each["key"]) not in passed


async def test_a_gateway_that_lost_another_message_goes_on_with_its_keys(keyed, capsys, caplog):
    """What was lost is sent again on the same connection: the keys too, whose messages are numbered."""
    async with Router() as router, keys_by_way_of(router, keyed, capsys) as run:
        await run("add", "lamp-1", "--kind", "psk")
        async with keyed_gateway(keyed.settings()) as store:
            await until(lambda: identities(store) == {"lamp-1"}, "the gateway does not get the key")
            run.bridge._on_welcomed(run.bridge.gateways.get("gw-1"))  # as after a lost message
            await run("add", "lamp-2", "--kind", "psk")
            await until(lambda: identities(store) == {"lamp-1", "lamp-2"}, "the gateway gets no keys any more")
        assert REFUSED not in caplog.text
