"""Who may send for which device."""

from pathlib import Path

import pytest

from edge.http.client import basic, request
from fogline.errors import Misconfigured
from fogline.process.files import tls_files
from fogline_edge.adapters.http.access import check_http
from fogline_edge.settings import HttpSettings
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually


@pytest.fixture
def users(folder):
    return password_file(folder, **{"lamp-1": "one", "hub": "one"})


async def test_a_device_sends_for_itself_and_for_those_of_the_acl(listening, dial, users):
    port = MemoryPort()
    async with listening(port, users=users, acl={"hub": ["lamp-*"]}) as listener, dial(listener) as talker:
        for path, user, status in (
            ("/telemetry", "lamp-1", 202),
            ("/e", "lamp-1@acme", 202),
            ("/t//lamp-1", "lamp-1", 202),
            ("/t//lamp-2", "lamp-1", 403),
            ("/t//lamp-2", "hub", 202),
            ("/t//oven-1", "hub", 403),
        ):
            response = await talker.ask(request(path, authorization=basic(user)))
            assert (path, user, response.status) == (path, user, status)
    assert [each.device for each in port.arrivals] == ["lamp-1", "lamp-1", "lamp-1", "lamp-2"]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer abc",
        "Basic",
        "Basic ###",
        "Basic bGFtcC0x",
        "Basic /////w==",
        basic("lamp-1", "two"),
        basic("nobody"),
        basic("a b"),
        basic("lamp-1@other"),
    ],
    ids=str,
)
async def test_without_a_login_it_is_401_before_the_body_is_read(listening, dial, users, authorization):
    port = MemoryPort()
    headers = {} if authorization is None else {"authorization": authorization}
    async with listening(port, users=users) as listener, dial(listener) as talker:
        response = await talker.ask(request("/telemetry", b"x" * 100, **headers)[:-50])
        assert response.status == 401
        assert response.headers["www-authenticate"].startswith("Basic ")
        assert listener.counters.logins_refused == 1
    assert port.arrivals == []


async def test_a_password_is_checked_once_on_a_connection_and_again_for_another_user(listening, dial, users, monkeypatch):
    checked = []
    async with listening(MemoryPort(), users=users) as listener, dial(listener) as talker:
        verify = listener.logins._verify
        monkeypatch.setattr(listener.logins, "_verify", lambda *given: checked.append(given[0]) or verify(*given))
        talker.send(*(request("/t", authorization=basic(user)) for user in ("lamp-1", "lamp-1", "hub", "lamp-1")))
        assert [(await talker.receive()).status for _ in range(4)] == [202] * 4
    assert checked == ["lamp-1", "hub", "lamp-1"]


async def test_client_that_leaves_during_its_password_check_disturbs_no_other(listening, dial, users):
    async with listening(MemoryPort(), users=users) as listener:
        for _ in range(3):
            async with dial(listener) as talker:
                talker.send(request("/t", authorization=basic("lamp-1")))
        await eventually(lambda: not (listener._tasks or listener._sockets), "all have ended")


async def test_a_hub_learns_which_device_a_command_is_for(listening, dial, users):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands, users=users, acl={"hub": ["*"]}) as listener, dial(listener) as talker:
        talker.send(request("/t//K%C3%BCche?hono-ttd=60", authorization=basic("hub")))
        await commands.until(lambda: bool(commands.devices), "the device is reachable")
        commands.send(make_command("K:C3:BCche"))
        assert (await talker.receive()).headers["hono-cmd-target-device"] == "K%C3%BCche"
        async with dial(listener) as other:
            path = "/command/res//K%C3%BCche/CMD-1?hono-cmd-status=200"
            assert (await other.ask(request(path, authorization=basic("lamp-1")))).status == 403
            assert (await other.ask(request(path, authorization=basic("hub")))).status == 202


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"host": "0.0.0.0"}, "without a login only loopback is safe"),
        ({"host": "0.0.0.0", "plain_on_lan": True}, "without a login only loopback is safe"),
        ({"host": "0.0.0.0", "users": True}, "clear text"),
        ({"acl": {"hub": ["*"]}}, "nobody logs in"),
        ({"acl": {"hub": ["[]"]}, "users": True}, r"http\.acl: hub"),
        ({"users": "/nowhere"}, r"http\.users: there is no /nowhere"),
    ],
)
def test_settings_by_which_others_could_get_in_are_refused(settings, said, users):
    if settings.get("users") is True:
        settings = {**settings, "users": users}
    with pytest.raises(Misconfigured, match=said):
        check_http(HttpSettings(**settings))


def test_a_network_is_accepted_with_users_and_consent(users):
    check_http(HttpSettings(host="0.0.0.0", users=users, plain_on_lan=True))


@pytest.mark.fault("S9")
async def test_a_deleted_user_is_refused_on_its_open_connection(listening, dial, users, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    async with listening(MemoryPort(), users=users) as listener, dial(listener) as talker:
        assert (await talker.ask(request("/t", authorization=basic("lamp-1")))).status == 202
        lines = Path(users).read_text().splitlines(keepends=True)
        Path(users).write_text("".join(line for line in lines if not line.startswith("lamp-1:")))
        assert (await talker.ask(request("/t", authorization=basic("lamp-1")))).status == 401
