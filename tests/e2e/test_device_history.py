"""`fogline device history`: events that a rule kept back at the gateway, fetched through a bridge on a real broker."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from e2e.device_registry import edited, known
from fogline.amqp.outcome import ACCEPTED
from fogline.commands.history import HISTORY, HistoryQuery
from fogline.events.event import Receipt
from fogline.process.files.durable_file import write_new
from fogline_cloud.authority.ca_folder import ROOT
from fogline_cloud.bridge.door.passwords import password_line
from fogline_cloud.cli.administration.audit import _records as audit_records
from fogline_cloud.cli.operators.device_history import HistoryUnread, fetch_history
from fogline_cloud.commands.client.operator import Operator
from fogline_edge.rule_settings import ReduceTable, RuleSettings
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import PASSWORD
from fogline_lab.events import make_arrival
from fogline_lab.gateway.connected_gateway import connected_gateway
from fogline_lab.gateway.outbox_use import put
from fogline_lab.line.line import serving
from fogline_lab.line.secure_line import secure

KEPT = RuleSettings(reduce=[ReduceTable(name="same", on_change=True, keep_days=2)])
SIZE, EVENTS = 1000, 100
"""Together more than a page."""
ACCESS = """
[[operator]]
name = "alice"
devices = ["lamp-*"]
commands = ["fogline-history"]

[[operator]]
name = "bob"
devices = ["lamp-*"]
commands = ["switch"]

[[operator]]
name = "carol"
devices = ["door-*"]
"""


@asynccontextmanager
async def keeping(line, rules=KEPT):
    """A bridge, and a gateway that has stored one event of `lamp-1` and kept back the others."""
    async with serving(line) as bridge, connected_gateway(replace(line.settings(), rules=rules)) as (outbox, _):
        data = json.dumps({"text": "x" * SIZE}).encode()
        receipts = [await put(outbox, make_arrival(data=data)) for _ in range(EVENTS + 1)]
        assert receipts == [Receipt.STORED] + [Receipt.FILTERED] * EVENTS
        await line.drained(outbox)
        yield bridge


async def run(line, *words: str, settings: str = "") -> tuple[int, str, str]:
    """Exit status, output and errors of `fogline device history`."""
    config = line.folder / "operator.toml"
    config.write_text(f'tenant = "{line.tenant}"\n[operator]\nbridge = "127.0.0.1:{line.port}"\n{settings}')
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "fogline_cloud.cli.main", "device", "history", *words, "--config", config)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=line.folder)
    out, err = await within(process.communicate(), f"{words} does not end", 60)
    return process.returncode or 0, out.decode(), err.decode()


async def test_operator_reads_two_pages_of_events_that_a_rule_kept_back(line):
    async with keeping(line) as bridge:
        assert await edited(line, "lamp-1", "set", b'{"commands": {"switch": {}}}') == ACCEPTED
        await known(bridge, lambda table: table.get("lamp-1") is not None and table.get("lamp-1").record is not None)
        asked = []
        async with Operator("127.0.0.1", line.port, line.tenant) as operator:

            def ask(request):
                asked.append(request)
                return within(operator.request(request), "no page")

            found = await fetch_history(ask, "lamp-1", HistoryQuery(), 1000)
            assert (len(asked), len(found.events), found.more, found.state.events) == (2, EVENTS, False, EVENTS)
            assert {each["data"]["text"] for each in found.events} == {"x" * SIZE}
            some = await fetch_history(ask, "lamp-1", HistoryQuery(), 3)
            assert (some.events, some.more) == (found.events[:3], True)
        status, out, _ = await run(line, "lamp-1", "--json")
        assert (status, json.loads(out)["events"]) == (0, found.events)
        status, out, err = await run(line, "lamp-1", "--since", "1h", "--limit", "2")
        assert (status, out.splitlines()[0].split(), len(out.splitlines())) == (0, ["TIME", "CHANNEL", "RULE", "DATA"], 3)
        assert "there are more" in err
        status, _, err = await run(line, "lamp-1", "--until", "1h")
        assert (status, "no event of lamp-1 was kept in this time" in err) == (0, True)
    audited = [each for each in audit_records(line.cloud) if HISTORY in str(each)]
    assert {each.device for each in audited} == {"lamp-1"}
    assert "SUCCEEDED" in {each.decision for each in audited}


async def test_history_of_a_gateway_that_is_away_or_keeps_none_says_so(line):
    async with keeping(line):
        pass
    async with serving(line):
        status, _, err = await run(line, "lamp-1")
        assert (status, "its gateway is not connected" in err) == (1, True), err
        status, _, err = await run(line, "lamp-2")
        assert (status, "lamp-2" in err, "Traceback" in err) == (1, True, False), err
    only_reduces = RuleSettings(reduce=[ReduceTable(name="same", on_change=True)])
    gateway = connected_gateway(replace(line.settings(), rules=only_reduces))
    async with serving(line), gateway as (outbox, _), Operator("127.0.0.1", line.port, line.tenant) as operator:
        await line.put(outbox, 2)
        await line.drained(outbox)
        with pytest.raises(HistoryUnread, match=r"no rule of \[\[rules.reduce\]\] in its edge.toml has keep_days"):
            await fetch_history(lambda each: within(operator.request(each), "no page"), "lamp-1", HistoryQuery(), 1)


@pytest.mark.parametrize(("user", "allowed"), [("alice", True), ("bob", False), ("carol", False)])
async def test_only_who_may_send_the_command_to_the_device_reads_its_history(line, user, allowed):
    line, site = secure(line)
    site.users.unlink()
    write_new(site.users, password_line(user, PASSWORD).encode())
    (line.folder / "access.toml").write_text(ACCESS)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, access=str(line.folder / "access.toml")))
    password = line.folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    login = f'user = "{user}"\npassword_file = "password"\n[operator.tls]\nca = "{site.ca.path / ROOT}"\n'
    async with keeping(line):
        status, out, err = await run(line, "lamp-1", "--limit", "2", settings=login)
    if allowed:
        assert (status, len(out.splitlines())) == (0, 3), err
    else:
        refusal = f"client {line.tenant}/{user} (password) may not send command 'fogline-history' to lamp-1"
        assert (status, out, refusal in err) == (1, "", True), err
