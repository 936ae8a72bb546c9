"""Rights that end while their holder is connected: a deleted user, another password, a grant that is taken away."""

import asyncio

import httpx
import pytest
from msgspec.structs import replace

from e2e.console_client import log_in, visitor
from e2e.http_api import COMMANDS, SWITCH, api, basic
from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.outcome import UNAUTHORIZED
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.process.files import tls_files
from fogline.process.files.tls_files import TlsSettings
from fogline_cloud.authority.ca_folder import ROOT
from fogline_cloud.bridge import bridge as bridge_module
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.settings import OperatorSettings
from fogline_lab.amqp import End, within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD
from fogline_lab.line.line import serving
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until_not

LIMIT_S = 60
DEVICE = '[[device]]\nname = "lock-*"\ngateways = ["gw-2"]\n'
GRANT = '[[operator]]\nname = "{0}"\ndevices = ["lamp-*"]\n'


@pytest.fixture
def guarded(line, monkeypatch):
    """A tenant with the users alice and bob, both of whom may send commands. Files are looked at often."""
    monkeypatch.setattr(bridge_module, "FILES_S", 0.1)
    monkeypatch.setattr(tls_files, "QUIET_S", 0.1)
    line, site = secure(line)
    access = line.folder / "access.toml"
    access.write_text(GRANT.format("alice") + GRANT.format("bob") + DEVICE)
    site.users.write_text("\n".join(password_line(name, PASSWORD) for name in ("alice", "bob")))
    line.cloud = replace(
        line.cloud,
        bridge=replace(line.cloud.bridge, access=str(access)),
        operator=OperatorSettings(tls=TlsSettings(ca=str(site.ca.path / ROOT))),
    )
    return line, site, access


async def dial(line, site, user) -> End:
    client = End()
    security = ClientSecurity(Login(PLAIN, user, PASSWORD), site.context())
    await connect(HERE, line.port, Engine(user, hostname=HERE, properties={"tenant": line.tenant}, security=security), client)
    await within(client.is_open.wait(), f"{user} is not let in: {client.why}")
    return client


def withdraw(site, how: str) -> None:
    """Delete alice, or change her password. Bob's line stays as it is."""
    bob = site.users.read_text().splitlines()[1]
    site.users.write_text(bob if how == "deleted" else password_line("alice", "another one") + "\n" + bob)


@pytest.mark.fault("S9")
@pytest.mark.parametrize("how", ["deleted", "changed"])
async def test_connection_of_a_deleted_user_or_changed_password_ends(guarded, how):
    line, site, _ = guarded
    async with serving(line):
        alice, bob = await dial(line, site, "alice"), await dial(line, site, "bob")
        withdraw(site, how)
        await within(alice.is_closed.wait(), "the connection stays open", LIMIT_S)
        assert UNAUTHORIZED in alice.why
        assert how in alice.why
        assert not bob.is_closed.is_set()
        bob.connection.close()
        await within(bob.is_closed.wait(), "the other connection does not close")


@pytest.mark.fault("S9")
async def test_the_links_of_a_client_whose_grant_was_taken_away_end(guarded):
    line, site, access = guarded
    async with serving(line) as bridge:
        alice, bob = await dial(line, site, "alice"), await dial(line, site, "bob")
        senders = []
        for each in (alice, bob):
            session = each.connection.open_session()
            each.connection.open_receiver(session, "replies", f"command_response/{line.tenant}/me", 1)
            senders.append(each.connection.open_sender(session, "commands", f"command/{line.tenant}", Share(), {}))
        await within(until(lambda: sum(len(peer.links) for peer in bridge.listener.peers) == 4), "the links are not attached")
        access.write_text(GRANT.format("bob") + DEVICE)
        await within(until(lambda: len(alice.link_conditions) == 2), "the links stay", LIMIT_S)
        assert {each.name for each in alice.link_conditions} == {UNAUTHORIZED}
        assert bob.link_conditions == []
        assert [each.closed for each in senders] == [True, False]
        for each in (alice, bob):
            each.connection.close()
            await within(each.is_closed.wait(), "the connection does not close")


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)


@pytest.mark.fault("S9")
async def test_event_stream_and_requests_of_a_deleted_user_end(guarded):
    line, site, _ = guarded
    async with serving(line), api(line) as found:
        for user in ("alice", "bob"):
            shown = await found.http.get("/v1/devices", headers=basic(user, PASSWORD))
            assert shown.status_code == 200
        async with (
            found.http.stream("GET", "/v1/events/stream", headers=basic("alice", PASSWORD)) as ending,
            found.http.stream("GET", "/v1/events/stream", headers=basic("bob", PASSWORD)) as staying,
        ):
            others = staying.aiter_lines()
            assert await anext(others) == ": fogline"
            withdraw(site, "deleted")
            await within(read_to_end(ending), "the stream does not end", LIMIT_S)
            refused = await found.http.post(COMMANDS, json=SWITCH, headers=basic("alice", PASSWORD))
            assert refused.status_code == 401
            following = asyncio.ensure_future(anext(others))
            assert not following.done()
            following.cancel()


@pytest.mark.fault("S9")
@pytest.mark.parametrize("how", ["deleted", "changed"])
async def test_session_at_the_page_ends_with_the_user_or_the_password(guarded, how):
    line, site, _ = guarded
    async with serving(line), api(line) as found, visitor(found) as alice, visitor(found) as bob:
        for each, user in ((alice, "alice"), (bob, "bob")):
            assert (await log_in(each, user)).status_code == 303
        withdraw(site, how)

        async def may_read() -> bool:
            return (await alice.get("/console/devices")).status_code == 200

        await until_not(may_read, "the session does not end")
        refused = await alice.get("/console/devices")
        assert (refused.status_code, refused.headers["location"]) == (303, "/console/login?next=%2Fconsole%2Fdevices")
        assert (await bob.get("/console/devices")).status_code == 200


async def read_to_end(stream: httpx.Response) -> None:
    async for _ in stream.aiter_lines():
        pass
