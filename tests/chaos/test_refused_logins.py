"""S5: thousands of peers that do not prove their names leave nothing at a bridge process, and a good gateway is served."""

import asyncio
import contextlib
from itertools import cycle, islice

import pytest

from chaos.protected import protected
from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import EXTERNAL, PLAIN, Login
from fogline.amqp.security import ClientSecurity
from fogline.errors import Unreachable
from fogline.gateway import hello
from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_lab.amqp import End, within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD, certified
from fogline_lab.credentials.authority_folder import AuthorityFolder as Authority
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.memory import resident_bytes
from fogline_lab.supervisor import start_child
from fogline_lab.waiting import until
from fuzz import live

LOGINS = 10_000
FIRST = 3_000
"""Until the heap has room for all that are open at once."""


@pytest.fixture
def site(kafka, tenant, folder):
    return ProcessLine(tenant, folder, kafka.bootstrap, shards=2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("S5")
async def test_10000_refused_logins_leave_nothing_behind_and_a_good_gateway_is_served(site):
    authority = Authority(site.folder, site.tenant)
    bridge = protected(site, authority)
    wrong = peers(authority)
    good = authority.files(Role.GATEWAY, "gw-1")
    try:
        await start_child(bridge)
        await site.shared("b-1")

        async def one(security: ClientSecurity) -> None:
            peer, properties = End(), {"tenant": site.tenant, "product": hello.PRODUCT}
            engine = Engine("gw-1", hostname=HERE, properties=properties, security=security)
            with contextlib.suppress(Unreachable):
                connection = await connect(HERE, site.ports["b-1"], engine, peer)
                await within(peer.is_closed.wait(), "a peer is let in", 60)
                connection.abort()

        await live.for_each(islice(cycle(wrong), FIRST), one)
        usual = await site.time_a_gateway(name="gw-1", tls=good)
        before, memory = await live.census(bridge), resident_bytes(bridge.pid)
        storm = asyncio.create_task(live.for_each(islice(cycle(wrong), LOGINS), one))
        took = await site.time_a_gateway(name="gw-1", tls=good)
        assert not storm.done(), "the good gateway is served after all that are refused"
        count = await storm
        after = await live.settled(bridge, before)
        grown = await live.growth(bridge, memory, lambda: live.for_each(islice(cycle(wrong), LOGINS), one))
        print(
            f"{count} logins refused; a good gateway in {took:.2f} s beside them, {usual:.2f} s before; {grown / 1e6:+.1f} MB"
        )
        assert live.unhandled(bridge.log.read_text("utf-8", "replace")) == []
        assert after["connections"] == before["connections"]
        assert grown < live.FLAT_BYTES
        await until(only_the_good_one(site), "something of the refused peers is in Kafka")
    finally:
        await site.close()


def peers(authority: Authority) -> list[ClientSecurity]:
    """One of each kind that is refused; a wrong password costs the bridge 50 ms, so it is one of many."""
    other = CaFolder.make(authority.folder / "other", authority.tenant, now_utc(), 1)
    revoked = authority.client(Role.GATEWAY, "gw-1")
    authority.ca.revoke("gw-1", now_utc(), 1)
    kinds = [
        ClientSecurity(),
        ClientSecurity(Login(EXTERNAL), authority.context()),
        ClientSecurity(Login(), authority.context()),
        certified(authority.files(Role.GATEWAY, "gw-1", ca=other)),
        certified(authority.files(Role.GATEWAY, "gw-1", later_days=-2)),
        authority.client(Role.GATEWAY, "gw-2"),
        authority.client(Role.OPERATOR, "gw-1"),
        revoked,
    ]
    return [*kinds * 4, ClientSecurity(Login(PLAIN, "alice", PASSWORD[::-1]), authority.context())]


def only_the_good_one(site: ProcessLine):
    async def so() -> bool:
        landed = await asyncio.to_thread(site.landed)
        return set(landed) == {("gw-1", 1)}

    return so
