"""`fogline-edge doctor` finds what is wrong, names the remedy, and disturbs no gateway that runs."""

import json
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fogline.events.large_body import BodyNote, new_body_id, unfinished_key
from fogline.process import checkup
from fogline.process.checkup import Grade
from fogline_cloud.authority.certificates import Role
from fogline_edge.cli import main
from fogline_edge.operate import doctor
from fogline_edge.operate.doctor import diagnose, running_pid
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from fogline_lab.credentials.mqtt_tls_files import MqttTlsFiles
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "edge.toml"
    path.write_text('tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[mqtt]\nport = 0\n[uplink]\nbridge = "127.0.0.1:1"\n')
    return path


def found(config: Path) -> dict[str, tuple[Grade, str]]:
    """The worst finding of each subject. A WARN or FAIL has a remedy or says what to do in its text."""
    order, worst = list(Grade), {}
    for each in diagnose(config):
        former = worst.get(each.subject)
        if former is None or order.index(each.grade) > order.index(former[0]):
            worst[each.subject] = (each.grade, f"{each.text} {each.remedy}".strip())
    return worst


@contextmanager
def answering(answer: bytes):
    """A server on loopback that answers the first bytes of a client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)
    assert not thread.is_alive(), "nobody connected"


def test_a_gateway_that_never_ran(config):
    subjects = found(config)
    assert subjects["settings"][0] is Grade.OK
    assert subjects["gateway"] == (Grade.WARN, "it does not run Start it: fogline-edge run")
    assert "none yet" in subjects["outbox"][1]
    assert subjects["bridge"][0] is Grade.FAIL
    assert "Connection refused" in subjects["bridge"][1]
    assert not (config.parent / "data").exists(), "it changes nothing"


async def test_a_gateway_that_runs_and_one_that_has_ended(config):
    settings = load(config)
    outbox = Outbox.open(settings)
    try:
        outbox.port.put(make_arrival(1), lambda _: None)
        await outbox.streams.pending()
        subjects = found(config)
        assert subjects["gateway"][0] is Grade.OK
        assert subjects["outbox"][0] is Grade.OK
    finally:
        await outbox.close()
    assert running_pid(Path(settings.data)) is None
    texts = [each.text for each in diagnose(config) if each.subject == "outbox"]
    assert texts[0].endswith("outbox.db is sound")
    assert texts[1].startswith("1 events wait")


async def test_a_damaged_outbox_fails(config):
    settings = load(config)
    await Outbox.open(settings).close()
    file = Path(settings.data) / "outbox.db"
    data = bytearray(file.read_bytes())
    data[100:] = b"\xa5" * (len(data) - 100)
    file.write_bytes(data)
    grade, text = found(config)["outbox"]
    assert grade is Grade.FAIL
    assert "is damaged" in text


def test_findings_about_the_bridges_address(config):
    text = config.read_text()
    with answering(b"AMQP\x00\x01\x00\x00") as port:
        config.write_text(text.replace("127.0.0.1:1", f"127.0.0.1:{port}"))
        assert found(config)["bridge"] == (Grade.OK, f"127.0.0.1:{port} answers")
    with answering(b"HTTP/1.1") as port:
        config.write_text(text.replace("127.0.0.1:1", f"127.0.0.1:{port}"))
        assert "is not a bridge" in found(config)["bridge"][1]


def test_a_name_without_an_address(config, monkeypatch):
    def nowhere(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(checkup.socket, "getaddrinfo", nowhere)
    assert found(config)["DNS"][0] is Grade.FAIL


def test_wrong_settings_are_a_finding(config, capsys):
    config.write_text("tenant = 1\n")
    assert main(["doctor", "--config", str(config), "--json"]) == 1
    failed = [each for each in json.loads(capsys.readouterr().out) if each["grade"] == "FAIL"]
    assert [each["subject"] for each in failed] == ["settings"]
    assert all(each["remedy"] for each in failed)


def test_the_status_is_0_if_nothing_fails_and_lines_name_grade_and_subject(config, capsys, monkeypatch):
    async def lets_in(*_: object) -> str:
        return ""

    monkeypatch.setattr(doctor, "try_login", lets_in)  # tests/e2e tries a real log-in
    text = config.read_text()
    with answering(b"AMQP\x00\x01\x00\x00") as port:
        config.write_text(text.replace("127.0.0.1:1", f"127.0.0.1:{port}"))
        assert main(["doctor", "--config", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in set(Grade) for line in lines)
    assert {"versions", "settings", "clock", "outbox", "disk", "bridge"} <= {line.split()[1] for line in lines}


@pytest.mark.parametrize(("written_gb", "grade"), [(5, Grade.OK), (20, Grade.WARN)])
def test_wear_is_reckoned_from_the_writes_since_boot(config, monkeypatch, written_gb, grade):
    machine = doctor.read_machine(config.parent).__class__(disk_size_bytes=32 * 10**9, disk_written_bytes=written_gb * 10**9)
    monkeypatch.setattr(doctor, "read_machine", lambda _: machine)
    monkeypatch.setattr(doctor.time, "clock_gettime", lambda _: 86_400.0)
    assert found(config)["wear"][0] is grade


def test_no_adapter_for_a_gateway_with_bluetooth(config, tmp_path):
    ble = load(config).ble or doctor.BleSettings()
    radio = tmp_path / "sys/class/rfkill/rfkill0"
    assert [each.grade for each in doctor._bluetooth(ble, tmp_path, tmp_path / "sys")] == [Grade.FAIL]
    (tmp_path / "sys/class/bluetooth/hci0").mkdir(parents=True)
    assert [each.grade for each in doctor._bluetooth(ble, tmp_path, tmp_path / "sys")] == [Grade.OK]
    radio.mkdir(parents=True)
    for name, text in {"type": "bluetooth", "soft": "1", "hard": "0"}.items():
        (radio / name).write_text(f"{text}\n")
    (blocked,) = doctor._bluetooth(ble, tmp_path, tmp_path / "sys")
    assert "rfkill unblock" in blocked.remedy


def test_certificates_of_listeners_are_named_with_their_end(config, tmp_path):
    secured = MqttTlsFiles(tmp_path)
    old = secured.site.files(Role.GATEWAY, "gw-1", later_days=-2)
    own = secured.own
    tables = f"[http.tls]\ncertificate = '{own.certificate}'\nkey = '{own.key}'\nca = '{own.ca}'\n"
    tables += f"[mqtt.tls]\ncertificate = '{old.certificate}'\nkey = '{old.key}'\nca = '{own.ca}'\n"
    config.write_text(config.read_text() + tables)
    subjects = found(config)
    assert (subjects["http.tls"][0], "days left" in subjects["http.tls"][1]) == (Grade.WARN, True)
    assert (subjects["mqtt.tls"][0], "has ended" in subjects["mqtt.tls"][1]) == (Grade.FAIL, True)


def begin_bodies(outbox: Outbox, *devices: str, ago_s: float = 0.0) -> None:
    """Keep the notes of bodies that have begun, as adapters do."""
    for device in devices:
        note = msgspec.json.encode(BodyNote(device, "t", "http", "telemetry"))
        outbox.port.keep(unfinished_key(new_body_id(time.time() - ago_s)), note, lambda: None)


def bodies_of(config: Path) -> list[tuple[Grade, str]]:
    return [(each.grade, f"{each.text} {each.remedy}".strip()) for each in diagnose(config) if each.subject == "bodies"]


async def test_large_bodies_that_take_all_places_or_never_end_are_named_by_device(config):
    with config.open("a") as file:
        file.write("[bodies]\nmax_uploads = 3\nmax_time_s = 100\n")
    outbox = Outbox.open(load(config))
    try:
        begin_bodies(outbox, "camera-1")
        await put(outbox, make_arrival(1))  # after the notes
        assert bodies_of(config) == [(Grade.OK, "they may have 67.1 MB; 1 come now")]
        begin_bodies(outbox, "camera-1", "camera-2", ago_s=200)
        await put(outbox, make_arrival(1))  # after the notes
        late, taken, _ = bodies_of(config)
        assert (late[0], "2 large bodies (1 of camera-1, 1 of camera-2) have neither" in late[1]) == (Grade.WARN, True)
        assert (taken[0], "all 3 places" in taken[1], "2 of camera-1" in taken[1]) == (Grade.WARN, True, True)
    finally:
        await outbox.close()
    assert bodies_of(config)[0][1].endswith("had not come whole when the gateway ended: it ends them at its next start")


@pytest.mark.parametrize(
    ("settings", "grade", "said"),
    [
        ("", Grade.OK, "they may have 67.1 MB"),
        ("[bodies]\nmax_bytes = 0\n", Grade.OK, "none of more than 262,144 bytes is taken"),
        ("[outbox]\nmax_bytes = 100_000_000\n", Grade.WARN, "more than 25.0 MB are refused"),
        ('[[rules.private]]\nname = "people"\ndrop = ["/name"]\n', Grade.OK, "rules of private fields refuse them: people"),
    ],
)
def test_largest_body_and_the_rules_that_refuse_it_are_named(config, settings, grade, said):
    config.write_text(config.read_text() + settings)
    worst = found(config)["bodies"]
    assert (worst[0], said in " ".join(text for _, text in bodies_of(config))) == (grade, True)
