"""A private message bus in place of the system bus."""

import asyncio
import tempfile
from pathlib import Path

_LIMIT_S = 10.0
_SETTINGS = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>{address}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
    <allow user="*"/>
  </policy>
</busconfig>
"""


class PrivateBus:
    """A `dbus-daemon` on a socket in a temporary folder. `address`: for `DBUS_SYSTEM_BUS_ADDRESS`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fogline-bus-")  # the path of a socket has at most 107 bytes
        self._settings = Path(self._folder.name) / "bus.conf"
        self.address = f"unix:path={self._folder.name}/bus"
        self._settings.write_text(_SETTINGS.format(address=self.address))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the daemon, and wait until it listens."""
        command = ["dbus-daemon", "--nofork", "--nopidfile", "--print-address=1", f"--config-file={self._settings}"]
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=nowhere)
        assert self._process.stdout is not None
        async with asyncio.timeout(_LIMIT_S):
            line = await self._process.stdout.readline()
        assert line, "dbus-daemon does not start: is Debian's package dbus installed?"

    async def stop(self) -> None:
        """End the daemon and with it every connection."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            await process.wait()
        (Path(self._folder.name) / "bus").unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()
