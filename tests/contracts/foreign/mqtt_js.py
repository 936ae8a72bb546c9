"""mqtt.js, run by Node: the script in mqttjs/ gets its options as JSON and prints what happened as JSON."""

import asyncio
import json
from pathlib import Path
from typing import Any

from contracts.foreign.clients import CLIENT_LIMIT_S
from fogline_lab.amqp import within

FOLDER = Path(__file__).parent / "mqttjs"


async def device(**options: object) -> dict[str, Any]:
    """A device that reports, and runs one command."""
    assert (FOLDER / "node_modules" / "mqtt").exists(), "mqtt.js is not installed: run deploy/setup/setup.sh"
    command = ["node", str(FOLDER / "device.js"), json.dumps(options)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        out, err = await within(process.communicate(), "mqtt.js does not end", CLIENT_LIMIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert out, err.decode()
    return json.loads(out)
