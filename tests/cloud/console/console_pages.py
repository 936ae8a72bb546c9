"""The operator's page in a browser: the site, its users, and names that would do harm if they were anything but text."""

import re
from pathlib import Path
from urllib.parse import quote

import msgspec

from fogline_cloud.api.context import ApiContext
from fogline_cloud.console.console import Console
from fogline_cloud.devices.record import DeviceRecord, DeviceSighting, device_key, encode_device, encode_sighting, seen_key
from fogline_lab.console_site import ConsoleSite

AXE = Path(__file__).parent / "libraries" / "node_modules" / "axe-core" / "axe.min.js"
USERS = ("root", "alice", "mia", "eve")
ACCESS = """
[[admin]]
name = "root"

[[operator]]
name = "alice"
devices = ["lamp-*"]
commands = ["switch"]

[[manager]]
name = "mia"
devices = ["lamp-*"]
"""
MARK = "<script>owned()</script>"
HOSTILE = f"{MARK}\x1b[2J\u202e\x00'\"&"
"""At most 64 characters: a tag or a firmware."""
LONG = f"<img src=x onerror=owned()>{HOSTILE}\r\n" + "A" * 10_000
DEVICE = "lamp-1"


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
    commands = msgspec.json.encode({"switch": {"type": "object", "properties": {"on": {"type": "boolean"}}}}).decode()
    put_device(context, DEVICE, type=HOSTILE, tags={"site": HOSTILE, HOSTILE: "x"}, commands=commands)
    seen_ms = context.devices.get(DEVICE).seen_ms
    put_sighting(context, DEVICE, seen_ms, HOSTILE)


def addresses(console: Console) -> list[str]:
    """Return an address of each page, by the routes: a new page is among them. A new parameter needs a value here."""
    values = {"device": DEVICE, "rest:path": quote(HOSTILE.replace("\x00", ""))}
    shown = [each.path for each in console.routes() if "GET" in each.methods and "/static/" not in each.path]
    shown = [each for each in shown if not each.endswith((".csv", ".json"))]
    return [re.sub(r"\{([a-z:]+)\}", lambda each: values[each[1]], path) for path in shown]
