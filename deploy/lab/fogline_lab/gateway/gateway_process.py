"""`fogline-edge run` as a child process that may be killed at a crash point and started again."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from fogline_edge.operate.status import read_status
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child, stop_children

LIMIT_S = 60.0
SETTINGS = """
tenant = "{tenant}"
gateway = "{name}"
data = "{data}"
[uplink]
bridge = "127.0.0.1:{bridge}"
[mqtt]
port = 0
"""


class GatewayProcess:
    """The gateway process; it may be started again and again. `bridge`: a port of this machine. `more`: further settings."""

    def __init__(self, folder: Path, bridge: int, more: str = "", *, name: str = "gw-1", tenant: str = "acme") -> None:
        self.data = folder / "data"
        config = folder / "edge.toml"
        config.write_text(SETTINGS.format(data=self.data, bridge=bridge, name=name, tenant=tenant) + more)
        self._process = ChildProcess(
            "gateway", [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config], folder / "edge.log"
        )

    async def start(self, point: str = "") -> int:
        """Start the gateway, which kills itself at `point` if there is one. Returns the port of its MQTT listener."""
        ready = await start_child(self._process, LIMIT_S, crash_at=point)
        return int(ready["mqtt"].rpartition(":")[2])

    def address(self, listener: str) -> tuple[str, int]:
        """Return host and port of a listener, such as `coap`. Only after `start`."""
        host, _, port = str(self._process.ready_line[listener]).rpartition(":")
        return host, int(port)

    async def kill(self) -> None:
        """Kill the gateway, as a power cut does that spares the disk."""
        await kill_child(self._process)

    async def died(self) -> bool:
        """Return True if the gateway ended as if it had been killed."""
        return await asyncio.to_thread(self._process.wait, LIMIT_S) == -signal.SIGKILL

    async def stop(self) -> dict[str, Any]:
        """Stop the gateway in order. Returns its status: the events that it has stored and sent."""
        await stop_children(self._process)
        assert await asyncio.to_thread(self._process.wait, LIMIT_S) in (0, -signal.SIGKILL)
        return read_status(self.data)
