"""The operator's page in a browser: the site, its users, and names that would do harm if they were anything but text."""

import base64
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import msgspec

from fogline.commands.command import CommandState
from fogline_cloud.api.context import ApiContext
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.console.console import Console
from fogline_cloud.devices.record import DeviceRecord, DeviceSighting, device_key, encode_device, encode_sighting, seen_key
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
}
"""Requests that a browser may make, whether the page offers them or not. `{id}`: a command `switch` that waits for lamp-2.

`{proposed}`: a command `arm` of root's that waits for another operator.
"""
MAY = {
    "root": {*FORGED} - {"approve"},
    "alice": {f"see {DEVICE}", "readings", "form", "switch", "see the command", "cancel", "approve"},
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
COMMAND = "HOSTILE-1"
LONG = f"<img src=x onerror=owned()>{HOSTILE}\r\n" + "A" * 10_000


def put_device(context: ApiContext, name: str, **fields) -> None:
    """Put a device into the registry that the page shows."""
    record = DeviceRecord(version=1, changed_ms=1, changed_by="root", **fields)
    context.devices.apply(device_key(name).encode(), encode_device(record))


def put_sighting(context: ApiContext, name: str, seen_ms: int, firmware: str = "", gateway: str = "gw-1") -> None:
    """Let a gateway have heard a device."""
    sighting = DeviceSighting(seen_ms=seen_ms, firmware=firmware)
    context.devices.apply(seen_key(name, gateway).encode(), encode_sighting(sighting))


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
    readings = FlowTable("readings", TableFolder(str(folder / "readings")))
    readings.append(100, today, lambda n: {"device": DEVICE, "value": n / 4})
    texts = {"device": DEVICE, "metric": HOSTILE, "unit": HOSTILE, "text": LONG, "value": None}
    readings.append(1, today, lambda _: texts)
    dead = {"outcome": "dead", "reason": HOSTILE, "detail": LONG, "parser": HOSTILE, "data": LONG.encode()}
    dead |= {"subject": HOSTILE, "content_type": HOSTILE, "size_bytes": len(LONG), "device": DEVICE}
    events = FlowTable("events", TableFolder(str(folder / "events")))
    events.append(3, today, lambda _: dead)
    gap = {"outcome": "gap", "device": None, "id": None, "reason": HOSTILE, "detail": LONG, "tenant": None, "first_sequence": 4}
    events.append(1, today, lambda _: {**gap, "recordedtime": datetime.now(UTC) - timedelta(hours=2)})


def addresses(console: Console) -> list[str]:
    """Return an address of each page, by the routes: a new page is among them. A new parameter needs a value here."""
    values = {"device": DEVICE, "id": COMMAND, "rest:path": quote(HOSTILE.replace("\x00", ""))}
    shown = [each.path for each in console.routes() if "GET" in each.methods and "/static/" not in each.path]
    shown = [each for each in shown if not each.endswith((".csv", ".json", ".jws"))]
    return [re.sub(r"\{([a-z:]+)\}", lambda each: values[each[1]], path) for path in shown]
