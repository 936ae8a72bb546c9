"""aiocoap's client with OSCORE, in an environment of its own: the script in aiocoap-oscore/ prints what happened as JSON."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contracts.foreign.clients import CLIENT_LIMIT_S
from fogline.gateway.device_credentials import OSCORE_GATEWAY_ID, OscoreKey
from fogline_lab.amqp import within
from rules.source import ROOT

SCRIPT = Path(__file__).parent / "aiocoap-oscore" / "device.py"
PYTHON = ROOT / ".fogline" / "strangers" / "aiocoap-oscore" / "bin" / "python"


def settings_of(key: OscoreKey, gateway: str) -> dict[str, str]:
    """The key as aiocoap's `settings.json` has it."""
    return {
        "secret_hex": key.secret.hex(),
        "salt_hex": key.salt.hex(),
        "sender-id_hex": key.device_id.hex(),
        "recipient-id_hex": OSCORE_GATEWAY_ID.hex(),
        "id-context_hex": gateway.encode().hex(),
    }


async def device(address: tuple[str, int], key: OscoreKey, gateway: str = "gw-1", **options: object) -> list[dict[str, Any]]:
    """A device that sends `events`. Returns the responses."""
    async with running(address, key, gateway, **options) as process:
        return await result_of(process)


@asynccontextmanager
async def running(
    address: tuple[str, int], key: OscoreKey, gateway: str = "gw-1", **options: object
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the device. It writes a line to stderr when it observes."""
    assert PYTHON.exists(), "aiocoap with OSCORE is not installed: run deploy/setup/setup.sh tests"
    host, port = address
    given = {"host": host, "port": port, "key": settings_of(key, gateway), **options}
    command = [str(PYTHON), str(SCRIPT), json.dumps(given)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def result_of(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    """Return what the device prints at its end."""
    out, err = await within(process.communicate(), "aiocoap does not end", CLIENT_LIMIT_S)
    assert out, err.decode()
    found: list[dict[str, Any]] = json.loads(out)
    return found
