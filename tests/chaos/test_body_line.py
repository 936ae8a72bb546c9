"""Large bodies over a line that is cut, with gateway and bridge killed: each once, byte for byte, and orphans gone in time."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from fogline.events.event import Arrival, Lane
from fogline.events.large_body import BodyRef, read_dataref
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.flows.bodies.body_folder import BodyFolder, bodies_in
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.records import event_of
from fogline_cloud.maintenance.body_expiry import bodies_of, delete_ended
from fogline_cloud.settings import CloudSettings, FlowSettings, TablesSettings
from fogline_cloud.store.object_folder import ObjectFolder
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.body_settings import BodySettings
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.gateway.connected_gateway import Impatient, connected_gateway
from fogline_lab.gateway.gateway_process import SETTINGS
from fogline_lab.large_bodies import make_body
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.memory import resident_bytes
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child, stop_children
from fogline_lab.tcp_line import TcpLine
from fogline_lab.waiting import until

MIB = 1024 * 1024
TOTAL = int(os.environ.get("FOGLINE_BODIES_MIB", "48")) * MIB
"""Bytes of all bodies. FOGLINE_BODIES_MIB=4096 is the long run."""
CUT_S = 10.0
DEVICES = 2
LIMIT_S = 60.0
LAND_S = 120.0 + 4 * TOTAL / MIB
"""Limit for all bodies to land, far beyond what any machine takes."""


@dataclass
class Site:
    """A bridge process, a line to it that is cut, and a gateway process; what devices have sent, and what has landed."""

    line: ProcessLine
    way: TcpLine
    gateway: ChildProcess
    bodies: BodyFolder
    objects: ObjectFolder
    sizes: list[int]
    address: str = ""
    sent: dict[str, tuple[int, str]] = field(default_factory=dict)  # by id of the device: size, digest
    landed: Counter[tuple[int, str]] = field(default_factory=Counter)
    offset: int = 0
    peak: Counter[str] = field(default_factory=Counter)

    async def start_gateway(self) -> None:
        self.address = (await start_child(self.gateway))["http"]

    async def send(self, device: int, numbers) -> None:
        """Send bodies one after the other, each until it is acknowledged."""
        for number in numbers:
            body = make_body(number, self.sizes[number])
            headers = {"idempotency-key": f"b{number}", "content-type": "image/jpeg"}
            while True:
                with contextlib.suppress(httpx.TransportError):
                    async with httpx.AsyncClient(timeout=LIMIT_S) as client:
                        url = f"http://{self.address}/telemetry//camera-{device}"
                        if (await client.post(url, content=body, headers=headers)).status_code == 202:
                            break
                await asyncio.sleep(0.5)  # the device's own pause
            self.sent[f"b{number}"] = (len(body), hashlib.sha256(body).hexdigest())

    def land(self) -> None:
        """Read what is new in Kafka as a flow's worker does, and keep the chunks."""
        topic = topics.of_lane(Lane.BULK, self.line.tenant)
        for record in read_committed(self.line.clients, {(topic, 0): self.offset}, lean=True):
            self.offset = record.offset + 1
            event = event_of(dict(record.headers), record.value, self.line.tenant)
            if event.dataref is None:
                continue
            self.bodies.keep([event])
            ref = read_dataref(event.dataref)
            if isinstance(ref, BodyRef):
                assert sum(map(len, self.bodies.chunks(event))) == ref.size  # it checks the digest too
                self.landed[ref.size, ref.sha256] += 1

    async def all_landed(self) -> bool:
        await asyncio.to_thread(self.land)
        return sum(self.landed.values()) >= len(self.sizes)

    async def all_settled(self) -> bool:
        """Return True if each body has its event or its end."""
        await asyncio.to_thread(self.land)
        ended = {each.path.rpartition("/")[2] for each in self.objects.objects("ended/")}
        bodies = [each for each in bodies_of(self.objects.objects("")) if not each.paths[0].startswith("ended/")]
        return all(each.has_event or each.paths[0].split("/")[2] in ended for each in bodies)

    async def leave_in_the_middle(self) -> None:
        """Send half a body, and go away."""

        async def half() -> AsyncIterator[bytes]:
            yield make_body(0, 2 * MIB)
            raise httpx.WriteError("the device leaves")

        with contextlib.suppress(httpx.TransportError):
            async with httpx.AsyncClient(timeout=LIMIT_S) as client:
                headers = {"content-length": str(4 * MIB)}
                await client.post(f"http://{self.address}/telemetry//camera-x", content=half(), headers=headers)

    async def disturb(self) -> None:
        """Cut the line every 10 s, and at every third time kill the gateway or the bridge, in turn."""
        bridge = self.line.bridges["bridge-1"]
        for turn in itertools.count(1):
            await asyncio.sleep(CUT_S)
            self.watch()
            self.way.cut()
            await self.leave_in_the_middle()
            if turn % 6 == 3:
                await kill_child(self.gateway)
                await self.start_gateway()
            elif turn % 6 == 0:
                await kill_child(bridge)
                await start_child(bridge)

    def watch(self) -> None:
        for name, child in (("gateway", self.gateway), ("bridge", self.line.bridges["bridge-1"])):
            with contextlib.suppress(OSError):
                self.peak[name] = max(self.peak[name], sum(map(resident_bytes, child.members())))


def sizes_of(total: int) -> list[int]:
    """Return sizes of 1 to 64 MiB, log-uniform, up to a total."""
    chance, found = random.Random(40), []
    while sum(found) < total:
        found.append(int(MIB * 64 ** chance.random()))
    return found


@contextlib.asynccontextmanager
async def site_of(kafka, tenant: str, folder: Path):
    line = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    await start_child(line.bridge("bridge-1"))
    async with TcpLine(line.ports["bridge-1"]) as way:
        config = folder / "edge.toml"
        text = SETTINGS.format(data=folder / "data", bridge=way.port, name="gw-1", tenant=tenant).replace("[mqtt]", "[http]")
        config.write_text(text.replace("[http]", "retry_s = 0.2\nretry_cap_s = 1.0\n[http]"))
        command = [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config]
        gateway = ChildProcess("gateway", command, folder / "edge.log")
        settings = CloudSettings(tenant=tenant, flow=FlowSettings(tables=str(folder)))
        bodies = bodies_in(str(folder), {})
        objects = ObjectFolder(settings, bodies.path)
        site = Site(line, way, gateway, BodyFolder(bodies), objects, sizes_of(TOTAL))
        try:
            await site.start_gateway()
            yield site
        finally:
            await stop_children(gateway)
            await line.close()


@pytest.mark.timeout(3600)
@pytest.mark.fault("C5", "C21")
async def test_body_lands_once_byte_for_byte_over_a_cut_line_with_kills_and_no_orphan_stays(kafka, tenant, folder):
    began = time.monotonic()
    async with site_of(kafka, tenant, folder) as site:
        disturbing = asyncio.create_task(site.disturb())
        numbers = range(len(site.sizes))
        await site.leave_in_the_middle()
        await asyncio.gather(*(site.send(device, numbers[device::DEVICES]) for device in range(DEVICES)))
        await until(site.all_landed, "not all bodies land", LAND_S)
        disturbing.cancel()
        await asyncio.gather(disturbing, return_exceptions=True)
        await until(site.all_settled, "a body has neither event nor end", LAND_S)
        site.watch()
    took_s = time.monotonic() - began
    assert site.landed == Counter(site.sent.values()), "each once, byte for byte"
    objects = site.objects
    ended = len(list(objects.objects("ended/")))
    delete_ended(objects, TablesSettings(), datetime.now(UTC) + timedelta(hours=25), dry_run=False)
    left = list(bodies_of(objects.objects("")))
    assert ended, "devices left in the middle"
    assert len(left) == len(site.sizes)
    assert all(each.has_event for each in left), "no orphan stays, and no live body goes"
    peaks = ", ".join(f"{name} {peak / MIB:.0f} MiB" for name, peak in site.peak.items())
    done = f"{len(left)} bodies, {sum(site.sizes) / MIB:.0f} MiB in {took_s:.0f} s; {len(site.way.arrivals)} connections"
    print(f"{done}, {ended} ended; peaks: {peaks}")
    assert site.peak["gateway"] < 160 * MIB


@pytest.mark.fault("N7")
async def test_commands_take_under_a_second_while_bodies_cross_a_slow_line(kafka, tenant, folder):
    """The line takes 4 Mbit/s, and always has a body to send."""
    line = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    try:
        await start_child(line.bridge("bridge-1"))
        async with TcpLine(line.ports["bridge-1"], bits_per_s=4e6, delay_s=0.02) as way:
            uplink = UplinkSettings(bridge=f"127.0.0.1:{way.port}", statement_s=0.5)
            settings = EdgeSettings(tenant=tenant, gateway="gw-1", data=str(folder / "gw-1"), uplink=uplink)
            async with (
                connected_gateway(settings, backoff=Impatient(0.05, 0.2)) as (outbox, downlink),
                Operator("127.0.0.1", line.ports["bridge-1"], tenant) as operator,
            ):
                await within(operator.attached(), "the operator cannot attach")
                device = CommandDevice(downlink)
                downlink.reachable("lamp-1", device)
                outbox.port.put(lamp_report(), lambda _: None)
                await until(lambda: _settled(outbox), "nothing lands")
                uploads = BodyUploads(outbox.port, BodySettings(), 10**9, lambda _: ())
                upload = uploads.begin(camera_event(), lambda: None, 24 * MIB)
                for number in range(24):
                    upload.write(make_body(number, MIB))
                upload.finish(lambda _: None)
                took = []
                for number in range(100):
                    asked = time.monotonic()
                    await within(operator.request(Ask("lamp-1", "switch", b"{}")), f"command {number} has no reply")
                    took.append(time.monotonic() - asked)
                waiting = sum(each.head - each.settled for each in await outbox.streams.pending())
                assert waiting > 8, "the line had a body to send all the time"
    finally:
        await line.close()
    took.sort()
    print(f"100 commands: median {took[50] * 1000:.0f} ms, p99 {took[98] * 1000:.0f} ms")
    assert took[98] < 1.0


async def _settled(outbox) -> bool:
    return all(each.head == each.settled for each in await outbox.streams.pending())


def camera_event() -> Arrival:
    return Arrival(device="camera-1", channel="t", lane=Lane.TELEMETRY, content_type="image/jpeg", data=b"", adapter="http")


def lamp_report() -> Arrival:
    return Arrival(device="lamp-1", channel="t", lane=Lane.TELEMETRY, content_type="text/plain", data=b"1", adapter="http")
