"""The operator's page in a browser: the site, its users, and names that would do harm if they were anything but text."""

import base64
import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import msgspec

from fogline.commands.command import CommandState
from fogline.events.gap import Gap, GapReason, encode_gap
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.api.context import ApiContext
from fogline_cloud.commands.client.command_group import GroupCommand, GroupFile, GroupVerdict
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.console.console import Console
from fogline_cloud.devices.record import DeviceRecord, DeviceSighting, device_key, encode_device, encode_sighting, seen_key
from fogline_cloud.flows.orders.redrive_orders import RedriveOrder, RedriveOrders
from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.console_site import ConsoleSite
from fogline_lab.credentials.authority_folder import PASSWORD
from fogline_lab.flow_table import FlowTable

AXE = Path(__file__).parent / "libraries" / "node_modules" / "axe-core" / "axe.min.js"
USERS = ("root", "alice", "mia", "cora", "eve")
ACCESS = """
[[admin]]
name = "root"

[[operator]]
name = "alice"
devices = ["lamp-*"]
commands = ["switch", "arm"]

[[approval]]
devices = ["lamp-*"]
commands = ["arm"]

[[manager]]
name = "mia"
devices = ["lamp-*"]

[[consumer]]
name = "cora"
devices = ["lamp-*"]
"""
ROLLOUT = "HOSTILE-1"
"""A roll-out of nobody who is here: it can be seen by those who oversee all."""
DEVICE, OTHER = "lamp-1", "door-1"
FORGED = {
    f"see {DEVICE}": ("GET", f"/console/devices/{DEVICE}", {}),
    f"see {OTHER}": ("GET", f"/console/devices/{OTHER}", {}),
    "readings": ("GET", f"/console/devices/{DEVICE}/readings.json?metric=temperature&span=1h", {}),
    "form": ("GET", f"/console/devices/{DEVICE}/send", {}),
    "switch": ("POST", f"/console/devices/{DEVICE}/send", {"name": "switch", "ttl_s": "30", "durable": "yes"}),
    "turn": ("POST", f"/console/devices/{DEVICE}/send", {"name": "turn", "ttl_s": "30", "durable": "yes"}),
    "switch the other": ("POST", f"/console/devices/{OTHER}/send", {"name": "switch", "ttl_s": "30", "durable": "yes"}),
    "see the command": ("GET", "/console/commands/{id}", {}),
    "cancel": ("POST", "/console/commands/{id}/cancel", {}),
    "prove the device": ("POST", "/console/proof", {"day": "2026-01-01", "device": DEVICE}),
    "prove the other": ("POST", "/console/proof", {"day": "2026-01-01", "device": OTHER}),
    "prove all": ("POST", "/console/proof", {"day": "2026-01-01", "device": ""}),
    "approve": ("POST", "/console/commands/{proposed}/approve", {}),
    "audit": ("GET", "/console/audit", {}),
    "audit as CSV": ("GET", "/console/audit.csv", {}),
    "flow": ("GET", "/console/flow", {}),
    "redrive": ("POST", "/console/flow/redrive", {"outcome": "dead", "reason": "of nobody", "parser": "", "span": "1d"}),
    "what came of it": ("GET", "/console/parts/redrives", {}),
    "form of a roll-out": ("GET", "/console/rollouts/new", {}),
    "roll out": ("POST", "/console/rollouts/new", {"where": "device=lamp-*", "name": "switch"}),
    "roll out to all": ("POST", "/console/rollouts/new", {"where": "device=door-1", "name": "switch"}),
    "see the roll-out": ("GET", f"/console/rollouts/{ROLLOUT}", {}),
    "see what becomes of it": ("GET", f"/console/parts/rollouts/{ROLLOUT}", {}),
    "stop it": ("POST", f"/console/rollouts/{ROLLOUT}/stop", {}),
    "let it go on": ("POST", f"/console/rollouts/{ROLLOUT}/go-on", {}),
    "line": ("GET", "/console/line", {}),
    "gateways": ("GET", "/console/gateways", {}),
    "gateways as CSV": ("GET", "/console/gateways.csv", {}),
    "coverage": ("GET", "/console/coverage", {}),
    "coverage as CSV": ("GET", "/console/coverage.csv", {}),
}
"""Requests that a browser may make, whether the page offers them or not. `{id}`: a command `switch` that waits for lamp-2.

`{proposed}`: a command `arm` of root's that waits for another operator.
"""
MAY = {
    "root": {*FORGED} - {"approve", "let it go on"},
    "alice": {
        "form of a roll-out",
        "roll out",
        f"see {DEVICE}",
        "readings",
        "form",
        "switch",
        "see the command",
        "cancel",
        "approve",
    },
    "mia": {f"see {DEVICE}"},
    "cora": {"readings", "prove the device"},
    "eve": set(),
}
"""What ACCESS allows at the page. All else is refused."""
REFUSED = {403, 404}
MARK = "<script>owned()"
"""Also the name of a command may be so."""
HOSTILE = f"{MARK}\x1b[2J\u202e\x00'\"&"
"""At most 64 characters: a tag or a firmware."""
COMMAND = ROLLOUT
LONG = f"<img src=x onerror=owned()>{HOSTILE}\r\n" + "A" * 10_000


def put_device(context: ApiContext, name: str, **fields) -> None:
    """Put a device into the registry that the page shows."""
    record = DeviceRecord(version=1, changed_ms=wall_clock_ms(), changed_by="client acme/root (password)", **fields)
    context.devices.apply(device_key(name).encode(), encode_device(record))


def put_sighting(context: ApiContext, name: str, seen_ms: int, firmware: str = "", gateway: str = "gw-1") -> None:
    """Let a gateway have heard a device."""
    sighting = DeviceSighting(seen_ms=seen_ms, firmware=firmware)
    context.devices.apply(seen_key(name, gateway).encode(), encode_sighting(sighting))


def make_rollout(site: ConsoleSite) -> None:
    """Leave the file of a roll-out that says hostile things: before the site starts."""
    more = {"rate_s": 1.0, "ttl_s": 9.0, "stop_share": 0.5, "created_ms": wall_clock_ms(), "created_by": HOSTILE}
    devices = [DEVICE, HOSTILE, "lamp-2", "lamp-3"]
    command = GroupCommand(id=ROLLOUT, tenant=site.line.tenant, devices=devices, name=HOSTILE, **more)
    file = GroupFile.create(Path(site.line.cloud.api.rollouts), command)
    file.note(GroupVerdict(device=HOSTILE, state="FAILED", status=500, why=LONG))


async def fill(site: ConsoleSite) -> None:
    """Give each page of `DEVICE` something to show that is hostile. On the loop of the site."""
    context = site.api.context
    arguments = {"on": {"type": "boolean"}, HOSTILE: {"type": "string", "description": HOSTILE, "default": LONG}}
    commands = msgspec.json.encode({"switch": {"type": "object", "properties": arguments}, "turn": {}}).decode()
    put_device(context, OTHER, type="door")
    put_device(context, DEVICE, type=HOSTILE, tags={"site": HOSTILE, HOSTILE: "x"}, commands=commands)
    seen_ms = context.devices.get(DEVICE).seen_ms
    put_sighting(context, DEVICE, seen_ms, HOSTILE)
    context.commands.put(command(COMMAND, seen_ms))
    fill_tables(site.tables)
    show_plain(site)
    order = RedriveOrder(at_ms=seen_ms, who=HOSTILE, outcomes=["dead"], reason=HOSTILE, parser=LONG)
    RedriveOrders(site.line.cloud).put(order)
    async with httpx.AsyncClient(base_url=site.url, verify=False, auth=("root", PASSWORD)) as client:
        sent = await client.post("/v1/devices/lamp-2/commands", json={"name": MARK, "ttl_s": 300})
        assert sent.status_code == 201, sent.text


def command(command_id: str, now_ms: int, **more) -> CommandRecord:
    """A command that says hostile things."""
    reply = base64.b64encode(LONG.encode()).decode()
    usual = {"tenant": "t", "gateway": HOSTILE, "device": DEVICE, "name": HOSTILE, "state": CommandState.FAILED}
    usual |= {"operator": HOSTILE, "accepted_ms": now_ms, "expires_ms": now_ms, "changed_ms": now_ms, "digest": ""}
    usual |= {"data_base64": reply, "reply_base64": reply, "reply_type": HOSTILE}
    return CommandRecord(id=command_id, **{**usual, **more})


def fill_tables(folder: Path) -> None:
    """Make tables with numbers, and with hostile texts wherever a device chooses them."""
    today = datetime.now(UTC).date()
    readings = open_table(folder, "readings")
    readings.append(100, today, lambda n: {"device": DEVICE, "value": n / 4})
    texts = {"device": DEVICE, "metric": HOSTILE, "unit": HOSTILE, "text": LONG, "value": None}
    readings.append(1, today, lambda _: texts)
    dead = {"outcome": "dead", "reason": HOSTILE, "detail": LONG, "parser": HOSTILE, "data": LONG.encode()}
    dead |= {"tenant": None, "subject": HOSTILE, "content_type": HOSTILE, "size_bytes": len(LONG), "device": DEVICE}
    events = open_table(folder, "events")
    events.append(3, today, lambda _: dead)
    gap = {"outcome": "gap", "device": None, "id": None, "reason": HOSTILE, "detail": LONG, "tenant": None, "first_sequence": 4}
    gap |= {"gateway": "gw-1"}
    events.append(1, today, lambda _: {**gap, "recordedtime": datetime.now(UTC) - timedelta(hours=2)})


_tables: dict[Path, FlowTable] = {}


def open_table(folder: Path, name: str) -> FlowTable:
    """Return a table of the site, which is made the first time."""
    place = folder / name
    if place not in _tables:
        _tables[place] = FlowTable(name, TableFolder(str(place)))
    return _tables[place]


def addresses(console: Console) -> list[str]:
    """Return an address of each page, by the routes: a new page is among them. A new parameter needs a value here."""
    values = {"device": DEVICE, "id": COMMAND, "rest:path": quote(HOSTILE.replace("\x00", ""))}
    shown = [each.path for each in console.routes() if "GET" in each.methods and "/static/" not in each.path]
    shown = [each for each in shown if not each.endswith((".csv", ".json", ".jws"))]
    return [re.sub(r"\{([a-z:]+)\}", lambda each: values[each[1]], path) for path in shown]


PLAIN = "meter-1"
PICTURES = {
    "devices": "/console/devices?type=meter",
    "device": f"/console/devices/{PLAIN}?metric=power&span=1d",
    "command": "/console/commands/01JDRY2A7K",
}
"""Pages that docs/console.md shows, by the names of their pictures: `docs/console_pictures.py` makes them."""
OUTLINE = """
() => {
  const parts = "h1, h2, caption, th[scope=col], label, legend, button, nav[aria-label], [role]";
  return [...document.querySelectorAll(parts)].map((each) => {
    const kind = each.getAttribute("role") ?? each.localName;
    return `${kind} ${each.getAttribute("aria-label") ?? each.textContent}`.replace(/\\s+/g, " ").trim();
  });
}
"""
"""What a page has for eye and screen reader: headings, labels, columns, buttons, regions."""


def show_plain(site: ConsoleSite) -> None:
    """Give the pages of pictures something to show: on the loop of the site, before `fill` or in its place."""
    context, now_ms = site.api.context, wall_clock_ms()
    switch = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}
    commands = msgspec.json.encode({"switch": switch}).decode()
    for number in range(1, 7):
        name = f"meter-{number}"
        put_device(context, name, type="meter", tags={"site": "berlin", "floor": str(number % 3)}, commands=commands)
        if number < 6:
            put_sighting(context, name, now_ms - number**4 * 1000, "2.1.0", f"gw-{number % 2 + 1}")
    for state, ago_ms in ((CommandState.ACCEPTED, 900), (CommandState.DISPATCHED, 850), (CommandState.SUCCEEDED, 40)):
        done = state is CommandState.SUCCEEDED
        more = {
            "name": "switch",
            "gateway": "gw-1",
            "device": PLAIN,
            "operator": "client acme/alice (password)",
            "state": state,
        }
        more |= {"changed_ms": now_ms - ago_ms, "expires_ms": now_ms + 29_100, "status": 200 if done else None}
        more |= {"data_base64": base64.b64encode(b'{"on":true}').decode(), "reply_type": "application/json" if done else None}
        more |= {"reply_base64": base64.b64encode(b'{"on":true,"power":0.0}').decode() if done else ""}
        context.commands.put(command("01JDRY2A7K", now_ms - 900, **more))
    now = datetime.now(UTC)
    values = [(now - timedelta(minutes=5 * n), 400 + 150 * math.sin(n / 40) + 40 * math.sin(n * 7)) for n in range(288)]
    rows = [{"metric": "power", "unit": "W", "value": value, "time": moment} for moment, value in values]
    rows += [{"metric": "firmware", "unit": None, "value": None, "text": "2.1.0", "time": now}]
    table = open_table(site.tables, "readings")
    table.append(len(rows), now.date(), lambda n: {"device": PLAIN, **rows[n - table.count]})
    bodies = [{"outcome": "ok", "data": None, "size_bytes": 41, "parser": "json"}] * 3
    bodies += [{"outcome": "dead", "reason": "not-json", "data": b"21.5;W", "size_bytes": 6, "parser": "json"}]
    usual = {"device": PLAIN, "lane": "telemetry", "subject": "telemetry", "content_type": "application/json", "ingested": now}
    events = open_table(site.tables, "events")
    events.append(len(bodies), now.date(), lambda n: {**usual, "recordedtime": now, **bodies[n - events.count]})
    yesterday = now.date() - timedelta(days=1)
    heard = {"tenant": None, "parser": "json", "parse_us": 900}
    slow = {**heard, "outcome": "slow", "device": PLAIN, "parser": "tardy", "parse_us": 1_000_000}
    slow |= {"ingested": now, "recordedtime": now, "reason": "timeout", "data": b"{}"}
    events.append(1, now.date(), lambda _: slow)
    events.append(4, yesterday, lambda n: {**heard, "device": f"meter-{n - events.count + 1}"})
    body = encode_gap(Gap(GapReason.EXPIRED, 7, 7, "expired 5 s before it was sent", "id-7", PLAIN))
    gap = {"outcome": "gap", "reason": "expired", "detail": "expired 5 s before it was sent", "data": body, "lane": "telemetry"}
    gap |= {"gateway": "gw-2", "first_sequence": 7, "sequence": 7, "ingested": now, "recordedtime": now}
    events.append(1, now.date(), lambda _: gap)


def visitor(site, user: str) -> tuple[httpx.Client, str]:
    """A client in which a user is logged in, and the token of its forms."""
    client = httpx.Client(base_url=site.url, verify=False, headers={"origin": site.url}, timeout=60)  # its own authority
    login = {"csrf": token_in(client.get("/console/login").text), "name": user, "password": PASSWORD}
    assert client.post("/console/login", data=login).status_code == 303
    return client, token_in(client.get("/console/devices").text)


def token_in(page: str) -> str:
    found = re.search('name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def prove(page) -> None:
    """Ask for the proof of the day on which the tables have a gap, and wait for it."""
    page.goto("/console/proof")
    page.get_by_label("Day (UTC)").fill(f"{datetime.now(UTC) - timedelta(hours=2):%Y-%m-%d}")
    page.get_by_role("button", name="Prove").click()
    page.locator("#proof", has_text="COMPLETE").wait_for(timeout=60_000)
