"""Changes of certificates under load: one gateway renews its own, and another one, which was stolen, is revoked."""

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

from demo.certificate_judgement import CUT_LIMIT_S, Renewal, Revocation
from demo.certificates import renew, revoke, serial_number
from demo.mqtt_device import MqttDevice
from demo.payload import Device, DeviceKind, counter_of, encode
from demo.polling import until
from demo.scenario import FINISH_LIMIT_S, cancel
from demo.workspace import Workspace
from fogline.errors import Misconfigured
from fogline.events.codec import decode_event
from fogline.process.files.settings_file import split_endpoint
from fogline_edge.operate.first_settings import CERTIFICATE
from fogline_edge.operate.status import read_events
from fogline_lab.supervisor import ChildProcess

TRACKER = Device("tracker-1", DeviceKind.LAMP, 5, 0)
"""The device of the stolen gateway."""
RATE_S = 20.0
"""Events a second of that device."""
FIRST = 20
"""Its events before the first change."""
LOADED_LIMIT_S = 60.0
_CLOSED, _REFUSED = "is closed: its certificate: it is revoked", "a connection is refused"
_MORE = re.compile(r"\((\d+) more like this\)")


class CertificateChanges:
    """`renewal`, `revocation`: the changes, once they are made. `over`: no further one follows.

    `stolen`: None without TLS; then there are no changes. `calm`: held during a change, so that no gateway or bridge is killed
    meanwhile. `loaded`: the line is under load.
    """

    def __init__(
        self, workspace: Workspace, stolen: ChildProcess | None, calm: asyncio.Lock, loaded: Callable[[], bool]
    ) -> None:
        self.renewal: Renewal | None = None
        self.revocation: Revocation | None = None
        self.acknowledged: set[int] = set()
        self.problems: list[str] = []
        self.over = stolen is None
        self._workspace = workspace
        self._stolen = stolen
        self._calm = calm
        self._loaded = loaded
        self._sent = 0
        self._quiet = asyncio.Event()

    async def run(self) -> None:
        """Let the stolen gateway's device publish until `finish`, and make the changes meanwhile."""
        if self._stolen is None:
            return
        address = split_endpoint(self._stolen.ready_line["mqtt"], "mqtt")
        publishing = asyncio.create_task(self._publish(address), name="tracker")
        try:
            await self._change()
            await publishing
        finally:
            await cancel(publishing)

    async def finish(self, running: "asyncio.Task[None]") -> None:
        """Stop the device when it has all acknowledgements. `running`: the task of `run`."""
        self._quiet.set()
        await asyncio.wait([running], timeout=FINISH_LIMIT_S)
        await cancel(running)

    async def _change(self) -> None:
        try:
            await self._until_loaded()
            async with self._calm:
                self.renewal = await self._renew(self._workspace.gateways[0])
            async with self._calm:
                self.revocation = await self._revoke(self._workspace.stolen)
            await until(lambda: refusals(self._workspace) > 0, CUT_LIMIT_S)
        except Misconfigured as error:
            self.problems.append(str(error))
        finally:
            self.over = True

    async def _until_loaded(self) -> None:
        if not await until(lambda: self._loaded() and len(self.acknowledged) >= FIRST, LOADED_LIMIT_S):
            raise Misconfigured(f"no certificate was changed: the line was not under load after {LOADED_LIMIT_S:.0f} s")

    async def _publish(self, address: tuple[str, int]) -> None:
        device = MqttDevice(TRACKER, address, lambda *_: None, lambda _: None)
        device.connect()
        try:
            while not self._quiet.is_set() or device.waiting:
                if not self._quiet.is_set() and device.waiting < device.outstanding:
                    device.publish(encode(TRACKER, device.sent + 1, 20.0), time.monotonic())
                    self._sent = device.sent
                self.acknowledged |= {each.n for each in device.take_answers() if each.success}
                await asyncio.sleep(1 / RATE_S)
        finally:
            device.close()

    async def _renew(self, gateway: str) -> Renewal:
        edge, log = self._workspace.edge(gateway), self._workspace.logs / "renew.log"
        file, began = edge.with_name(CERTIFICATE), time.monotonic()
        before = serial_number(file)
        await asyncio.to_thread(renew, edge, log)
        return Renewal(gateway, before, serial_number(file), round(time.monotonic() - began, 2))

    async def _revoke(self, gateway: str) -> Revocation:
        began = time.monotonic()
        await asyncio.to_thread(revoke, gateway, self._workspace.cloud, self._workspace.logs / "revoke.log")
        if not await until(lambda: _is_cut(self._workspace), CUT_LIMIT_S):
            raise Misconfigured(f"{gateway} is still connected {CUT_LIMIT_S:.0f} s after it was revoked")
        return Revocation(gateway, round(time.monotonic() - began, 2), self._sent)


def _is_cut(workspace: Workspace) -> bool:
    return any(_CLOSED in each for each in decisions(workspace))


def refusals(workspace: Workspace) -> int:
    """Return how often the bridge has refused the stolen gateway, at least: its log has one line for many in a row."""
    found = [each for each in decisions(workspace) if _REFUSED in each]
    return len(found) + sum(int(more[1]) for each in found if (more := _MORE.search(each)))


def decisions(workspace: Workspace) -> list[str]:
    """Return the bridge's decisions about the stolen gateway's connections: the lines of its log that name both."""
    log = workspace.logs / f"{workspace.bridges[0]}.log"
    return [line for line in log.read_text("utf-8", "replace").splitlines() if workspace.stolen in line and "revoked" in line]


def read_kept(folder: Path) -> set[int]:
    """Return the counters of the device's events that are in an outbox. Raises `Misconfigured`."""
    events = [decode_event(row["body"].encode()) for row in read_events(folder, "event", limit=1_000_000)]
    found = (counter_of(each.content_type, each.data) for each in events if each.device == TRACKER.name)
    return {n for n in found if n is not None}
