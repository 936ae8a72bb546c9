"""Logins at a bridge that answers each by its password."""

import asyncio
import base64
from collections import Counter
from typing import ClassVar

import pytest

from fogline.amqp.security import ClientSecurity
from fogline.errors import Unreachable
from fogline.process.files.tls_files import TlsSettings, client_context
from fogline.process.login_turns import MAX_OF_ADDRESS
from fogline_cloud.api import logins
from fogline_cloud.api.logins import Logins
from fogline_cloud.api.problems import Problem
from fogline_cloud.api.user_session import WrongPassword
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import now_utc


class FakeSession:
    """Stands for a connection: the password tells how the bridge answers."""

    opened: ClassVar[list[str]] = []
    gate: ClassVar[asyncio.Event]

    def __init__(self, _, __, security, ___):
        self._login = security.login
        self.is_closed, self.retired = False, False
        self.opened_s = asyncio.get_running_loop().time()

    async def open(self, *_):
        self.opened.append(self._login.user)
        if self._login.password == "slow":
            await self.gate.wait()
        if self._login.password == "wrong":
            raise WrongPassword
        if self._login.password == "away":
            raise Unreachable("no connection")

    def retire(self):
        self.retired = True


def login(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def security(folder):
    ca = CaFolder.make(folder / "ca", "acme", now_utc(), 1)
    return ClientSecurity(tls=client_context(TlsSettings(ca=str(ca.path / ROOT)), "test"))


async def status(made, authorization, address="192.0.2.1"):
    try:
        await made.user(authorization, address)
    except Problem as error:
        return error.status
    return 200


async def test_logins_are_bounded_and_a_wrong_password_is_not_asked_twice(security, monkeypatch):
    monkeypatch.setattr(logins, "UserSession", FakeSession)
    monkeypatch.setattr(logins, "MAX_SESSIONS", 2)
    FakeSession.opened, FakeSession.gate = [], asyncio.Event()
    made = Logins("acme", "127.0.0.1", 1, security, lambda _, __: None)
    first = (await made.user(login("a", "right"), "192.0.2.1")).session
    assert (await made.user(login("a", "right"), "192.0.2.1")).session is first
    assert [await status(made, login("a", "wrong")) for _ in range(3)] == [401] * 3
    assert FakeSession.opened == ["a", "a"]
    assert await status(made, login("b", "away")) == 503
    for name in ("b", "c"):
        assert await status(made, login(name, "right")) == 200
    assert (len(made), first.retired) == (2, True)
    assert [await status(made, each) for each in (None, "Basic", "Basic x", "Bearer x", login("a b", ""))] == [401] * 5


@pytest.mark.fault("S7")
async def test_logins_wait_behind_those_of_their_own_address_and_busy_is_503_and_forgotten(security, monkeypatch):
    monkeypatch.setattr(logins, "UserSession", FakeSession)
    FakeSession.opened, FakeSession.gate = [], asyncio.Event()
    made = Logins("acme", "127.0.0.1", 1, security, lambda _, __: None)
    flood = [asyncio.create_task(status(made, login(f"s{number}", "slow"))) for number in range(MAX_OF_ADDRESS + 30)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(FakeSession.opened) == logins.MAX_LOGINS
    with pytest.raises(Problem) as busy:
        await made.user(login("d", "right"), "192.0.2.1")
    assert (busy.value.status, busy.value.headers["retry-after"]) == (503, "1")
    user = asyncio.create_task(status(made, login("e", "right"), "192.0.2.2"))
    await asyncio.sleep(0)
    FakeSession.gate.set()
    assert await user == 200
    assert FakeSession.opened.index("e") <= logins.MAX_LOGINS + 1
    assert Counter(await asyncio.gather(*flood)) == {200: logins.MAX_LOGINS + MAX_OF_ADDRESS, 503: 30 - logins.MAX_LOGINS}
    assert await status(made, login("d", "right")) == 200
