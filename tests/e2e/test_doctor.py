"""Both doctors beside a bridge over TLS and a gateway that runs: they find nothing wrong, and disturb nothing."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fogline.process.checkup import Grade
from fogline_cloud.authority.ca_folder import LIST
from fogline_cloud.authority.certificates import Role
from fogline_cloud.cli.administration import doctor as cloud_doctor
from fogline_cloud.cli.main import main
from fogline_edge.operate.doctor import diagnose
from fogline_lab.credentials.authority_folder import HERE, AuthorityFolder
from fogline_lab.line.line import Line
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until_not


def edge_config(line: Line) -> Path:
    tls = line.uplink_tls
    path = line.folder / "edge.toml"
    path.write_text(
        f'tenant = "{line.tenant}"\ngateway = "gw-1"\ndata = "gw-1"\n[mqtt]\nport = 0\n'
        f'[uplink]\nbridge = "{HERE}:{line.port}"\n'
        f'[uplink.tls]\nca = "{tls.ca}"\ncertificate = "{tls.certificate}"\nkey = "{tls.key}"\n'
    )
    return path


async def test_the_gateway_s_doctor_leaves_its_connection_alone(line: Line):
    line, _ = secure(line)
    async with line.bridge() as bridge, line.gateway() as outbox:
        await line.put(outbox, 1)
        await line.drained(outbox)
        connected = bridge.gateways.get("gw-1")
        findings = await asyncio.to_thread(lambda: list(diagnose(edge_config(line))))
        assert bridge.gateways.get("gw-1") is connected
    assert not [each for each in findings if each.grade is Grade.FAIL], findings
    texts = [each.text for each in findings]
    assert f"{HERE}:{line.port} answers over TLS" in texts
    assert any(each.startswith("certificate of the bridge: ") for each in texts)
    ending = [each for each in findings if each.subject == "TLS" and str(line.uplink_tls.certificate) in each.text]
    assert [each.grade for each in ending] == [Grade.WARN], "it ends within a day"
    assert "fogline-edge renew" in ending[0].remedy


async def test_a_bridge_that_the_gateway_does_not_trust_is_named(line: Line, tmp_path):
    line, _ = secure(line)
    (tmp_path / "other").mkdir()
    other = AuthorityFolder(tmp_path / "other", line.tenant)
    async with line.bridge():
        line.uplink_tls = other.files(Role.GATEWAY, "gw-1")
        findings = await asyncio.to_thread(lambda: list(diagnose(edge_config(line))))
    (failed,) = [each for each in findings if each.grade is Grade.FAIL]
    assert "its certificate is not accepted" in failed.text


@pytest.fixture
def cloud_config(line: Line):
    """Write the settings of a line as a file, with the bridge's authority for operators."""

    def write(**more) -> Path:
        settings = replace(line.cloud, **more)
        path = line.folder / "cloud.toml"
        tables = {
            "kafka": settings.kafka,
            "bridge": msgspec.to_builtins(settings.bridge),
            "flow": {"tables": "t", "checkpoint": "c"},
        }
        if settings.bridge.tls is not None:
            tables["bridge.tls"] = msgspec.to_builtins(settings.bridge.tls)
        text = f'tenant = "{line.tenant}"\nshards = {settings.shards}\n'
        for name, table in tables.items():
            text += f"[{name}]\n" + "".join(
                f'"{key}" = {json.dumps(value)}\n' for key, value in table.items() if is_plain(value)
            )
        path.write_text(text)
        return path

    return write


def is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


async def test_the_cloud_s_doctor_checks_kafka_bridge_list_and_health(line: Line, cloud_config, capsys):
    line, site = secure(line)
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, metrics="127.0.0.1:0", crl=str(site.ca.path / LIST)))
    async with line.bridge() as bridge:

        async def not_ready() -> bool:
            return not bridge.shards.all_ready

        await until_not(not_ready, "the bridge owns no shard")
        tls = site.files(Role.OPERATOR, "alice")
        own = replace(line.cloud.bridge, listen=f"{HERE}:{line.port}", metrics=bridge.metrics_address)
        path = cloud_config(bridge=own)
        with path.open("a") as file:
            file.write(f'[operator.tls]\nca = "{tls.ca}"\ncertificate = "{tls.certificate}"\nkey = "{tls.key}"\n')
        status = await asyncio.to_thread(main, ["doctor", "--config", str(path), "--json"])
    findings = json.loads(capsys.readouterr().out)
    failed = [each for each in findings if each["grade"] == "FAIL"]
    assert (status, failed) == (0, []), failed
    seen = {each["subject"]: each for each in findings}
    assert "answers over TLS" in next(each["text"] for each in findings if each["subject"] == "bridge")
    assert {"Kafka", "Java", "CRL", "TLS", "tables", "clock", "versions"} <= seen.keys()
    assert "it is healthy" in {each["text"] for each in findings}
    weak = [each for each in findings if each["subject"] == "Kafka" and each["grade"] == "WARN"]
    assert "1 replicas" in weak[0]["text"]


def test_a_cloud_without_kafka_fails_in_one_line(line: Line, capsys, tmp_path):
    path = tmp_path / "cloud.toml"
    path.write_text('tenant = "acme"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n"socket.timeout.ms" = 1000\n')
    assert main(["doctor", "--config", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("FAIL") and "Kafka" in line]
    path.write_text("tenant = 1\n")
    assert main(["doctor", "--config", str(path)]) == 1


def test_a_process_that_is_not_healthy_says_why(monkeypatch):
    class Response:
        status = 503

        def read(self, _: int) -> bytes:
            return b"shard 1: it is being taken\n"

    class Connection:
        def __init__(self, *_, **__): ...
        def request(self, *_): ...
        def close(self): ...
        def getresponse(self):
            return Response()

    monkeypatch.setattr(cloud_doctor.http.client, "HTTPConnection", Connection)
    (found,) = cloud_doctor._health("bridge", "127.0.0.1:1")
    assert (found.grade, found.text) == (Grade.FAIL, "shard 1: it is being taken")
