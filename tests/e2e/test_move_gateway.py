"""A gateway moves to another machine, and the former one is reset: no acknowledged event is lost, or in the tables twice."""

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest

from e2e.enrolling import enrolled, serial, token_of
from fogline.errors import Misconfigured
from fogline_cloud.authority.certificates import now_utc
from fogline_edge.operate.backup import renew_restored, restore, write_backup
from fogline_edge.operate.first_settings import CERTIFICATE
from fogline_edge.operate.reset import reset
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.file.copy_file import read_copy
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.line.line import Line
from fogline_lab.waiting import until_not

GATEWAY = "gw-9"


def configured(config: Path) -> Path:
    """Let a gateway listen on a free port, and say hello again soon."""
    text = config.read_text()
    text = text.replace("[mqtt] ", "[mqtt]\nport = 0\n#").replace("[uplink]\n", "[uplink]\nretry_s = 0.1\nretry_cap_s = 0.5\n")
    config.write_text(text)
    return config


class Process:
    """A running `fogline-edge run`. `ready`: the facts that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, str]) -> None:
        self.process = process
        self.ready = ready

    async def publish(self, *numbers: int) -> None:
        """Publish events until all are acknowledged."""
        await asyncio.to_thread(self._publish, numbers)

    async def listens(self) -> bool:
        """Return whether a device could connect."""
        try:
            _, writer = await asyncio.open_connection(*self.ready["mqtt"].rsplit(":", 1))
        except ConnectionRefusedError:
            return False
        writer.close()
        return True

    def _publish(self, numbers: tuple[int, ...]) -> None:
        host, _, port = self.ready["mqtt"].rpartition(":")
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="lamp-1")
        client.connect(host, int(port))
        client.loop_start()
        for each in [client.publish("telemetry", b'{"n": %d}' % number, qos=1) for number in numbers]:
            each.wait_for_publish(30)
            assert each.is_published()
        client.disconnect()
        client.loop_stop()


@asynccontextmanager
async def running(config: Path):
    """A gateway in a process of its own."""
    log = config.with_suffix(".log").open("ab")
    arguments = ("-m", "fogline_edge.cli", "run", "--config", str(config))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        ready = json.loads(await within(process.stdout.readline(), f"{config} does not start"))
        yield Process(process, ready)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await within(process.wait(), "it does not end")
        log.close()


async def delivered(config: Path) -> None:
    async def waits() -> bool:
        return bool((await asyncio.to_thread(read_status, Path(load(config).data)))["backlog"])

    await until_not(waits, f"{config}: the outbox does not drain")


async def replaced(config: Path) -> None:
    async def serves() -> bool:
        return not read_copy(Path(load(config).data)).replaced

    await until_not(serves, f"{config}: it does not learn that it was replaced")


def numbers(line: Line) -> dict[int, set[tuple[bytes, bytes]]]:
    """Return the identities of the events in Kafka by their number: the flow keeps one row for each identity."""
    found: dict[int, set[tuple[bytes, bytes]]] = {}
    for record in line.records():
        headers = dict(record.headers)
        if headers["device_id"] == b"lamp-1":
            found.setdefault(json.loads(record.value)["n"], set()).add((headers["ce_source"], headers["ce_id"]))
    return found


@pytest.mark.slow
async def test_a_gateway_moves_while_the_former_one_goes_on(issuing, folder):
    line, site = issuing
    backup = folder / "gw-9.backup"
    async with line.bridge() as bridge:
        old = configured(await enrolled(line, token_of(site), folder / "old"))
        async with running(old) as former:
            await former.publish(*range(20))
            made = await asyncio.to_thread(write_backup, old, backup)
            assert made.files == ["ca.pem", "edge.toml", CERTIFICATE]
            await former.publish(*range(20, 40))
            new = restore(backup, folder / "new").settings
            assert not await asyncio.to_thread(renew_restored, new)
            assert serial(folder / "new") != serial(folder / "old")
            async with running(new) as present:
                await asyncio.gather(former.publish(*range(40, 50)), present.publish(*range(50, 60)))
                await replaced(old)
                await until_not(former.listens, "it still listens to devices")
                await present.publish(*range(60, 80))
                await delivered(old)
                await delivered(new)

                async def not_alone() -> bool:
                    peer = bridge.gateways.welcomed(GATEWAY)
                    return peer is None or bridge.gateways.get(GATEWAY) is not peer

                await until_not(not_alone, "the restored gateway is not the one that gets commands")
        async with running(old) as former:
            assert "mqtt" not in former.ready, "it stays replaced after a restart"
        findings = await asyncio.to_thread(lambda: list(reset(old)))
        (certificate,) = [each for each in findings if each.subject == "certificate"]
        assert f"fogline ca revoke {serial_of(site)[0]}" in certificate.remedy
        async with running(new) as present:
            await present.publish(*range(80, 90))
            await delivered(new)
    found = numbers(line)
    assert sorted(found) == list(range(90))
    assert all(len(identities) == 1 for identities in found.values()), "the tables would have an event twice"
    assert len({one for identities in found.values() for one in identities}) == 90, "two events are one"


def serial_of(site: AuthorityFolder) -> list[str]:
    """Return the serial numbers of the gateway's certificates, oldest first."""
    return [each.issued.serial for each in site.ca.known() if each.issued.name == GATEWAY]


async def test_a_reset_revokes_the_certificate_and_leaves_nothing(issuing, folder):
    line, site = issuing
    async with line.bridge():
        config = await enrolled(line, token_of(site), folder / "pi")
        await Outbox.open(load(config)).close()
        findings = await asyncio.to_thread(lambda: list(reset(config)))
    assert {each.grade for each in findings} == {"OK"}
    (known,) = [each for each in site.ca.known() if each.issued.name == GATEWAY]
    assert known.state(now_utc()) == "revoked"
    assert [each.name for each in folder.glob("pi/**/*")] == ["data"]


async def test_reset_names_the_steps_that_failed(issuing, folder):
    line, site = issuing
    async with line.bridge():
        config = await enrolled(line, token_of(site), folder / "pi")
    outbox = Outbox.open(load(config))
    await line.put(outbox, *range(5))
    with pytest.raises(Misconfigured, match="in use by another fogline-edge process"):
        list(reset(config))
    await outbox.close()
    (folder / "pi" / "data" / "notes.txt").write_text("mine")
    findings = {(each.grade, each.subject): each for each in await asyncio.to_thread(lambda: list(reset(config)))}
    assert findings["WARN", "outbox"].text == "5 events are deleted that the bridge had not accepted"
    failed = findings["FAIL", "certificate"]
    assert "is not revoked" in failed.text
    assert failed.remedy.endswith(f"fogline ca revoke {serial_of(site)[0]}")
    assert "notes.txt is kept" in findings["WARN", "files"].text
    assert [each.name for each in folder.glob("pi/**/*") if each.is_file()] == ["notes.txt"]
