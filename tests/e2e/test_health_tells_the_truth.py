"""The health of a bridge without Kafka, and the checks and doctors before certificates that have ended or are revoked."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from fogline.process.checkup import Grade, check_room
from fogline_cloud.api.api import Api
from fogline_cloud.api_settings import ApiSettings
from fogline_cloud.authority.ca_folder import LIST
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_cloud.authority.own_certificate import own_certificate_problems
from fogline_cloud.bridge.bridge import Bridge
from fogline_cloud.kafka import consumer_thread
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_edge.cli import main as edge
from fogline_edge.machine.boot import SYSTEM
from fogline_edge.machine.run_record import RunRecord, lines_of_run, read_run
from fogline_edge.operate.doctor import diagnose
from fogline_lab.credentials.authority_folder import HERE
from fogline_lab.kafka_broker import KafkaBroker
from fogline_lab.line.line import Line
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until_not


async def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of a GET."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


@pytest.mark.fault("K1")
async def test_bridge_and_api_report_the_loss_of_kafka_without_any_traffic(folder, tenant, monkeypatch):
    monkeypatch.setattr(consumer_thread, "ASK_S", 0.5)
    with KafkaBroker(folder / "kafka") as own:
        settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": own.bootstrap}, shards=1)
        create_topics(KafkaClients(settings.kafka), settings, 1)
        bridge = Bridge(replace(settings, bridge=replace(settings.bridge, listen=f"{HERE}:0", metrics=f"{HERE}:0")))
        api = Api(replace(settings, api=ApiSettings(listen=f"{HERE}:0")))
        await bridge.start()
        try:
            both = [bridge.metrics_address, f"{HERE}:{(await api.start())[1]}"]

            async def answer(status: int, path: str = "/readyz") -> bool:
                return {(await get(each, path))[0] for each in both} == {status}

            async def not_ready() -> bool:
                return not await answer(200)

            async def ready() -> bool:
                return not await answer(503)

            await until_not(not_ready, "they do not become ready")
            await asyncio.to_thread(own.kill)
            await until_not(ready, "they do not notice that Kafka is away")
            for each in both:
                assert "Kafka does not answer" in (await get(each, "/healthz"))[1]
            assert await answer(200, "/livez"), "a restart does not bring Kafka back"
        finally:
            await api.close()
            await bridge.close()


async def test_a_bridge_without_a_shard_is_not_ready(line):
    bridge = Bridge(line.cloud)
    assert "owns no shard" in bridge.problem()


def test_the_certificate_of_a_bridge_that_has_ended_or_is_revoked_is_a_problem(line: Line):
    line, site = secure(line)

    def problems(**more) -> list[str]:
        tls = site.files(Role.BRIDGE, "b-1", **more)
        settings = replace(line.cloud, bridge=replace(line.cloud.bridge, tls=tls, crl=str(site.ca.path / LIST)))
        before = own_certificate_problems(settings)
        site.ca.revoke("b-1", now_utc(), 1)
        return [*before, *own_certificate_problems(settings)]

    assert [("is revoked" in each, "fogline ca issue bridge" in each) for each in problems()] == [(True, True)]
    assert ["has ended at" in each for each in problems(later_days=-2)] == [True, True]


def edge_config(line: Line, tls) -> Path:
    path = line.folder / "edge.toml"
    path.write_text(
        f'tenant = "{line.tenant}"\ngateway = "gw-1"\ndata = "none"\n[mqtt]\nport = 0\n'
        f'[uplink]\nbridge = "{HERE}:{line.port}"\n'
        f'[uplink.tls]\nca = "{tls.ca}"\ncertificate = "{tls.certificate}"\nkey = "{tls.key}"\n'
    )
    return path


async def test_a_gateway_s_doctor_logs_in_and_names_a_revoked_certificate(line: Line):
    line, site = secure(line)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, crl=str(site.ca.path / LIST)))
    async with line.bridge() as bridge:
        path = edge_config(line, line.uplink_tls)

        async def logins():
            found = await asyncio.to_thread(lambda: list(diagnose(path)))
            return [(each.grade, each.text) for each in found if each.subject == "login"]

        assert [grade for grade, _ in await logins()] == [Grade.OK]
        site.ca.revoke("gw-1", now_utc(), 1)
        bridge.read_again()
        ((grade, text),) = await logins()
    assert (grade, "it is revoked" in text) == (Grade.FAIL, True), text


def test_fogline_edge_check_names_a_certificate_that_has_ended(line: Line, capsys):
    line, site = secure(line)
    assert edge(["check", "--config", str(edge_config(line, site.files(Role.GATEWAY, "gw-1", later_days=-2)))]) == 2
    assert "uplink.tls.certificate" in (err := capsys.readouterr().err)
    assert "has ended at" in err
    assert "fogline-edge enroll" in err


def test_the_status_of_a_gateway_says_whether_a_bridge_serves_it_and_since_when(folder):
    record = RunRecord(folder, SYSTEM)
    record.note_uplink("fog:5671", "no route", connected=False)
    since = read_run(folder).uplink.since
    record.note_uplink("fog:5671", "no address", connected=False)
    assert f"not connected to a bridge since {since}; fog:5671: no address" in lines_of_run(read_run(folder))[1]
    record.note_uplink("fog:5671", "", connected=True)
    assert "connected to the bridge at fog:5671 since" in lines_of_run(read_run(folder))[1]


def test_a_folder_that_cannot_be_written_is_a_failure(folder, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # the tests may run as root, who may write everywhere
    ((grade, _, text, _),) = check_room(folder, "disk")
    assert (grade, "not writable" in text) == (Grade.FAIL, True)
