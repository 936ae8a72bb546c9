"""`fogline-edge diag` packs what a helper needs, and no secret."""

import json
import tarfile
from pathlib import Path

import pytest

from fogline_cloud.authority.certificates import Role
from fogline_edge.cli import main
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import load
from fogline_lab.credentials.authority_folder import AuthorityFolder
from fogline_lab.credentials.mosquitto_passwords import mosquitto_line

CANARY = "canary-password-do-not-show"


@pytest.fixture
def config(tmp_path, monkeypatch) -> Path:
    """Settings with every kind of secret, and a journal that repeats some of them by accident."""
    files = AuthorityFolder(tmp_path, "acme").files(Role.GATEWAY, "gw-1")
    (tmp_path / "password").write_text(f"{CANARY}\n")
    (tmp_path / "users").write_text(mosquitto_line("lamp-1", f"{CANARY}-user".encode()) + "\n")
    key = Path(files.key).read_text()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "journal.txt").write_text(f"connecting as broker with {CANARY}\n{key}\n{(tmp_path / 'users').read_text()}")
    journalctl = tools / "journalctl"
    journalctl.write_text(f"#!/bin/sh\nexec cat {tools}/journal.txt\n")
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    path = tmp_path / "edge.toml"
    path.write_text(
        f'tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n'
        f'[uplink]\nbridge = "127.0.0.1:1"\n'
        f'[uplink.tls]\nca = "{files.ca}"\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n'
        f'[mqtt]\nport = 0\nusers = "users"\n'
        f'[[mqtt_clients]]\nname = "home"\nprofile = "plain"\nusername = "secret-user"\npassword_file = "password"\n'
        f'topics = [{{ topic = "{{device}}/t" }}]\n'
    )
    return path


def packed(config: Path, capsys) -> tuple[Path, dict[str, str]]:
    assert main(["diag", "--config", str(config), "--out", str(config.parent), "--json"]) == 0
    path = Path(json.loads(capsys.readouterr().out)["archive"])
    with tarfile.open(path) as archive:
        return path, {
            each.name.partition("/")[2]: archive.extractfile(each).read().decode()
            for each in archive.getmembers()
            if each.isfile()
        }


async def test_the_archive_has_everything_but_no_secret(config, capsys):
    await Outbox.open(load(config)).close()
    path, members = packed(config, capsys)
    assert set(members) == {
        "doctor.json", "settings.json", "journal.txt", "kernel.txt", "status.json", "machine.json", "files.json",
    }  # fmt: skip
    assert path.stat().st_mode & 0o077 == 0
    settings = json.loads(members["settings.json"])
    assert settings["uplink"]["bridge"] == "127.0.0.1:1"
    assert json.loads(members["status.json"])["gateway"] == "acme/gw-1"
    assert "outbox.db" in json.loads(members["files.json"])
    assert "connecting as broker with [secret]" in members["journal.txt"]
    everything = "".join(members.values())
    for name in ("password", "users", *Path(load(config).uplink.tls.key).parent.iterdir()):
        for line in (config.parent / name).read_text().splitlines():
            assert line.startswith("-----") or line not in everything, f"{name} is in the archive"
    assert CANARY not in everything
    assert "secret-user" not in everything


def test_of_settings_that_are_wrong_only_the_names_of_keys_are_packed(config, capsys):
    config.write_text(f'tenant = "acme"\npassword = "{CANARY}"\n[mqtt]\ntoken = ["{CANARY}"]\n')
    _, members = packed(config, capsys)
    assert json.loads(members["settings.json"]) == {"tenant": "...", "password": "...", "mqtt": {"token": ["..."]}}
    assert CANARY not in "".join(text for name, text in members.items() if name != "journal.txt")
    assert "unknown key" in members["doctor.json"]


def test_a_folder_that_cannot_be_written_is_one_line(config, capsys):
    assert main(["diag", "--config", str(config), "--out", str(config.parent / "none")]) == 2
    assert "Name another folder with --out" in capsys.readouterr().err
