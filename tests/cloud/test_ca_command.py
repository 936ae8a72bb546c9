"""`fogline ca issue` and `fogline gateway add`, as a person runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import now_utc

FOGLINE = Path(sys.executable).parent / "fogline"
LIMIT_S = 60


def fogline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FOGLINE, *arguments], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.fixture
def place(folder) -> Path:
    (folder / "cloud.toml").write_text('tenant = "acme"\n')
    CaFolder.make(folder / "ca", "acme", now_utc(), 7)
    return folder


def test_a_device_s_certificate_comes_with_the_command_that_uses_it(place):
    done = fogline(place, "ca", "issue", "device", "lamp-1")
    assert done.returncode == 0, done.stderr
    assert "mosquitto_pub --cafile ca.pem --cert lamp-1.pem --key lamp-1.key -h GATEWAY -p 8883" in done.stdout
    assert (place / "lamp-1.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ca", "issue", "device", "lamp-1", "--host", "x"), "--host is for bridges and gateways, not for a device"),
        (("ca", "issue", "bridge", "b-1"), "needs --host"),
        (("gateway", "add", "gw-1", "--host", "gw-1.local", "--host", "gär"), "--host 'gär': expected a host name"),
        (("gateway", "add", "gw-1", "--host", ""), "--host '': expected a host name"),
    ],
)
def test_a_wrong_host_is_named(place, arguments, says):
    done = fogline(place, *arguments)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert not list(place.glob("*.key"))


def test_a_gateway_is_added_with_host_names(place):
    done = fogline(place, "gateway", "add", "gw-1", "--host", "gw-1.local", "--json")
    assert json.loads(done.stdout)["gateway"] == "gw-1", done.stderr
    assert '"hosts":["gw-1.local"]' in (place / "ca" / "tokens.jsonl").read_text()


def test_nothing_is_issued_for_a_folder_that_cannot_be_written(place):
    before = sorted((each.name, each.stat().st_size) for each in (place / "ca").iterdir())
    done = fogline(place, "ca", "issue", "device", "lamp-1", "--out", "cloud.toml/new")
    assert done.returncode == 2
    assert "name another folder with --out. No certificate was issued" in done.stderr
    assert sorted((each.name, each.stat().st_size) for each in (place / "ca").iterdir()) == before
